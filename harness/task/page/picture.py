"""What the page shows, as HTML: tokens that glow, bars, the cache's growth, a verdict. No gradio.

Braces and dollar signs are escaped too, because the page's own template would read them.
"""

from html import escape
from math import sqrt
from typing import Any

from harness.report.console import number
from harness.task.page.desk import Branch, Comparison, Desk
from harness.task.page.verdict import Proof

TOP = 0.95  # of the tokens are dimmer than full brightness: the first one outshines all
WIDE, HIGH = 600, 96  # the growth picture's own units
GOOD = ("exact", "equivalent")
SHOWN = ("bitwise_equal", "max_abs_diff", "kl_max", "top1_agreement", "first_divergence")


def safe(text: Any) -> str:
    """`text` for an HTML page whose template must not find anything in it."""
    plain = escape(str(text))
    return plain.replace("{", "&#123;").replace("$", "&#36;").replace("`", "&#96;")


def shown(text: str) -> str:
    """A token's text with what cannot be seen made visible."""
    return safe(text.replace("\n", "\u21b5").replace("\t", "\u21e5")) or "\u2205"


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def thought(desk: Desk) -> str:
    """The whole text, token by token, as bright as the attention each one received."""
    if not desk.branches:
        return '<p class="empty">Type a prompt and press Enter, or load a snapshot.</p>'
    branch, bright, held = desk.branch, desk.brightness(), desk.holders()
    ids, layers = (
        branch.state.token_ids[0].tolist(),
        sum(bool(x.segments) for x in branch.state.layers),
    )
    full = _full(bright) if bright else 1.0
    own, special = set(branch.own), set(desk.loaded.tokenizer.all_special_ids)
    spans = []
    for place, token in enumerate(ids):
        text, kinds, told = desk.text([token]), ["t"], [f"token {token} at position {place}"]
        glow = min(sqrt(bright[place] / full), 1.0) if bright else 0.0
        if bright:
            told.append(f"received {bright[place]:.2f}")
        if place in own:
            kinds.append("own")
        if token in special:
            kinds.append("special")
        if held is not None:
            kinds += ["gone"] if held[place] == 0 else ["part"] if held[place] < layers else []
            told.append(f"held by {int(held[place])} of {layers} layers")
        after = "\n" if "\n" in text else ""
        spans.append(
            f'<span class="{" ".join(kinds)}" style="--b:{glow:.3f}" title="{safe(", ".join(told))}">'
            f"{shown(text)}</span>{after}"
        )
    return f'<div class="thought" tabindex="0" aria-label="The text so far">{"".join(spans)}</div>{_legend(bright)}'


def likely(desk: Desk) -> str:
    """The next token's distribution."""
    if not desk.branches:
        return '<p class="empty">The model\'s next choice appears here.</p>'
    rows = desk.likely()
    rest = max(1.0 - sum(p for _, _, p in rows), 0.0)
    body = "".join(_bar(shown(text), p, f"token {i}") for i, text, p in rows)
    return (
        f'<table class="bars"><tbody>{body}{_bar("all others", rest, "", "rest")}</tbody></table>'
    )


def cache(desk: Desk) -> str:
    """How much the cache holds, and how it came to that."""
    if not desk.branches:
        return '<p class="empty">Keys and values appear here as they are written.</p>'
    branch = desk.branch
    now = branch.growth[-1]
    figures = (
        (f"{now.tokens}", "tokens sent"),
        (f"{now.kept}", "held"),
        (size(now.kv_bytes), "of K/V"),
    )
    cells = "".join(f"<div><b>{value}</b> <span>{what}</span></div>" for value, what in figures)
    return f'<div class="figures">{cells}</div>{_growth(branch)}'


