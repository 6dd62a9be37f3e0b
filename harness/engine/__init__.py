"""Engines that evaluate tokens and keep a cache of what they read. An option is one file with `ENGINE`."""

from harness.engine.base import Answer, Composition, Engine

__all__ = ["Answer", "Composition", "Engine"]
