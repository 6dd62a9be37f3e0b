"""The pauses of a chat: one snapshot per turn, side by side, each holding what the turn added."""

from collections.abc import Callable
from pathlib import Path

from harness.config import SaveConfig
from harness.errors import InputProblem
from harness.pipeline.snapshot import Stored
from harness.save import store
from harness.save.contents import TURN, number, turns
from harness.snapshot.state import State

UNDONE = "undone-"


class Pauses:
    """`turn-001`, `turn-002`, ... below `folder`. The newest is where the chat goes on; a turn that is
    undone is set aside under another name, so that nothing built on it breaks. settings: a SaveConfig.

    Raises InputProblem for a folder that is a snapshot itself, or is not on this machine.
    """

    def __init__(
        self,
        folder: Path | str,
        settings: SaveConfig,
        tell: Callable[[str], None] = lambda said: None,
    ):
        place = store.place(folder)
        if isinstance(place, str):
            raise InputProblem(
                f"out={folder}: a chat is kept on this machine. Give a local folder."
            )
        if (place / "manifest.json").exists():
            raise InputProblem(
                f"out={folder} is one snapshot; a chat keeps one per turn in a folder of its own. "
                f"Give another out=DIR, and snapshot={folder} to begin with it."
            )
        self.folder, self._settings, self._tell = place, settings, tell
        newest = self.newest
        self.parent = store.read_manifest(newest)["id"] if newest else None

    @property
    def places(self) -> list[Path]:
        """Every pause, in the order of the turns."""
        return turns(self.folder)

    @property
    def newest(self) -> Path | None:
        return next(reversed(self.places), None)

    def save(self, state: State, turn: int | None = None, overwrite: bool = False) -> Stored:
        """Write `state`, whose parent is the newest pause, as number `turn` (default: the next)."""
        newest = self.newest
        place = self.folder / f"{TURN}{turn or (number(newest) if newest else 0) + 1:03d}"
        access = store.current(**({"overwrite": True} if overwrite else {}))
        manifest = store.save(state, place, self._settings, self._tell, access)
        self.parent = manifest["id"]
        return Stored(place, manifest)

    def undo(self) -> Path | None:
        """Set the newest pause aside; where it is now. None when there is none."""
        place = self.newest
        if place is None:
            return None
        names = [p.name.removeprefix(UNDONE) for p in self.folder.glob(f"{UNDONE}*")]
        last = max((int(name) for name in names if name.isdigit()), default=0)
        aside = self.folder / f"{UNDONE}{last + 1:03d}"
        place.rename(aside)
        newest = self.newest
        self.parent = store.read_manifest(newest)["id"] if newest else None
        return aside
