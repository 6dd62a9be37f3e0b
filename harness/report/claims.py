"""The claims as one page: verdicts first, then each with its reason, conditions and figures."""

from typing import Any

from harness.report.html import grouped, section


def sections(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A summary when there is more than one claim, then one block each."""
    summary = section(
        "Verdicts",
        text="Every figure below was measured in this run; a shift is the largest change of any "
        "logit, in noise floors of the same model.",
        columns=["claim", "verdict", "what the founding documents say"],
        rows=[[r["claim"], r["verdict"], r["says"]] for r in rows],
    )
    return [summary] * (len(rows) > 1) + [_one(r) for r in rows]


def _one(row: dict[str, Any]) -> dict[str, Any]:
    said = f"{row['says']} {row['because']}"
    if row["conditions"]:
        said += f" Conditions: {row['conditions']}; model {row['model']}."
    return section(
        f"{row['claim']}: {row['verdict']}", text=said, columns=["figure", "value"],
        rows=[[k.replace("_", " "), grouped(v)] for k, v in row["figures"].items()],
    )  # fmt: skip
