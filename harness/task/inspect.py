"""`task=inspect`: a snapshot as a person wants to see it. Loads no model; verifies every byte."""

from pathlib import Path
from typing import Any

from harness import machine
from harness.config import Config
from harness.pipeline.environment import environment
from harness.pipeline.finish import Outcome
from harness.pipeline.snapshot import listed, needs, snapshot_named, text_of
from harness.report.terminal.console import Say
from harness.save import leftovers, store
from harness.snapshot import history
from harness.snapshot.elements import DIGEST, called
from harness.snapshot.result import UNJUDGED
from harness.snapshot.state import State
from harness.snapshot.words import spanned

ELEMENT_COLUMNS = ["#", "element", "kept as", DIGEST, called("layer_norm", "digest")]
RECORD = ("inspect.json", "inspect.json")  # a link of the page: its name, its target
EACH = "bytes of each"
SHOWN = 2000  # characters of text at most


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Needs `snapshot=DIR`. Leaves `inspect.json` and `report.html` in the run directory."""
    from harness.report import footer, html
    from harness.report.terminal import console
    from harness.snapshot.result import write_json, write_text

    made = {"environment": environment(cfg, "none", "none")}
    if Path(snapshot_named(cfg)).is_file():
        return _foreign(Path(snapshot_named(cfg)), folder, say, made)
    source = store.place(snapshot_named(cfg))
    if left := leftovers.beside(source):
        say.line(left)
    say.stage(f"read {source}")
    if (envelope := store.public(source)) and store.current().key is None:
        return _public(envelope, folder, say, made)
    state, manifest = store.load(source)
    say.done("every byte verified")
    said = text_of(state)
    held = ("bytes on disk, own files", f"{store.stored_bytes(source):,}")
    facts, layers = [*needs(state, manifest), *_owners(manifest), held], layer_rows(state)
    elements = [
        [
            e["number"],
            e["name"],
            e["kept_as"],
            e["digest"][:16],
            _weights(e, manifest["documents"])[:16],
        ]
        for e in manifest["elements"]
    ]
    digests = [[*row[:3], *(html.cell(d, kind="digest") for d in row[3:])] for row in elements]
    write_json(folder / "inspect.json", {"text": said, "facts": dict(facts), "layers": layers})
    columns = ["layer", "kind", "window", "segments", "seen", "kept", "first", "last", EACH]
    page = html.page(
        _titled(str(source)),
        [
            html.section("The text so far", pre=said),
            html.section("What it is", columns=["what", "value"], rows=[list(f) for f in facts]),
            html.section("The 13 elements", columns=ELEMENT_COLUMNS, rows=digests),
            html.section(
                "Layers",
                columns=columns,
                rows=[list(map(html.grouped, row)) for row in folded(layers)],
            ),
            *footer.sections(made, folder),
        ],
        "intact",
        _whole(state, manifest),
        links=[
            *html.link("manifest of the snapshot", Path(source) / "manifest.json", folder),
            RECORD,
        ],
        under=footer.under(made),
    )
    write_text(folder / "report.html", page)
    say.line(said if len(said) <= SHOWN else f"... {said[-SHOWN:]}")
    say.line()
    console.tabled(say, "What it is", ["what", "value"], [list(f) for f in facts])
    say.line()
    console.tabled(say, "The 13 elements", ELEMENT_COLUMNS, elements)
    say.line()
    console.tabled(say, "Layers", columns, folded(layers))
    return Outcome(0, UNJUDGED, str(folder), "every byte matches its digest")


def _whole(state: State, manifest: dict[str, Any]) -> str:
    """What it holds, for whoever reads one sentence."""
    whole = state.kept_tokens == state.tokens and not state.pruned
    kept = "all of them kept" if whole else history.kept(state)
    config = manifest["documents"].get("model_config", {}).get("config", {})
    family = f" of {config.get('model_type')}" * bool(config.get("model_type"))
    layers = machine.many(len(state.layers), "layer")
    return f"The state after {machine.many(state.tokens, 'token')}, {kept} in {layers}{family} ({machine.human(state.kv_bytes)} of K/V, {manifest['dtype']}): every byte matches its digest."


def _owners(manifest: dict[str, Any]) -> list[tuple[str, str]]:
    """The folders of other snapshots, seen from its own, that hold a part of it, each with its id."""
    told = [f"{row['place']} ({row['snapshot'][:16]})" for row in manifest["lineage"]]
    return [("takes files from", ", ".join(told))] * bool(told)


def _titled(source: str) -> str:
    """A run's own snapshot by the name of the run's folder."""
    above, _, name = source.rstrip("/").rpartition("/")
    run = above.rpartition("/")[2]
    return f"Snapshot of {run}" if name == "snapshot" and run else f"Snapshot {name}"


def _weights(element: dict[str, Any], documents: dict[str, Any]) -> str:
    """The digest of the weights, as a refused restore and `task=diff` name it, where only that is kept."""
    document = documents.get(element["name"])
    if element["kept_as"] != "digest" or not isinstance(document, dict):
        return ""
    return str(document.get("digest") or "")


def _foreign(path: Path, folder: Path, say: Say, made: dict[str, Any]) -> Outcome:
    """What another program saved, and which of the 13 elements are not in it."""
    from harness.engine import saved
    from harness.report import footer, html
    from harness.report.terminal import console
    from harness.snapshot.elements import ELEMENTS
    from harness.snapshot.result import write_json, write_text

    say.stage(f"read {path}")
    there = saved.read(path)
    say.done(there.kind)
    facts = [["what", there.kind], *([k, listed(v)] for k, v in there.facts.items())]
    inside = {True: "yes", False: "no"}
    elements = [[e.number, e.name, inside[e.name in there.holds], e.meaning] for e in ELEMENTS]
    columns = ["#", "element", "in the file", "what it is"]
    rows = [[*r.values()] for r in there.layers]
    keys = ("kind", "facts", "layers", "tokens", "lacks")
    write_json(folder / "inspect.json", {key: getattr(there, key) for key in keys})
    reason = f"{there.kind}: {len(there.lacks)} of 13 elements are not in it"
    said = f"{reason}; its keys and values cannot be verified, it has no digests"
    sections = [
        html.section("What it is", columns=["what", "value"], rows=facts),
        html.section("The 13 elements", columns=columns, rows=elements),
        html.section("Layers", columns=["layer", "kind", "shape", "dtype"], rows=rows),
    ]
    write_text(
        folder / "report.html",
        html.page(
            path.name,
            [*sections, *footer.sections(made, folder)],
            reason=f"{said}.",
            links=[RECORD],
            under=footer.under(made),
        ),
    )
    console.tabled(say, "What it is", ["what", "value"], facts)
    say.line()
    console.tabled(say, "The 13 elements", columns, elements)
    say.line(said)
    return Outcome(0, UNJUDGED, str(folder), reason)


def _public(envelope: dict[str, Any], folder: Path, say: Say, made: dict[str, Any]) -> Outcome:
    """What an encrypted snapshot shows to somebody without the key."""
    from harness.report import footer, html
    from harness.report.terminal import console
    from harness.snapshot.result import write_json, write_text

    say.done("encrypted: shown is what anybody can see")
    frame = envelope["encryption"]
    facts = [
        ("id", envelope["id"]),
        ("format version", envelope["format_version"]),
        ("encrypted with", frame["cipher"]),
        ("key", frame["key"]),
        ("takes files from", ", ".join(str(r.get("place")) for r in envelope["lineage"]) or None),
    ]
    rows = [[row["file"], html.grouped(row["nbytes"])] for row in envelope["files"]]
    write_json(folder / "inspect.json", {"public": dict(facts), "files": envelope["files"]})
    public = [list(f) for f in facts]
    sections = [
        html.section("What anybody can see", columns=["what", "value"], rows=public),
        html.section("Files", columns=["file", "bytes, encrypted"], rows=rows),
    ]
    write_text(
        folder / "report.html",
        html.page(
            f"Snapshot {envelope['id'][:16]}",
            [*sections, *footer.sections(made, folder)],
            reason="Encrypted: this is what anybody can see. The rest needs its key, and nothing was verified.",
            links=[RECORD],
            under=footer.under(made),
        ),
    )
    for title, columns, table in (
        ("What anybody can see", ["what", "value"], [[k, str(v)] for k, v in facts]),
        ("Files", ["file", "bytes, encrypted"], [[f, n["text"]] for f, n in rows]),
    ):
        console.tabled(say, title, columns, table)
        say.line()
    say.line("The rest needs decrypt=KEYFILE. Nothing was verified.")
    return Outcome(0, "unjudged", str(folder), "encrypted: nothing was verified")


def layer_rows(state: State) -> list[dict[str, Any]]:
    """Sizes per layer; positions are those of row 0, of all its KV heads."""
    rows = []
    for layer in state.layers:
        positions = layer.positions[0].flatten().unique() if layer.segments else None
        rows.append(
            {
                "layer": layer.index,
                "kind": layer.kind,
                "window": layer.window,
                "segments": len(layer.segments),
                "seen": layer.seen,
                "kept": layer.kept,
                "first": int(positions[0]) if positions is not None and len(positions) else None,
                "last": int(positions[-1]) if positions is not None and len(positions) else None,
                "bytes": layer.nbytes,
            }
        )
    return rows


def folded(layers: list[dict[str, Any]]) -> list[list[Any]]:
    """Rows of `layer_rows` as a table: one for all that are alike, numbered as a span, the order that of their first."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    for number, *rest in (row.values() for row in layers):
        alike.setdefault(tuple(rest), []).append(number)
    return [[spanned(numbers), *rest] for rest, numbers in alike.items()]
