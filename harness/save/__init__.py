"""Formats: written atomically, read only after verification."""
