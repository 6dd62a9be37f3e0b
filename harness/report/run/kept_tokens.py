"""What a pruned run kept of its prompt: every token, those that were dropped struck through."""

from html import escape
from typing import Any

from harness import machine
from harness.report.names import plain
from harness.snapshot.words import fewer, of_kept, tokens_kept, uneven


def share(some: int, of: int, unit: str = "") -> str:
    """`48 of 97 tokens (49.5%)`."""
    return f"{some:,} of {of:,}{unit and ' '}{unit} ({some / of:.1%})"


def whole(result: dict[str, Any]) -> int | None:
    """Bytes of keys and values that the full cache of a record has, uncoded; None where the record does not give
    them: every layer has to keep nothing but keys and values, and each head as many tokens."""
    size, kept, model = (result.get(key) or {} for key in ("size", "kept", "model"))
    tokens, few = size.get("tokens") or 0, size.get("kept_tokens") or 0
    plain = (result.get("quantization") or {}).get("plain_bytes") or size.get("kv_bytes") or 0
    held, heads = kept.get("held") or [], kept.get("heads") or 0
    even = len(held) == tokens and heads == model.get("layers", 0) * model.get("kv_heads", 0)
    if not even or not heads or not few or sum(held) != heads * few or plain % few:
        return None
    return int(plain // few * tokens)


def beside_the_full(result: dict[str, Any]) -> dict[str, str]:
    """Of a pruned or quantized state its tokens and its bytes as shares of the full cache's, by the names of both."""
    size, told = result["size"], {}
    tokens, few = size.get("tokens") or 0, size.get("kept_tokens") or 0
    coded = result.get("quantization") or {}
    full = whole(result) if few < tokens else coded.get("plain_bytes")
    if fewer(result):
        said = of_kept(result, f" of {tokens:,}")
        told[plain("kept_tokens")] = said if uneven(*tokens_kept(result)) else share(few, tokens)
    if full and size["kv_bytes"] < full:
        told[plain("kv_bytes")] = f"{share(size['kv_bytes'], full)} of the full cache"
    return told


def sections(result: dict[str, Any]) -> list[dict[str, Any]]:
    """One block of a record; none where nothing was dropped, or where it is not known what."""
    kept, size = result.get("kept") or {}, result.get("size") or {}
    if not kept or min(kept["held"]) == kept["heads"]:
        return []
    half, left = len(kept["tokens"]) // 2, kept["left_out"]
    spans = [_token(*pair, kept["heads"]) for pair in zip(kept["tokens"], kept["held"])]
    if left:
        spans.insert(
            half, f' <span class="soft">... {machine.many(left, "token")} left out ...</span> '
        )
    shown = kept["held"]
    every, gone = (sum(many == n for many in shown) for n in (kept["heads"], 0))
    part = len(shown) - every - gone
    told = ""
    if full := whole(result):
        told = f"Each KV head keeps {share(size['kept_tokens'], size['tokens'], 'tokens')}, which take "
        told += f"{share(size['kv_bytes'], full, 'bytes')} of the full cache's K/V. "
    told += f"{every} of {'the ' * bool(left)}{len(shown)} tokens{' shown' * bool(left)} are held by every head, {gone} by none"
    told += f", {part} by some of the {kept['heads']} KV heads of all layers" * bool(part)
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