def comparison(found: Comparison) -> str:
    """Two branches' next tokens side by side."""
    body = "".join(
        f'<tr><th scope="row">{shown(text)}</th><td class="p">{_share(p)}</td><td>{_track(p)}</td>'
        f'<td class="p">{_share(q)}</td><td>{_track(q, "other")}</td></tr>'
        for _, text, p, q in found.rows
    )
    where = "have the same text" if found.parted is None else f"part at token {found.parted}"
    same = "the same" if found.metrics["top1_agreement"] else "another"
    return (
        f'<p class="said">{safe(found.a)} and {safe(found.b)} {where}. Most probable next token: {same}. '
        f"KL {found.metrics['kl_max']:.3g} nats, largest logit difference {found.metrics['max_abs_diff']:.3g}.</p>"
        f'<table class="bars pair"><thead><tr><td></td><th colspan="2" scope="col">{safe(found.a)}</th>'
        f'<th colspan="2" scope="col">{safe(found.b)}</th></tr></thead><tbody>{body}</tbody></table>'
    )


def proof(made: Proof, where: str) -> str:
    """The verdict, the reason, and the figures beside their noise floor."""
    rows = "".join(
        f'<tr><th scope="row">{key.replace("_", " ")}</th><td>{number(made.metrics[key])}</td>'
        f"<td>{number(made.noise.get(key))}</td></tr>"
        for key in SHOWN
    )
    kind = "good" if made.verdict in GOOD else "bad"
    return (
        f'<p class="verdict {kind}"><b>{safe(made.verdict)}</b></p>'
        f'<p class="said">{safe(made.reason)}. {safe(where)}: {made.steps} tokens after the restore, beside '
        f"{safe(made.against)}. {size(made.stored_bytes)}, saved in {made.save_s * 1e3:.0f} ms, read and "
        f"verified in {made.load_s * 1e3:.0f} ms.</p>"
        '<table class="plain"><thead><tr><td></td><th scope="col">restored</th><th scope="col">noise</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _full(bright: list[float]) -> float:
    ordered = sorted(bright)
    return max(ordered[int(TOP * (len(ordered) - 1))], 1e-9)


def _legend(bright: list[float] | None) -> str:
    glow = (
        '<span>attention received: less <i class="ramp"></i> more</span>'
        if bright
        else "<span>this model does not show the attention its tokens receive</span>"
    )
    return (
        f'<p class="legend">{glow}<span><span class="t own">written by the model</span></span>'
        '<span><span class="t part">dropped by some layers</span></span>'
        '<span><span class="t gone">dropped by all</span></span></p>'
    )


def _bar(label: str, p: float, title: str, kind: str = "") -> str:
    return (
        f'<tr class="{kind}" title="{safe(title)}"><th scope="row">{label}</th>'
        f'<td>{_track(p)}</td><td class="p">{_share(p)}</td></tr>'
    )


def _track(p: float, kind: str = "") -> str:
    return f'<div class="track"><div class="fill {kind}" style="width:{p * 100:.2f}%"></div></div>'


def _share(p: float) -> str:
    return f"{p * 100:.1f}%" if p >= 0.0005 else "&lt;0.1%"


def _growth(branch: Branch) -> str:
    rows = branch.growth[-400:]
    most = max(max(r.tokens, r.kept) for r in rows)
    rows = rows if len(rows) > 1 else rows * 2
    across = WIDE / (len(rows) - 1)

    def line(values: list[int]) -> str:
        return " ".join(
            f"{i * across:.1f},{HIGH - v / most * HIGH:.1f}" for i, v in enumerate(values)
        )

    sent, kept = line([r.tokens for r in rows]), line([r.kept for r in rows])
    return (
        f'<svg class="growth" viewBox="0 -2 {WIDE} {HIGH + 4}" preserveAspectRatio="none" role="img" '
        f'aria-label="tokens sent and held after each of {len(branch.growth)} acts, {most} at most">'
        f'<polygon points="0,{HIGH} {kept} {WIDE},{HIGH}"/><polyline class="kept" points="{kept}"/>'
        f'<polyline class="sent" points="{sent}"/></svg>'
        f'<p class="legend"><span><i class="key kept"></i>held</span><span><i class="key sent"></i>sent</span>'
        f"<span>each act from left to right, {most} tokens high</span></p>"
    )
