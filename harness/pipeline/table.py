"""The end of a task whose result is a table: NAME.json, result.json, a page, MLflow with children."""

from typing import Any

from harness.pipeline.finish import Outcome, completed, kept, sealed
from harness.snapshot.result import worse, write_json, write_text

NOTHING_STORED = {"id": None, "path": None, "format": None, "format_version": None}


def conclude_table(
    session: Any,
    name: str,
    rows: list[dict[str, Any]],
    sections: list[dict[str, Any]],
    verdict: str,
    reason: str,
    columns: list[str],
    children: list[dict[str, Any]] = (),
    record: dict[str, Any] | None = None,
    shown: list[dict[str, Any]] | None = None,
) -> Outcome:
    """Write `rows` as NAME.json beside `result.json`, draw `sections`, show `columns`.

    children: one MLflow run each below this run's own: `name`, `tags`, `metrics`. record: further
    fields of `result.json`. shown: rows for the console instead of `rows`.
    Exit code 1 when the verdict is worse than `compare.require`.
    """
    from harness import track
    from harness.report import console, html

    cfg, folder, say = session.cfg, session.folder, session.say
    size = {"tokens": 0, "kept_tokens": 0, "kv_bytes": 0, "stored_bytes": 0}
    given = {"size": size, "snapshot": NOTHING_STORED, "elements": [], "text": {}, **(record or {})}
    result = completed(session, {"verdict": verdict, "reason": reason, **given})
    say.stage("record")
    write_json(folder / f"{name}.json", rows)
    good = not worse(verdict, result["required"])
    page = html.page(cfg.name, sections, verdict, reason, good)
    write_text(folder / "report.html", page)
    result["mlflow"], problem = sealed(cfg, folder, result)
    problem = problem or track.children(cfg.track, cfg.runs_dir, result["mlflow"], list(children))
    if problem:
        say.problem(f"harness: {problem} {kept(folder)}")
    say.done(result["folder"])
    if not say.quiet:
        cells = [[row.get(c) for c in columns] for row in shown or rows]
        say.out.print(console.table(name, columns, cells))
        say.out.print()
    say.line(f"verdict:      {verdict.upper()}: {reason}")
    say.line(f"report:       {result['folder']}/report.html")
    return Outcome(0 if good else 1, verdict, str(folder), reason)
