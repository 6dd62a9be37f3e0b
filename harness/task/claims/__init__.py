"""`task=claims`: what the founding documents assert, settled by measurements of this very run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import machine
from harness.config import Config
from harness.pipeline.finish import Outcome, finish_table
from harness.pipeline.session import Session, one_thread
from harness.report.console import Say
from harness.snapshot.result import UNJUDGED
from harness.task.claims.bench import Bench
from harness.task.claims.registry import ORDER, claim_named


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """All claims, or those of `task.only`; `claims.json` and one page. The verdict is `exact` when
    every one was settled: `refuted` is a result, not a failure."""
    chosen = {name: claim_named(name) for name in cfg.task.only or ORDER}
    session = Session.open(one_thread(cfg), folder, say)
    rows = []
    for name, claim in chosen.items():
        say.stage(name)
        settled = claim.settle(Bench(replace(session)))
        say.done(settled.verdict)
        rows.append(
            {
                "claim": name,
                "verdict": settled.verdict,
                "says": claim.CLAIM,
                "because": settled.because,
                "conditions": settled.conditions,
                "model": session.loaded.source["name"],
                "figures": settled.figures,
            }
        )
    from harness.report import claims

    counts = {v: sum(r["verdict"] == v for r in rows) for v in ("holds", "refuted", "depends")}
    reason = f"{machine.many(len(rows), 'claim')} settled: "
    reason += ", ".join(f"{n} {v}" for v, n in counts.items() if n)
    columns, children = ["claim", "verdict", "says"], [_child(row) for row in rows]
    sections = claims.sections(rows)
    return finish_table(
        session, "claims", rows, sections, UNJUDGED, reason, columns, children=children
    )


def _child(row: dict[str, Any]) -> dict[str, Any]:
    numbers = {
        f"figures/{key}": float(value)
        for key, value in row["figures"].items()
        if isinstance(value, bool | int | float) and abs(value) < float("inf")
    }
    tags = {"claim": row["claim"], "verdict": row["verdict"], "says": row["says"]}
    return {"name": f"claim {row['claim']}: {row['verdict']}", "tags": tags, "metrics": numbers}
