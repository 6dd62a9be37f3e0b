"""Places that a record names. Inside of it they are read; any other is only where the auditor types it."""

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.config import options
from harness.config.moved import inside
from harness.errors import InputProblem, printable
from harness.model.build import SHIPPED
from harness.model.ids import IDS
from harness.pipeline.finish import shown
from harness.snapshot import record as records
from harness.task.audit.source import read
from harness.variants import conf_dir, signature

KEYS = ("snapshot", "foreign", "prompt.path", "model.path", "model.tokenizer", "model.id")
TYPED = {"foreign": "from"}
ASKED = "questions.jsonl"  # a record's own copy of what its prompt.path asked


def check(points: Sequence[Path], root: Path) -> None:
    """Raise InputProblem for a link in `root`, the record or the sweep, that leads out of it, and for a place outside
    that a record of `points` names and the command does not."""
    for path in root.rglob("*"):
        if path.is_symlink() and not inside(root, str(path)):
            raise InputProblem(
                f"{shown(path)} is a link that leads out of the record, and no audit follows one."
            )
    for point in points:
        for key, place, option in _outside(point, root):
            if not typed(key) and not (key == "prompt.path" and _asked(point)):
                said = shlex.join([*option, f"{TYPED.get(key, key)}={place}"])
                raise InputProblem(
                    f"{shown(point)} names {key}={printable(place)}, which lies outside of the record and is read only "
                    f"where you type it: {printable(said)}"
                )


def job(point: Path, root: Path) -> dict[str, Any]:
    """What the second run of `point` reads elsewhere, by key; the weights, whoever names them; and the words that it
    finds typed."""
    said = {key: typed(key)[-1] for key in KEYS if typed(key)}
    places = {
        key: place if inside(Path(said[key]), place) else said[key]
        for key, place, _ in _outside(point, root)
        if key in said
    }
    if _asked(point):
        places.setdefault("prompt.path", str(point / ASKED))
    model = places.pop("model.path", said.get("model.path"))
    keys = {word: word.lstrip("+").partition("=")[0] for word in sys.argv[1:]}
    ours = {*(TYPED.get(key, key) for key in KEYS), "model", "prompt"}
    words = [word for word, key in keys.items() if not {key, key.partition(".")[0]} & ours]
    return {"typed": words, "places": places, "model": model, "record": str(root.absolute())}


def typed(key: str) -> list[str]:
    """What the command gives for `key`."""
    word = f"{TYPED.get(key, key)}="
    pairs = (argument.lstrip("+").partition("=")[::2] for argument in sys.argv[1:])
    return [value.strip("'\"") for name, value in pairs if f"{name}=" == word]


def _outside(point: Path, root: Path) -> Iterator[tuple[str, str, list[str]]]:
    """`key, place, option` of what the record of `point` names outside of `root`; option: the word that has to be
    typed beside the key."""
    config = read(point / records.NAME).get("config") or {}
    ended = "stages" not in read(point / "result.json")
    for key in KEYS:
        group, _, inner = key.rpartition(".")
        node: Any = config.get(group) if group else config
        place = node.get(inner) if isinstance(node, Mapping) else None
        if place is None or _known(key, node, place) or inside(root, str(place)):
            continue
        if not ended and "://" not in str(place) and not Path(str(place)).expanduser().exists():
            continue  # it may be about that very place, where nothing can be read
        yield (
            key,
            str(place),
            [f"{group}={node.get('name')}"] * (inner != "tokenizer" and bool(group)),
        )


def _known(key: str, model: Any, place: Any) -> bool:
    """Whether it is no place, or the one that an option of this package names."""
    if key == "model.tokenizer":
        return place == IDS or place in SHIPPED
    ours = key == "model.id" and model.get("name") in options("model", conf_dir())
    return ours and signature("model", model["name"]).get("id") == place


def _asked(point: Path) -> bool:
    return (point / ASKED).is_file()
