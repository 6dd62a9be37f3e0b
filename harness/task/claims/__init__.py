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
                "says": claim.CLAIM,
                "answer": settled.answer,
                "because": settled.because,
                "conditions": settled.conditions,
                "model": settled.model or session.loaded.source["name"],
                "figures": settled.figures,
            }
        )
    from harness.report import claims

    reason = counted([row["verdict"] for row in rows])
    columns, children = ["claim", "verdict", "answer"], [_child(row) for row in rows]
    sections = claims.sections(rows, {name: claim.LAYOUT for name, claim in chosen.items()})
    return finish_table(
        session, "claims", rows, sections, UNJUDGED, reason, columns, children=children, by=columns[:1], word=brief(reason),
        record={"elements": model_rows(session.documents)},
    )  # fmt: skip


def counted(verdicts: list[str]) -> str:
    """How many claims were settled, and how."""
    words = {
        HOLDS: ("holds", "hold"),
        REFUTED: ("is refuted", "are refuted"),
        DEPENDS: ("depends on conditions", "depend on conditions"),
    }
    told = [
        f"{count} {words[verdict][count > 1]}"
        for verdict in words
        if (count := verdicts.count(verdict))
    ]
    return f"{machine.many(len(verdicts), 'claim')} settled: {', '.join(told)}"


def brief(told: str) -> str:
    """What `counted` tells, in a few words: `9 hold, 2 refuted, 8 depend`."""
    said = told.partition(": ")[2].replace(" on conditions", "")
    return said.replace("is refuted", "refuted").replace("are refuted", "refuted")


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
