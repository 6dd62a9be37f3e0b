"""The end of a sweep: `sweep.csv`, `sweep.html`, `sweep.json` with its signature, the MLflow parent run."""

import json
import sys
from dataclasses import replace
from typing import Any

from harness.cli import lines, remote
from harness.cli.done import ended, finished, read_key
from harness.cli.point import aged
from harness.cli.sweep import TOLD, Watch
from harness.errors import HarnessError
from harness.snapshot import signature
from harness.snapshot.digest import digest_bytes
from harness.snapshot.record import PENDING
from harness.snapshot.result import write_text

RECORD = "sweep.json"
SIGNATURE = RECORD + signature.SUFFIX


def conclude() -> int:
    """After the last point: `sweep.csv`, `sweep.html`, the MLflow parent run; the exit code."""
    folder = Watch.folder
    remote.end()
    if folder is None:
        return 0
    (folder / TOLD).unlink(missing_ok=True)
    from harness.present import sweep as shown
    from harness.report import sweep as page
    from harness.report.terminal import tracked as store
    from harness.report.terminal.console import Say
    from harness.results import points as facts
    from harness.track import parent, summarise, upload

    if not (points := finished(folder)):
        return 0
    waited = [p for p in points if ended(p) < Watch.began and (p / PENDING).exists()]
    problem = sys.exc_info()[1]  # what ends the sweep says how to go on
    fault = isinstance(problem, HarnessError)
    with lines.passing("the whole sweep") as line:
        now = line.stage if line else lambda _: None
        now("recording its points")
        upload(p for p in points if (p / PENDING).exists())  # a server that was away may be back
        sent = sum(not (p / PENDING).exists() for p in waited)
        now("its table and page")
        rows = facts.rows(points)
        sweep = page.write(folder, rows, Watch.total)
        now("recording what it came to")
        again = shown.again(folder)
        tracked = summarise(
            folder, points, [*sweep.points], shown.described(replace(sweep, asked=Watch.aim or sweep.asked)), sweep.sought,
            Watch.aim, fault, again, sweep.marked, sweep.alike,
        )  # fmt: skip
    record: dict[str, Any] = {"points": Watch.total, "finished": len(rows), "mlflow": tracked}
    if Watch.aim != Watch.total:
        record["asked"] = Watch.aim  # trials of a search
    if waiting := shown.pending(folder, rows):
        record |= {"not_uploaded": waiting, "upload": again}
    record["sealed"] = {
        **{
            table.name: digest_bytes(table.read_bytes())
            for table in (folder / facts.TABLE, folder / facts.CELLS, folder / facts.PAGE)
            if table.is_file()
        },
        "records": {p.name: read_key(p / "record.json", "id") for p in points},
    }
    text = json.dumps(record, indent=2) + "\n"
    write_text(folder / RECORD, text)
    (folder / SIGNATURE).unlink(missing_ok=True)
    if Watch.sign:
        (folder / SIGNATURE).write_bytes(signature.sign(text.encode(), Watch.sign))
    before = sum(ended(point) < Watch.began for point in points)
    if before == len(points) and problem is None:
        Watch.keep()
    if before:
        print(lines.resumed(before, len(points) - before, sent))
    if deleted := (tracked or {}).get("deleted"):
        print(lines.deleted(len(deleted)))
    lines.closing(Say(), shown.closing(sweep, aged(points), problem is not None))
    untold = "not_uploaded" in record
    if (why := (tracked or {}).get("reason")) and not untold:
        print(lines.untold(why))
        untold = True
    if tracked and (above := parent.known(folder)).get("uri"):
        for label, words in store.places(above, untold):
            print(f"{label + ':':<13} {words}")
    return max(int(row["exit_code"]) for row in rows)
