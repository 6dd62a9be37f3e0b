"""Prove that a paused transformer, brought back, is still thinking the same thought.

The Python API: `load_model`, `capture_text`, `save_state`, `load_state`, `resume`, `judge`; and
`wrap`, `from_cache`, `to_cache` for models and caches that are in use already. `harness.api` has
shapes and errors, `except harness.HarnessError` catches every one of them. Nothing heavy is imported
before a function is used.
"""

from typing import Any

__version__ = "0.2.0"
FUNCTIONS = (
    "capture_text", "from_cache", "judge", "load_model", "load_state", "resume", "save_state",
    "to_cache", "wrap",
)  # fmt: skip
ERRORS = (
    "ConfigProblem", "HarnessError", "InputProblem", "MissingExtra", "RestoreRefused",
    "SnapshotInvalid", "UnsupportedModel", "Untrusted",
)  # fmt: skip
__all__ = [*ERRORS, *FUNCTIONS]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    if name in FUNCTIONS:
        from harness import api

        return getattr(api, name)
    if name in ERRORS:
        from harness import errors

        return getattr(errors, name)
    raise AttributeError(f"module 'harness' has no attribute '{name}'")
