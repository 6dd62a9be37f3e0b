"""What the referee says: a page, and the same in Markdown to paste into an issue."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import machine
from harness.config.literal import whole
from harness.report.badge import SIGNS, kind
from harness.report.html import cell, headed, section
from harness.report.names import plain
from harness.report.referee import cases, unasked
from harness.report.terminal.console import number
from harness.snapshot.result import UNJUDGED, counted, write_text

COLUMNS = ["case", "verdict", "reused_tokens", "prompt_tokens", "max_abs_diff", "noise_floor",
           "hit_diff", "oracle_error", "plain_error", "kl_max", "top1_agreement", "first_beyond", "bad", "repeats"]  # fmt: skip
HEADS = {
    "max_abs_diff": "largest difference",
    "hit_diff": "largest difference from the hit",
    "kl_max": "largest KL",
    "top1_agreement": "same top token",
}
CONSOLE = ["case", "verdict", "reused_tokens", "max_abs_diff", "noise_floor", "bad", "repeats"]
GOOD = ("exact", "equivalent")
MEANT = {  # how a case comes back, where the run has nothing more to say of it
    "hit": "the same prompt asked again, its keys and values reused",
    "restored": "stored, loaded again, and gone on from",
    "restarted": "stored, and loaded again after a restart of the engine",
    "trimmed": "of a longer prompt, cut back to this one",
    "host_cache": "out of the engine's own cache in host memory",
}
BLIND = (
    "Seen are the most probable tokens of each step only; `seen` is the smallest share of the "
    "probability that both runs list. What differs below it is not seen."
)


def sections(rows: list[dict], floors: dict[str, dict], known: dict, where: dict) -> list[dict]:
    """Blocks of the page. floors: comparisons of cold runs by composition; known: what was judged."""
    shown = [
        [_coloured(r) if c == "verdict" else counted(c, r.get(c)) for c in COLUMNS] for r in rows
    ]
    heads = [HEADS.get(c) or plain(c) for c in COLUMNS]
    why = [[r["case"], r.get("evidence") or _how(r["case"]), r["reason"]] for r in rows]
    facts = [*known.items(), *((k, where[k]) for k in ("cpu", "cores", "platform", "python"))]
    drawn = cases.panel(rows)
    said = summary(rows) + unasked.sentence(known)
    picture = [section("How far each went", text=cases.TEXT, panels=[drawn], headline=said)] * bool(
        drawn
    )
    return [
        *picture,
        section("Cases", headline="" if drawn else said, text="The largest difference may be twice the noise floor and, where float64 was asked, the error against it twice that of runs without a cache.", columns=heads, rows=shown),
        section("Why", columns=["case", "how", "reason"], rows=why, cards=True),
        section("Noise floor", text="Cold runs of other composition against the first cold run. Twice the largest is allowed.",
                columns=["composition", *(HEADS[c] for c in ("max_abs_diff", "kl_max", "top1_agreement"))], rows=[list(r.values()) for r in floor_rows(floors)]),
        section("What this cannot see", text=BLIND, columns=["case", "steps", "seen"], rows=[[r["case"], r.get("steps"), r.get("seen")] for r in rows], fold=True),
        section("What was judged", columns=["what", "value"], rows=[list(f) for f in facts]),
    ]  # fmt: skip


def scan_sections(rows: list[dict], conclusion: str) -> list[dict]:
    """Where a hit goes wrong, over reused lengths; nothing where nothing was scanned."""
    if not rows:
        return []
    return [section("Where it goes wrong", text=conclusion, columns=list(rows[0]), rows=[list(r.values()) for r in rows])]  # fmt: skip


def script_sections(scripts: dict[str, str]) -> list[dict]:
    """Programs that show what is wrong without this harness, by case."""
    return [section(f"{name}, without this harness", pre=text) for name, text in scripts.items()]


def floor_rows(floors: dict[str, dict]) -> list[dict[str, Any]]:
    keys = ("max_abs_diff", "kl_max", "top1_agreement")
    return [{"composition": name, **{k: m[k] for k in keys}} for name, m in floors.items()]


def write(
    folder: Path, title: str, blocks: list[dict], verdict: str, reason: str, typed: Sequence[str]
) -> None:
    """`referee.md`, which is handed on alone: with the command, which was `typed`."""
    blocks = [*blocks, section("To see it again", pre=whole(typed))]
    write_text(folder / "referee.md", markdown(title, blocks, verdict, headed(blocks, reason)))


def markdown(title: str, blocks: list[dict], verdict: str, reason: str) -> str:
    """The page's blocks as GitHub shows them."""
    lines = [f"## {title}: {verdict}", "", reason, ""]
    for block in blocks:
        lines += [f"### {block['title']}", ""]
        if block.get("text"):
            lines += [block["text"], ""]
        if block.get("rows"):
            lines += [_line(block["columns"]), _line(["---"] * len(block["columns"]))]
            lines += [_line([_plain(v) for v in row]) for row in block["rows"]]
            lines.append("")
        if block.get("pre"):
            lines += ["```", block["pre"], "```", ""]
    return "\n".join(lines)


def _how(case: str) -> str:
    """What a case brings back, of which the run says nothing more."""
    option = case.removeprefix("hit_")
    return MEANT.get(case) or f"the same prompt asked again, in cache={option}" * (option != case)


def _coloured(row: dict) -> Any:
    """A verdict in its colour; a control is meant to fail, and what nobody judged is neither."""
    verdict = _seen(row)
    if not row["control"] or verdict == UNJUDGED:
        return cell(verdict, kind=kind(verdict), sign=SIGNS[verdict])
    caught = verdict not in GOOD
    said = f"{verdict}, as it must" if caught else f"{verdict}, though it is wrong"
    return cell(said, kind="good" if caught else "bad", sign=SIGNS[verdict])


def _seen(row: dict) -> str:
    """A control's verdict as it was measured, also where it takes every other one away."""
    return (row.get("was") or row["verdict"]) if row["control"] else row["verdict"]


def summary(rows: list[dict]) -> str:
    """What came out of the cache, and what the controls did, in two sentences that a stranger reads."""
    own, controls = ([r for r in rows if r["control"] is c] for c in (False, True))
    good = [r["case"] for r in own if r["verdict"] in GOOD]
    open_ = [r["case"] for r in own if r["verdict"] == UNJUDGED]
    wrong = [r["case"] for r in own if r["case"] not in (*good, *open_)]
    give = "gives" if len(good) == 1 else "give"
    told = f"{len(good)} of {machine.many(len(own), 'case')} {give} out of the cache what a run without it gives"
    told += f", {len(wrong)} {'does' if len(wrong) == 1 else 'do'} not ({', '.join(wrong)})" * bool(
        wrong
    )
    told += f", of {len(open_)} nobody can tell ({', '.join(open_)})" * bool(open_)
    caught = sum(_seen(r) not in (*GOOD, UNJUDGED) for r in controls)
    return f"{told}. Of {machine.many(len(controls), 'wrong state')} tried as a control, {caught} {'was' if caught == 1 else 'were'} told apart, as each must be."


def _plain(value: Any) -> str:
    text = value["text"] if isinstance(value, dict) else number(value)
    return text.replace("|", "\\|").replace("\n", " ")


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
