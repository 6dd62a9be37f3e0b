"""Keys of a sweep that some of its options do not read: those points run without them, which is said."""

from collections.abc import Sequence

from harness import variants
from harness.config.grid import several
from harness.config.option import readable, schemas


def of_sweep(overrides: Sequence[str]) -> list[str]:
    """A sentence for each such key. overrides: all of the sweep."""
    options = {group: several(group, overrides) for group in schemas()}
    found = []
    for override in overrides:
        group, dot, inner = override.partition("=")[0].lstrip("+").partition(".")
        known = [o for o in options.get(group, ()) if o in variants.options(group)] if dot else []
        deaf = [o for o in known if inner.partition(".")[0] not in readable(group, o)]
        if deaf and len(deaf) < len(known):
            without = ", ".join(f"{group}={option}" for option in deaf)
            found.append(f"{group}.{inner} is not read by {without}, which runs without it")
    return found
