"""Points of a sweep that hold a pruned state: whether each came back as it was saved, and what pruning changed."""

from collections.abc import Iterable
from typing import Any

from harness import machine
from harness.report.badge import allowed_kind, kind
from harness.report.picture import plots
from harness.report.sweep.baseline import CONTROL
from harness.snapshot.result import COMPARED, GOOD
from harness.snapshot.words import tokens_kept, uneven

RESTORE = "restore"  # the column
UNEVEN = "pruned"  # the column of a point that is, although a layer or head of it holds every token
MEAN = "kept_mean"  # the column of tokens kept on average over layers and heads, where these keep other numbers
POLICY = "Nearest policy"  # where a control is beside them, which is none
Row = dict[str, Any]


def came_back(result: Row) -> dict[str, Any]:
    """The verdict on the restore alone, as a column, where there is one beside that on a pruned or quantized state; and
    of a state whose layers or heads keep other numbers of tokens what those that keep the most do not say."""
    block, size = result.get("itself") or {}, result.get("size") or {}
    mine = block.get("against") == "saved" and block.get("verdict")
    told: dict[str, Any] = {RESTORE: str(block["verdict"])} if mine else {}
    few, mean = tokens_kept(result)
    if result.get("pruned") and few and few == size.get("tokens"):
        told[UNEVEN] = True
    return told | ({MEAN: mean} if uneven(few, mean) else {})


def whole(row: Row) -> bool:
    """Whether a point holds all that was read, in every layer and head."""
    return row.get("kept_tokens") == row.get("tokens") and not row.get(UNEVEN)


def completed(rows: list[Row]) -> None:
    """Where one point has the column: of a point that holds all that was read, as it was computed, its restore is
    what was judged; and of one whose layers and heads keep as many, that is the mean."""
    if any(MEAN in row for row in rows):
        for row in rows:
            row.setdefault(MEAN, row.get("kept_tokens"))
    if not any(row.get(RESTORE) for row in rows):
        return
    for row in rows:
        exact = str(row.get("quantize") or "none") == "none"
        row[RESTORE] = row.get(RESTORE) or (exact and once(row)) or None


def once(row: Row) -> str | None:
    """What older versions told in that column of a point that holds all that was read, its codes not told apart."""
    if not whole(row):
        return None
    return str(row["verdict"]) if row["verdict"] in COMPARED else ""


def judged(row: Row) -> bool:
    """Whether its restore is judged apart from what its pruning changed."""
    known = row.get("kept_tokens") is not None and row.get("tokens") is not None
    return bool(row.get(RESTORE)) and known and not whole(row)


def allowed(row: Row) -> bool:
    """Whether what its pruning changed meets what is required of that."""
    return judged(row) and int(row["exit_code"]) == 0


def coded(row: Row) -> bool:
    """Whether its restore is judged apart from what its codes changed, where nothing was pruned."""
    exact = str(row.get("quantize") or "none") == "none"
    return bool(row.get(RESTORE)) and not exact and not judged(row)


def free(row: Row) -> bool:
    """`allowed`, of codes as well."""
    return (judged(row) or coded(row)) and int(row["exit_code"]) == 0


def tone(row: Row) -> str:
    """The colour of a point's verdict: other logits are wrong only where pruning or codes were not to change them."""
    word = str(row.get("outcome") or row["verdict"])
    return allowed_kind(word) if free(row) else kind(word)


def lost(row: Row) -> bool:
    """Whether it did not come back as saved: no budget and no code mends that."""
    return row.get(RESTORE) in ("drifted", "diverged")


def every(rows: list[Row]) -> bool:
    """Whether all points are of this kind, came back, and changed what they may."""
    return bool(rows) and all(allowed(row) and row[RESTORE] in GOOD for row in rows)


def pills(rows: list[Row], words: str) -> list[dict[str, str]]:
    """Both verdicts on such a sweep, as `html.page` has them; empty of another. words: what the points came to."""
    if not rows or not all(free(row) and row[RESTORE] in GOOD for row in rows):
        return []
    done = ["pruning"] * any(map(judged, rows)) + ["quantizing"] * any(map(coded, rows))
    said = f"{all_of(len(rows))} restored as saved" if rows[1:] else "restored as saved"
    return [
        {"text": said, "kind": "good", "sign": "\u2713"},
        {"text": f"{' and '.join(done)}: {words}", "kind": "soft", "sign": ""},
    ]


def all_of(number: int) -> str:
    """`both` of two points, `all 3` of more."""
    return "both" if number == 2 else f"all {number}"


def came(number: int) -> str:
    """That so many points came back, as the beginning of a sentence."""
    who = "the pruned point" if number == 1 else all_of(number)
    return f"{who} came back as saved"


def told(
    rows: list[Row], winners: list[Row], axes: Iterable[str], so_far: str = "", more: str = ""
) -> str:
    """What such a sweep came to, in sentences; empty of another, and of one that keeps the tokens somewhere.
    more: which points to choose, in sentences, the first of which says that none keeps the tokens."""
    if not every(rows) or any(row["verdict"] != "diverged" for row in rows):
        return ""
    number = len(rows)
    first = came(number)
    said = f"{first[0].upper()}{first[1:]}; pruning changes tokens in {'it' if number == 1 else 'each'}, as is allowed."
    if any(row.get("answer") for row in rows):  # which came before how near a point is
        return f"{said} {more}".rstrip()
    known = [row for row in winners if row.get("kl_mean") is not None]
    if len(known) != 1:
        return f"{said} {more.partition('. ')[2]}".rstrip()
    (row,) = known
    name = " ".join(f"{axis}={plots.short(row[axis])}" for axis in axes)
    size = f", {machine.human(row['stored_bytes'])} on disk" if row.get("stored_bytes") else ""
    nearest = POLICY if len({row.get("prune") == CONTROL for row in rows}) == 2 else "Nearest"
    return f"{said} {nearest} to the full cache by mean KL{so_far}: {name} ({row['kl_mean']:.3g} nats{size})."
