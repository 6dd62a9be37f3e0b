"""Places of models while a record is run again: it is read inside the record, or where the auditor says."""

from pathlib import Path

from harness.errors import InputProblem, printable

_RECORD: list[tuple[Path, str | None]] = []  # that this process runs again, and the weights


def confine(record: Path, model: str | None) -> None:
    """From here on no model outside of `record` is read but `model`, in place of any; its name stays. Nothing is
    checked: who loads it compares digests."""
    _RECORD[:] = [(record.resolve(), model)]


def inside(folder: Path, path: str) -> bool:
    """Whether `path` is a place in `folder`, links followed; a URL is none."""
    return "://" not in path and Path(path).expanduser().resolve().is_relative_to(folder.resolve())


def place(path: str) -> Path:
    """The folder or file to read for `path`. Raises InputProblem for one that a record names and nobody typed."""
    for record, model in _RECORD:
        if not inside(record, path):
            if model is None:
                raise InputProblem(
                    f"the record names the weights at {printable(path)}, a place outside of it. Say where they are: "
                    "model=path model.path=DIR."
                )
            return Path(model).expanduser()
    return Path(path).expanduser()


def there(path: str) -> bool:
    """Whether a model can still be read from `path`: a GGUF file, or a folder with a config."""
    now = place(path)
    return now.is_file() or (now / "config.json").is_file()
