"""`task=claims`: what the founding documents say of caches, settled by measurements of this very run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from harness import machine
from harness.config import Config
from harness.pipeline.finish import Outcome, finish_table
from harness.pipeline.session import Session, one_thread
from harness.report.terminal.console import Say
from harness.snapshot.manifest import model_rows
from harness.snapshot.result import UNJUDGED
from harness.task.claims.bench import DEPENDS, HOLDS, REFUTED, Bench
from harness.task.claims.registry import ORDER, claim_named


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """All claims, or those of `task.only`; `claims.json` and one page. `refuted` is a result, not a failure."""
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
                "says": claim.says,
                "answer": settled.answer,
                "because": settled.because,
                "conditions": settled.conditions,
                "model": settled.model or session.loaded.source["name"],
                "figures": settled.figures,
            }
        )
    from harness.report import claims

    counts = counted([str(row["verdict"]) for row in rows])
    reason = f"{machine.many(len(rows), 'claim')} settled: {counts}"
    columns, children = ["claim", "verdict", "answer"], [_child(row) for row in rows]
    sections = claims.sections(rows, {name: claim.layout for name, claim in chosen.items()})
    return finish_table(
        session, "claims", rows, sections, UNJUDGED, reason, columns, children=children, by=columns[:1], word=counts,
        record={"elements": model_rows(session.documents)},
    )  # fmt: skip


def counted(verdicts: list[str]) -> str:
    """How many claims were settled, and how: `9 hold, 2 refuted, 8 depend`."""
    labels = {HOLDS: ("holds", "hold"), REFUTED: ("refuted",) * 2, DEPENDS: ("depends", "depend")}
    counts = {verdict: verdicts.count(verdict) for verdict in labels}
    return ", ".join(f"{n} {labels[verdict][n > 1]}" for verdict, n in counts.items() if n)


def _child(row: dict[str, Any]) -> dict[str, Any]:
    numbers = {
        f"figures/{key}": float(value)
        for key, value in row["figures"].items()
        if isinstance(value, bool | int | float) and abs(value) < float("inf")
    }
    tags = {
        "claim": row["claim"],
        "claimed": row["says"],
        "says": row["answer"],
    }
    name, params = f"claim {row['claim']}: {row['verdict']}", {"claim": str(row["claim"])}
    return {"name": name, "tags": tags, "metrics": numbers, "params": params}
