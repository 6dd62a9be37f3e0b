"""Prove that a paused transformer, brought back, is still thinking the same thought."""

__version__ = "0.1.0"
