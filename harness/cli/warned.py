"""What Hydra warns of while it composes, in one plain line."""

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

UNPLACED = re.compile(r"In '(.+?)': Defaults list is missing `_self_`")


@contextmanager
def noted() -> Iterator[None]:
    """That a primary config leaves out `_self_` is noted inside the block, once for each, on stderr; any other warning
    goes where it went."""
    told: set[str] = set()
    plain = warnings.showwarning
    warnings.filterwarnings("always", message=UNPLACED.pattern)  # whatever was warned of before

    def show(message: Warning | str, *rest: Any, **more: Any) -> None:
        if (said := UNPLACED.match(str(message))) is None:
            plain(message, *rest, **more)
        elif said[1] not in told:
            told.add(said[1])
            print(
                f"note: {said[1]}.yaml does not say where it stands among its defaults, so its own values come "
                "last. Write `_self_` at their end.",
                file=sys.stderr,
            )

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = plain
