"""The fault matrix as a page: who noticed what, what a plain script did, how far the logits moved."""

from html import escape
from math import inf, log10
from typing import Any

from harness.report.html import cell, section

CHECKS = ("validation", "digest", "identity", "logits")
MEANT = (
    "Four checks: validation (is what is stored well formed?), digest (are the bytes those that were written?), "
    "identity (are model and tokenizer those of then?), logits (does the restored state give the next tokens the "
    "scores that it gave?)."
)
FEW = 12  # faults whose checks and causes are told without being asked
NOTE = 30  # characters; a longer cell of the matrix is a sentence
SHADES = {"error": 0.05, "nothing visible": 0.0, "silent drift": 0.15, "silent wrong tokens": 0.3}
NAMED, MISSED, SHIFTED = 0.9, 1.0, 0.3  # what the eye is to see first; the darkest of a shift


def sections(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The matrix, the faults that move no logit, and how to read both."""
    faults = [r for r in rows if r["fault"] != "none"]
    quiet, several = list(filter(still, faults)), len(faults) > len(CHECKS)
    counts = [
        section("How many each check catches", columns=["check", "faults caught", "caught by it alone"],
                rows=_counts(rows)),
        section("What the plain script does", columns=["outcome", "faults"], rows=_plain(rows)),
    ]  # fmt: skip
    still_matter = section(
        "Faults that move no logit beyond the noise, and why they still matter",
        columns=["fault", "named by", "why it matters"],
        rows=[[r["fault"], _named(r), r["why"]] for r in quiet],
        long=len(quiet) > FEW,
    )
    return [
        *counts * several,  # of a few faults the matrix tells them in fewer lines
        section(
            "The matrix",
            text=f"{MEANT} Each check is measured with the other three switched off. Green: it names the "
            "fault; a fault that none names is red itself. The plain script really runs on the same material; pale red is what nobody would "
            "have seen. A strict restore refuses whatever validation, digest, identity or the replay "
            "of the last token names; what is done to the decoder after that is named by its "
            "verdict. The shift is the largest change of any logit, in noise floors measured on the "
            "same healthy session (full recompute and another split of the prefill).",
            svg=_matrix(rows),
            broad=True,
            long=len(rows) > FEW,
        ),
        *[still_matter] * bool(quiet or several),
        section(
            "Numerics or a dirty cache: what the diagnosis says",
            text="The cause that is named from the restored state, its own token buffer and the model of "
            "now, beside the damage that was really done, and the evidence.",
            columns=["fault", "done", "named", "evidence"],
            rows=[[r["fault"], r["expected"], cell(r["cause"] or "nothing", kind=_right(r)), r["evidence"][:200]]
                  for r in rows],
            fold=len(rows) > FEW,
        ),
        section("What the checks said", columns=["fault", "what was done", "first words of the refusal"],
                rows=[[r["fault"], r["what"], (r["said"] or ["-"])[0][:160]] for r in rows],
                fold=len(rows) > FEW),
    ]  # fmt: skip


def still(row: dict[str, Any]) -> bool:
    """Whether no logit moves by more than a noise floor, as the column of shifts has it."""
    return row["shift"] is not None and row["shift"] <= 1


def _named(row: dict[str, Any]) -> str:
    """By which checks a fault is named that moves no logit; the logits themselves are none of them then."""
    said = {"logits": "replay of the last token" if row.get("proof") else "verdict"}
    return ", ".join(said.get(c, c) for c in CHECKS if row[c]) or "nothing"


def _script(row: dict[str, Any]) -> str:
    """What the plain script did, and why nothing of it shows though the logits of the checked line move."""
    hidden = row["fault"] != "none" and row["plain"] == "nothing visible" and not still(row)
    return f"{row['plain']}: {row['why']}" if hidden and row["why"] else str(row["plain"])


def _right(row: dict[str, Any]) -> str:
    return "good" if row["cause"] == row["expected"] else "bad"


def _counts(rows: list[dict[str, Any]]) -> list[list[Any]]:
    faults = [r for r in rows if r["fault"] != "none"]
    return [
        [check, sum(r[check] for r in faults), sum(r[check] and sum(r[c] for c in CHECKS) == 1 for r in faults)]
        for check in CHECKS
    ]  # fmt: skip


def _plain(rows: list[dict[str, Any]]) -> list[list[Any]]:
    return [[o, sum(r["plain"] == o for r in rows if r["fault"] != "none")] for o in SHADES]


def _matrix(rows: list[dict[str, Any]]) -> str:
    heads = (
        "fault",
        "element it hits",
        *CHECKS,
        "strict restore",
        "plain script",
        "shift, in floors",
    )
    head = "".join(f'<th scope="col">{h}</th>' for h in heads)
    body = "".join(
        f"<tr>{''.join(_cell(head, *cell) for head, cell in zip(heads, _cells(r), strict=True))}</tr>"
        for r in rows
    )
    return f'<div class="many matrix cards"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cells(row: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Text, and colour and strength of its ground, below each heading."""
    return [
        (row["fault"], "--bad", MISSED) if _missed(row) else (row["fault"],),
        (_element(row),),
        *(("named" if row[c] else "", "--good", NAMED if row[c] else 0.0) for c in CHECKS),
        (row["strict"], "--good", 0.0),
        (_script(row), "--bad", SHADES.get(row["plain"], 0.0)),
        (_shift(row["shift"]), "--bad", _heat(row["shift"])),
    ]


def _element(row: dict[str, Any]) -> str:
    """The number and name of what is damaged, one of the 13 elements; nothing for the control."""
    return f"{row['element']} {row['element_name']}" if row["element"] else ""


def _cell(head: str, text: str, colour: str = "", strength: float = 0.0) -> str:
    shade = f"color-mix(in srgb, var({colour}) {round(strength * 60)}%, transparent)"
    room = ";white-space:normal;min-width:14rem" * (len(text) > NOTE)
    style = f' style="background:{shade};padding-left:.6rem{room}"' if colour else ""
    return f'<td data-label="{head}"{style}>{escape(text)}</td>'


def _shift(value: float | None) -> str:
    if value is None:
        return "cannot run"
    return "not finite" if value == inf else f"{value:,.2g}" if value < 100 else f"{value:,.0f}"


def _heat(value: float | None) -> float:
    """How dark: nothing where nothing was measured."""
    if value is None:
        return 0.0
    return SHIFTED * (1.0 if value == inf else min(max(log10(max(value, 1e-9)) / 6, 0.0), 1.0))


def _missed(row: dict[str, Any]) -> bool:
    """Whether no check names it, which one that is a fault must be."""
    return row["fault"] != "none" and not any(row[c] for c in CHECKS)
