"""The end of a sweep: `sweep.csv`, `sweep.html`, `sweep.json` with its signature, the MLflow parent run."""

import json
import sys
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
    from harness.report.sweep import cells as answers
    from harness.report.sweep import evaluated, search, seeds, summary, unfinished
    from harness.report.sweep import page as pages
    from harness.report.sweep.variation import varied
    from harness.report.sweep.verdicts import WHY
    from harness.report.terminal import tracked as store
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
        rows = pages.rows(points)
        pages.write(folder, rows, Watch.total)
        ways = search.ways(folder, rows)
        chosen, rows = answers.conclusion(folder, rows), evaluated.completed(folder, rows)
        spread = seeds.told(rows, varied(rows, ways))
        said = summary.said(
            unfinished.diagnosed(folder, rows, WHY), ways, Watch.aim, chosen, spread
        )
        now("recording what it came to")
        again, marked = summary.again(folder), list(summary.winners(rows, ways)[0])
        sought = evaluated.sought(rows, ways)
        alike = seeds.alike(rows, varied(rows, ways), marked)
        tracked = summarise(
            folder, points, rows, said, sought, Watch.aim, fault, again, marked, alike
        )
    record: dict[str, Any] = {"points": Watch.total, "finished": len(rows), "mlflow": tracked}
    if Watch.aim != Watch.total:
        record["asked"] = Watch.aim  # trials of a search
    if waiting := summary.pending(folder, rows):
        record |= {"not_uploaded": waiting, "upload": again}
    record["sealed"] = {
        **{
            table.name: digest_bytes(table.read_bytes())
            for table in (folder / pages.TABLE, folder / pages.CELLS, folder / pages.PAGE)
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
    lines.front(folder, rows, ways)
    print(
        "\n".join(
            summary.closing(folder, rows, Watch.total, aged(points), problem is not None, spread)
        )
    )
    untold = "not_uploaded" in record
    if (why := (tracked or {}).get("reason")) and not untold:
        print(lines.untold(why))
        untold = True
    if tracked and (above := parent.known(folder)).get("uri"):
        for label, words in store.places(above, untold):
            print(f"{label + ':':<13} {words}")
    return max(int(row["exit_code"]) for row in rows)
