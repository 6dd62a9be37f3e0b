"""Weights that a record calls by the folder they once lay in, and where they lie on this machine."""

from pathlib import Path

_NOW: dict[str, str] = {}  # of this process


def say(once: str, now: str) -> None:
    """From here on what is loaded from the folder `once` is read at `now`; it keeps its name. Nothing is checked:
    who loads it compares digests."""
    _NOW[_whole(once)] = now


def place(path: str) -> Path:
    """The folder or file to read for `path`."""
    return Path(_NOW.get(_whole(path), path)).expanduser()


def there(path: str) -> bool:
    """Whether a model can still be read from `path`: a GGUF file, or a folder with a config."""
    now = place(path)
    return now.is_file() or (now / "config.json").is_file()


def _whole(path: str) -> str:
    return str(Path(path).expanduser().absolute())
