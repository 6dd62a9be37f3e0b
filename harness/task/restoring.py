"""Is the snapshot allowed to continue on what is loaded now? Identity, element by element."""

from pathlib import Path
from typing import Any

from harness.compare.identity import Difference, differences
from harness.errors import RestoreRefused
from harness.snapshot.state import State


def identity_check(session: Any, state: State, where: Path) -> list[Difference]:
    """Every difference between `state`'s identity and the loaded model's and tokenizer's.

    Raises RestoreRefused with all of them, unless `restore.strict=false`: then they are waived and
    returned.
    """
    loaded = session.loaded
    found = differences(
        state.documents,
        session.documents,
        str(state.dtype).removeprefix("torch."),
        str(loaded.dtype).removeprefix("torch."),
    )
    if found and session.cfg.restore.strict:
        raise RestoreRefused(str(where), found)
    return found
