"""Policies: which tokens a layer keeps. `Policy` is the base of your own."""

from typing import TYPE_CHECKING

from harness.variants import lazily

if TYPE_CHECKING:
    from harness.prune.base import Policy

__all__ = ["Policy"]
__getattr__ = lazily(Policy="harness.prune.base")
