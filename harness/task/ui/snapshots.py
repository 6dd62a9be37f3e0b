"""Named snapshots in one folder: nothing outside it, nothing overwritten."""

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from harness.errors import InputProblem, SnapshotInvalid, printable, suggestion
from harness.save import store
from harness.snapshot.state import State

NAME = re.compile(r"\w(?:[\w .+-]*[\w+-])?")
LONGEST = 120  # bytes of UTF-8: every file system takes it, with the writer's suffix


class SnapshotStore:
    """The snapshots in `folder`. settings: a SaveConfig, the format they are written in."""

    def __init__(self, folder: Path, settings: Any):
        self.folder, self.settings = folder, settings

    def names(self) -> list[str]:
        """Newest first; no links and no hidden folders."""
        try:
            saved = [
                (p.stat().st_mtime, p.name)
                for p in self.folder.iterdir()
                if not p.is_symlink() and not p.name.startswith(".") and (p / "manifest.json").is_file()
            ]  # fmt: skip
        except OSError:
            return []
        return [name for _, name in sorted(saved, reverse=True)]

    def save(self, state: State, name: str) -> dict[str, Any]:
        """Write `state` under a new name and read every byte back; return the manifest. Raises
        InputProblem for an invalid or taken name, and where the disk refuses (nothing stays then)."""
        target = self.folder / checked(name)
        if target.exists() or target.is_symlink():
            raise InputProblem(f"'{target.name}' is taken. Type another name.")
        manifest = store.save(state, target, self.settings)
        try:
            store.load(target)
        except SnapshotInvalid as problem:
            shutil.rmtree(target)
            raise InputProblem(
                f"'{target.name}' was not saved; reading it back failed: {problem.faults[0]}. "
                "Check the disk, then save again."
            ) from problem
        return manifest

    def load(self, name: str) -> State:
        """The State saved as `name`, verified. Raises InputProblem for an unknown name,
        SnapshotInvalid for any damage."""
        name = checked(name)
        if name not in (names := self.names()):
            near = suggestion(name, names) if names else " Nothing was saved yet."
            raise InputProblem(f"there is no snapshot named '{name}'.{near}")
        return store.load(self.folder / name)[0]

    def stored_bytes(self, name: str) -> int:
        """Bytes of the snapshot's own files."""
        return store.stored_bytes(self.folder / name)


def check_folder(folder: Path) -> None:
    """Create `folder`. Raises InputProblem where it is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (FileExistsError, NotADirectoryError):
        raise InputProblem(f"out={folder} is a file, or in one: give a folder.") from None
    except OSError as problem:
        raise InputProblem(
            f"out={folder} is not writable ({problem.strerror}). Give a folder of yours."
        ) from None


def checked(name: str | None) -> str:
    """`name` stripped. Raises InputProblem unless it can only name a folder directly inside the store."""
    name = (name or "").strip()
    if not name:
        raise InputProblem("a snapshot needs a name. Type one first.")
    if not NAME.fullmatch(name) or len(name.encode()) > LONGEST:
        raise InputProblem(
            f"'{printable(name)[:40]}' cannot name a snapshot. Use letters, digits, spaces and . + - _ "
            "between them, not too many."
        )
    return name
