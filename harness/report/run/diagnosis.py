"""The diagnosis on the page: the cause, the evidence, and the error of K/V by layer and token."""

from html import escape
from math import ceil, log10
from typing import Any

from harness.snapshot.elements import BY_NAME
from harness.snapshot.words import on_purpose

WIDE, CELL, LEFT = 480, 18, 56  # legible at 400 pixels
COLUMNS = 180  # more tokens than that share a column, which shows the largest error among them
DECADES, FINE = 6, 2  # noise floors of a million are as dark as it gets; a hundred steps of codes
PALE, CLEAR = 0.05, 0.3  # of the colour: up to one of its units, and from there on at least


NOISE = ("noise floors", "noise floors of the layer; faint is noise")
HEALTHY = 8.0  # noise floors that a row may be off by with nothing wrong, as `compare/picture.py` allows it
# Of codes: eight floors of theirs are one step.
STEP = 8.0
STEPS = ("steps of the codes", "steps of the codes that the layer is kept as (eight of its noise floors, where "
         "those are more); faint is up to one step, which coding costs")  # fmt: skip


def sections(told: dict[str, Any] | None, coded: bool = False) -> list[dict[str, Any]]:
    """One block, with a picture where K/V could be computed anew; nothing where nothing is wrong. coded: K/V
    are kept as codes."""
    if not told:
        return []
    first = {name: f"first {name}" for name in ("layer", "head", "token")}
    names = {"cause": "cause", "element": "element", **first}
    rows = [[said, numbered(told[k])] for k, said in names.items() if told.get(k) is not None]
    if ", every head, " in told["evidence"]:
        rows = [["heads", "every one"] if said == "first head" else [said, v] for said, v in rows]
    if on_purpose(told):  # the text says all of it
        rows = []
    picture = told.get("picture")
    said = f"{told['evidence']}."
    if not picture:
        return [{"title": "Diagnosis", "text": said, "columns": ["what", "value"], "rows": rows}]
    coded = coded or told["evidence"].startswith("quantized")
    unit, meant = STEPS if coded else NOISE
    if coded:
        picture = [[worst / STEP for worst in row] for row in picture]
    columns = ["what", "value"]
    highest = max((worst for row in picture for worst in row), default=0.0)
    sound = (
        on_purpose(told) or told.get("cause") == "rounding"
    )  # nothing is wrong with what was kept
    if highest <= (HEALTHY if sound and not coded else 1):
        near = f"{highest:.2g} of a step" if coded else "the noise"
        said += f" What is kept lies within {near} of what the token buffer gives on this model."
        return [{"title": "Diagnosis", "text": said, "columns": columns, "rows": rows}]
    said += (
        " Each cell: how far a kept token's K/V are from what the token buffer gives on this model, "
        f"in {meant}. A recurrent layer has one cell. Layers, heads and tokens are counted from 0."
    )
    decades = FINE if coded else DECADES
    drawing = {"panels": [drawn(picture, unit, decades)], "legend": scale(unit, decades)}
    return [{"title": "Diagnosis", "text": said, "columns": columns, "rows": rows, **drawing}]


def scale(unit: str, decades: int) -> str:
    """What the shades of `drawn` stand for, as HTML."""
    steps = [(1.0, "up to 1"), *((10.0**n, f"{10.0**n:,.0f}") for n in (decades / 2, decades))]
    return "".join(
        '<span><b style="color:var(--bad)"><svg viewBox="0 0 24 10"><rect width="24" height="10" stroke="currentColor" '
        f'fill="currentColor" fill-opacity="{strength(worst, decades):.2f}"/></svg></b> {said}'
        f"{f' {unit}, and more' * (worst == 10.0**decades)}</span>"
        for worst, said in steps
    )


def numbered(value: Any) -> Any:
    """The name of an element with its number, as everywhere."""
    return f"{BY_NAME[value].number} {value}" if value in BY_NAME else value


def drawn(picture: list[list[float]], unit: str = NOISE[0], decades: int = DECADES) -> str:
    """An `<svg>` of layers (down) by kept tokens (across), darker where further from the noise, up to so many
    decades."""
    tokens = max((len(row) for row in picture), default=0) or 1
    span = ceil(tokens / COLUMNS)
    width = (WIDE - LEFT) / ceil(tokens / span)
    parts = []
    for layer, row in enumerate(picture):
        y = layer * CELL
        parts.append(f'<text x="0" y="{y + 14}">layer {layer}</text>')
        for start in range(0, len(row), span):
            worst = max(row[start : start + span])
            said = f"layer {layer}, token {start}: {worst:.3g} {unit}"
            x, shade = LEFT + start // span * width, strength(worst, decades)
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{CELL - 1}" '
                f'fill="var(--bad)" fill-opacity="{shade:.2f}"><title>{escape(said)}</title></rect>'
            )
    high = len(picture) * CELL
    parts.append(f'<text x="{LEFT}" y="{high + 14}">token 0 to {tokens - 1}</text>')
    return (
        f'<svg role="img" aria-label="Error of K/V, layers down, kept tokens across" '
        f'viewBox="0 0 {WIDE} {high + 20}" font-size="13" fill="currentColor">'
        f"{''.join(parts)}</svg>"
    )


def strength(worst: float, decades: int = DECADES) -> float:
    """`PALE` for one unit (noise floor or step of codes) and less, `CLEAR` right above, 1 for `decades` more."""
    if worst <= 1:
        return PALE
    return min(CLEAR + (1 - CLEAR) * log10(worst) / decades, 1.0)
