"""What a pruned run kept of its prompt: every token, those that were dropped struck through."""

from html import escape
from typing import Any

from harness import machine


def sections(kept: dict[str, Any]) -> list[dict[str, Any]]:
    """One block; none where nothing was dropped, or where it is not known what. kept: the block of the record."""
    if not kept or min(kept["held"]) == kept["heads"]:
        return []
    half, left = len(kept["tokens"]) // 2, kept["left_out"]
    spans = [_token(*pair, kept["heads"]) for pair in zip(kept["tokens"], kept["held"])]
    if left:
        spans.insert(
            half, f' <span class="soft">... {machine.many(left, "token")} left out ...</span> '
        )
    shown = kept["held"]
    whole, gone = (sum(many == n for many in shown) for n in (kept["heads"], 0))
    part = len(shown) - whole - gone
    told = f"{whole} of {'the ' * bool(left)}{len(shown)} tokens{' shown' * bool(left)} are held whole, {gone} dropped"
    told += f", {part} held by some of the {kept['heads']} KV heads of all layers" * bool(part)
    legend = "<span>held</span><span><u>held by some heads</u></span><span><s>dropped</s></span>"
    return [
        {
            "title": "What was kept",
            "text": f"{told}.",
            "legend": legend
            if part
            else legend.replace("<span><u>held by some heads</u></span>", ""),
            "svg": f'<p class="strip">{"".join(spans)}</p>',
        }
    ]


def _token(text: str, held: int, heads: int) -> str:
    word = text.strip(" ")
    shown = escape(word.replace("\n", "\u21b5").replace("\t", "\u21e5")) or "\u2423"
    apart = " " * (text[:1] == " ")
    if held == heads:
        return f"{apart}{shown}"
    kind, said = ("u", f"in {held} of {heads} KV heads") if held else ("s", "dropped")
    return f'{apart}<{kind} title="{said}">{shown}</{kind}>'
