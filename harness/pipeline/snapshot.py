"""A snapshot as a task sees it: which one is asked for, where one goes, what the record says of it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.compare.identity import told, waived_earlier
from harness.config import Config, moved
from harness.errors import InputProblem, printable
from harness.model.build import SHIPPED
from harness.pipeline.finish import shown
from harness.pipeline.origin import UNNAMED
from harness.pipeline.session import WRITING
from harness.save import store
from harness.snapshot.digest import digest_document
from harness.snapshot.state import State
from harness.snapshot.words import prunings, quantizings
from harness.tokenizer.shown import shown as in_text

# of a config: what its weights are as large as, under the names that families have for it
SIZES = ("num_hidden_layers", "n_layer", "hidden_size", "n_embd", "vocab_size")


@dataclass(frozen=True)
class Stored:
    """A snapshot, its manifest validated. place: a directory or an fsspec URL."""

    place: Path | str
    manifest: dict[str, Any]

    @classmethod
    def of(cls, cfg: Config) -> "Stored":
        """The snapshot that `snapshot=` names; no payload is read yet. Raises InputProblem for none,
        SnapshotInvalid for a manifest that breaks its rules."""
        place = store.place(snapshot_named(cfg))
        return cls(place, store.read_manifest(place))

    @property
    def nbytes(self) -> int:
        return store.stored_bytes(self.place)

    def block(self) -> dict[str, Any]:
        """The `snapshot` block of `result.json`."""
        return {
            "id": self.manifest["id"],
            "path": shown(self.place),
            "format": self.manifest["payload_format"],
            "format_version": self.manifest["format_version"],
        }

    @property
    def digest(self) -> str:
        """Of what it holds, its 13 elements, whichever of its parents' files hold a part of it."""
        return digest_document({e["name"]: e["digest"] for e in self.manifest["elements"]})

    def record(self, whole: State, pruned: State) -> dict[str, Any]:
        """What `result.json` says about a snapshot of `pruned`, which was `whole` before pruning."""
        size = self.size(whole, pruned)
        return {"snapshot": self.block(), "elements": self.manifest["elements"], "size": size}

    def size(self, whole: State, pruned: State) -> dict[str, int]:
        """The `size` block of a snapshot of `pruned`, which was `whole` before pruning."""
        return {
            "tokens": whole.tokens,
            "kept_tokens": pruned.kept_tokens,
            "kv_bytes": pruned.kv_bytes,
            "stored_bytes": self.nbytes,
        }


def needs(state: State, manifest: dict[str, Any]) -> list[tuple[str, Any]]:
    """What the snapshot is, and what it takes to continue it."""
    documents = manifest["documents"]
    config = documents.get("model_config", {}).get("config", {})
    sampler = documents["generation"].get("sampler") or {}
    prefix = documents.get("prompt_meta", {}).get("prefix", "")
    known = {**(config.get("text_config") or {}), **config}
    sizes = {key: known[key] for key in SIZES if known.get(key) is not None}
    pruned, quantized = (said(documents["kv_format"]) for said in (prunings, quantizings))
    waived = told(waived_earlier(documents))
    return [
        ("id", manifest["id"]),
        ("parent", manifest["parent"]),
        ("format", f"{manifest['payload_format']}, version {manifest['format_version']}"),
        ("needs model", ", ".join(filter(None, (str(config.get("model_type")), listed(sizes))))),
        ("resume loads", _loads(documents.get("source") or {})),
        ("needs dtype", manifest["dtype"]),
        ("captured on", manifest["device"]),
        ("attention", manifest["attention_implementation"]),
        ("libraries", ", ".join(f"{k} {v}" for k, v in manifest["libraries"].items())),
        ("batch", state.batch),
        ("tokens, kept", f"{state.tokens}, {state.kept_tokens}"),
        *([("pruned", "; ".join(pruned))] if pruned else []),
        *([("quantized", "; ".join(quantized))] if quantized else []),
        ("next position", manifest["next_position"]),
        ("K/V bytes", f"{state.kv_bytes:,}"),
        ("prefix before the text", repr(prefix)),
        ("sampler", listed(sampler)),
        *([("waiver", waived)] if waived else []),
    ]


def _loads(source: dict[str, Any]) -> str:
    """The model that a resume loads where none is named. source: the document of a snapshot."""
    if isinstance(path := source.get("path"), str):
        gone = ", which is not there any more: give model=path model.path=DIR"
        return printable(f"{path}{'' if moved.there(path) else gone}")
    option = printable(str(source.get("option")))
    if source.get("id") in SHIPPED:
        return f"model={source['id']}"
    if option in UNNAMED:
        return "none by itself: name the model that it was saved from"
    return f"none by itself: say model={option}"


def listed(facts: Any) -> str:
    """`a 1, b 2` of the dictionary `{"a": 1, "b": 2}`; a text as it is, anything else as JSON."""
    if isinstance(facts, dict):
        return ", ".join(f"{key} {listed(value)}" for key, value in facts.items())
    return facts if isinstance(facts, str) else json.dumps(facts)


def snapshot_named(cfg: Config) -> str:
    """What `snapshot=` says. Raises InputProblem when it says nothing."""
    if not cfg.snapshot:
        raise InputProblem(
            f"task={cfg.task.name} needs snapshot=DIR, a directory written by task=save."
        )
    return cfg.snapshot


def destination(cfg: Config, folder: Path) -> Path | str:
    """Where a task that writes one snapshot puts it: `out=`, or into the run directory."""
    named = cfg.out if cfg.task.name in WRITING else None
    return store.place(named) if named else folder / "snapshot"


def words(state: State, ids: list[int]) -> str | None:
    """The text of `ids` by the snapshot's own tokenizer file (no code is run), an id without text by its number; None
    without one. Raises InputProblem where its rules, which may be made to harm, cannot be read."""
    from tokenizers import Tokenizer

    rules = state.tokenizer_files.get("tokenizer.json")
    if rules is None:
        return None
    try:
        return in_text(Rules(Tokenizer.from_str(rules.decode("utf-8"))), ids)
    except Exception as problem:  # the library raises plain Exception for rules that it cannot read
        raise InputProblem(f"its tokenizer.json cannot be read: {str(problem)[:200]}") from None


@dataclass(frozen=True)
class Rules:
    """What `Shown` asks of a tokenizer, answered by a tokenizer file alone."""

    rules: Any

    def convert_ids_to_tokens(self, token: int) -> str | None:
        named: str | None = self.rules.id_to_token(token)
        return named

    def decode(self, ids: list[int], **_: Any) -> str:
        """Special tokens are shown, spaces untouched, whatever is asked."""
        return str(self.rules.decode(ids, skip_special_tokens=False))


def text_of(state: State) -> str:
    """The text of row 0, or why there is none."""
    ids = state.token_ids[0][state.attention_mask[0].bool()].tolist()
    try:
        said = words(state, ids)
    except InputProblem as problem:
        return f"({problem}; the token ids are) {ids}"
    return f"(no tokenizer.json in the snapshot; the token ids are) {ids}" if said is None else said
