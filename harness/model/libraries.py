"""The library that every model needs, imported by name, so that loading is not charged for it."""

import sys


def imported() -> bool:
    """Whether it is there already."""
    return "transformers.modeling_utils" in sys.modules


def version() -> str:
    """Import it, with what the first model would import; its version."""
    import transformers
    import transformers.modeling_utils

    return str(transformers.__version__)
