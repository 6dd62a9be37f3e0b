"""Policies: which tokens a layer keeps. `Policy` is the base of your own."""

from harness.variants import lazily

__getattr__ = lazily(Policy="harness.prune.base")
