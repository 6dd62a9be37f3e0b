"""Engines that evaluate tokens and keep a cache of what they read."""

from harness.engine.base import Answer, Composition, Engine

__all__ = ["Answer", "Composition", "Engine"]
