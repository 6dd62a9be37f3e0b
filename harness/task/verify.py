"""`task=verify`: is this snapshot whole? Every fault in one table; no model is loaded."""

import time
from pathlib import Path
from typing import Any

from harness import machine
from harness.compare.identity import told, waived_earlier
from harness.config import Config
from harness.errors import SnapshotInvalid, mending
from harness.pipeline.finish import Outcome, finish_page, shown
from harness.pipeline.snapshot import Stored, snapshot_named
from harness.report import html
from harness.report.terminal.console import Say, tabled
from harness.save import leftovers, store
from harness.save.lineage import Siblings
from harness.snapshot.result import UNJUDGED

BYTES = (
    "Its bytes were compared, and nothing was run: whether its keys and values give the logits that were stored with "
    "them is asked where it is loaded (task=resume, harness.load_state)."
)


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Needs `snapshot=DIR`. Exit 0 when every byte is as it was written, 3 with every fault found,
    2 when there is no snapshot there."""
    snapshot = snapshot_named(cfg)
    say.stage(f"verify {snapshot}")
    start = time.perf_counter()
    with store.fetched(snapshot) as source:
        faults = store.faults(source)
        seconds = time.perf_counter() - start
        record: dict[str, Any] = {
            "verdict": "refused" if faults else UNJUDGED,
            "reason": f"{machine.many(len(faults), 'fault')}: {faults[0]}"
            if faults
            else "every byte matches its digest",
            "time_s": {"verify": seconds},
            "faults": faults,
            "signed_by": None if faults else store.signer(source),
        }
        try:
            manifest = store.read_manifest(source)
            size = store.stored_bytes(source)
        except SnapshotInvalid:
            manifest = None
    say.done(machine.many(len(faults), "fault") if faults else record["reason"])
    sections, waived = [], ""
    if manifest:
        record["snapshot"] = Stored(snapshot, manifest).block()
        record["elements"] = manifest["elements"]
        record["size"] = {k: manifest[k] for k in ("tokens", "kept_tokens", "kv_bytes")}
        record["size"]["stored_bytes"] = size
        rows = [
            [r["file"], html.grouped(r["nbytes"]), _owner(manifest, r["file"])]
            for r in manifest["files"]
        ]
        rest = size - sum(
            r["nbytes"] for r in manifest["files"] if _owner(manifest, r["file"]) == "itself"
        )
        rows += [["manifest and tokenizer", html.grouped(rest), "itself"]] * (rest > 0)
        waived = told(waived_earlier(manifest["documents"]))
        signed = f", signed by {record['signed_by']}" * bool(record["signed_by"])
        what = f"Snapshot {manifest['id']}: {machine.many(manifest['tokens'], 'token')}, {machine.human(size)} on disk{signed}."
        if needed := _needed(manifest, snapshot):
            what += f" It {needed.replace(':', '', 1)}."
        sections.append(html.section("What was verified", text=f"{what} {BYTES}"))
        sections.append(html.section("Payload", columns=["file", "bytes", "held by"], rows=rows))
    numbered = [[i, fault] for i, fault in enumerate(faults, 1)]
    if faults:
        sections.insert(0, html.section("Faults", columns=["#", "fault"], rows=numbered))
    outcome = finish_page(cfg, folder, say, record, sections, 3 if faults else 0)
    if faults:
        say.line(f"damaged: {shown(snapshot)}, {record['reason']}")
        tabled(say, f"Faults of {snapshot}", ["#", "fault"], numbered)
        say.line(mending(faults))
    else:
        by = f", signed by {record['signed_by']}" if record["signed_by"] else ""
        files = machine.many(len(manifest["files"]) if manifest else 0, "file")
        words = len(manifest["tokenizer_files"]) if manifest else 0
        files += f" and of {words} of its tokenizer" * bool(words)
        what = f"every byte of its {files} matches its digest{by}"
        say.line(f"intact: {shown(snapshot)}, {what} (snapshot {record['snapshot']['id'][:16]})")
        if manifest and (needed := _needed(manifest, snapshot)):
            say.line(needed)
        if waived:
            say.line(waived)
        say.line(BYTES)
    if left := leftovers.beside(store.place(snapshot)):
        say.line(left)
    say.line(f"report: {shown(folder)}/report.html")
    return outcome


def _needed(manifest: dict[str, Any], snapshot: str) -> str:
    """Which other snapshots hold a part of it, so that it cannot be moved or kept without them; empty for none."""
    above = str(shown(snapshot)).rstrip("/").rpartition("/")
    siblings = Siblings(Path(snapshot).absolute().parent)
    named = ((siblings.find(row["snapshot"], row["place"]), row) for row in manifest["lineage"])
    beside = sorted({there.name if there else row["place"] for there, row in named})
    places = ", ".join(f"{above[0]}{above[1]}{place}" for place in beside)
    words = sum(file.startswith("tokenizer/") for file in _taken(manifest))
    files = machine.many(sum(row["file"] in _taken(manifest) for row in manifest["files"]), "file")
    tokenizer = f" and {words} of the tokenizer" * bool(words)
    mend = "task=save compact=true makes one that needs no other"
    return f"needs: {places} beside it, for {files} of K/V{tokenizer} ({mend})" if places else ""


def _taken(manifest: dict[str, Any]) -> set[str]:
    return {file for row in manifest["lineage"] for file in row["files"]}


def _owner(manifest: dict[str, Any], file: str) -> str:
    for row in manifest["lineage"]:
        if file in row["files"]:
            return f"{row['place']} ({row['snapshot'][:16]})"
    return "itself"
