"""What the page shows, as HTML: tokens that glow, bars, the cache's growth, a verdict. No gradio.

Braces and dollar signs are escaped too, because the page's own template would read them.
"""

from collections import Counter
from html import escape
from time import monotonic_ns
from typing import Any

from harness.report.badge import SIGNS, kind
from harness.report.glossary import VERDICTS
from harness.report.names import plain
from harness.report.terminal.console import number
from harness.snapshot.result import COMPARED, counted
from harness.task.ui.answers import FIGURES, Comparison
from harness.task.ui.branches import Branch
from harness.task.ui.continuation import Continued
from harness.task.ui.desk import Desk
from harness.task.ui.verdict import Proof

TOP = 0.95  # share of the tokens below full brightness: the first one outshines all
GAMMA = 0.7
WIDE, HIGH = 600, 96  # the growth picture's own units
LAST = 30  # of which the last act has at least so many: it is the one that was just done
MARKS = {
    "own": "written by the model",
    "part": "dropped by some layers",
    "thin": "dropped by some KV heads",
    "gone": "dropped",
}
PATH = (
    '<ol class="path"><li><b>Start</b> reads the prompt above (change it first, if you like).</li>'
    "<li><b>Step</b> lets the model write one token, <b>Run</b> several. The brighter a token, the more attention "
    "it received.</li><li><b>Save, restore, judge</b> pauses the thought, brings it back from disk, and says "
    "whether it is still the same one.</li></ol>"
)
CACHE = (
    "<h2>Cache</h2><p>What the model remembers of these tokens: their keys and values (K/V).</p>"
)
NO_PAIR = '<p class="empty">Branch, let them go different ways, then see both next tokens.</p>'
NO_TRIP = '<p class="empty">The tokens it writes there appear here, above those it writes here.</p>'


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
        return PATH if not desk.shelf.names() else PATH.replace("path", "path kept", 1)
    branch, bright, holders, heads = desk.branch, desk.brightness(), desk.holders(), desk.heads()
    ids, layers = (
        branch.state.token_ids[0].tolist(),
        sum(bool(x.segments) for x in branch.state.layers),
    )
    full = _full(bright) if bright else 1.0
    apart = any(layer.per_head for layer in branch.state.layers)
    own, special = set(branch.own), set(desk.loaded.tokenizer.all_special_ids)
    spans, marks = [], set()
    for place, (token, text) in enumerate(zip(ids, desk.pieces(ids), strict=True)):
        kinds, told = ["t"], [f"id {token} at position {place}"]
        glow = min((bright[place] / full) ** GAMMA, 1.0) if bright else 0.0
        if bright:
            told.append(f"received {bright[place]:.2f}")
        if place in own:
            kinds.append("own")
        if token in special:
            kinds.append("special")
        if holders is not None:
            assert heads is not None
            here, every = int(heads[0][place]), heads[1]
            lost = "thin" if here < every else ""
            if holders[place] < layers and not apart:
                lost = "part"  # in whole layers: where no head chose for itself
            kinds += ["gone"] if holders[place] == 0 else [lost] if lost else []
            told.append(f"held by {int(holders[place])} of {layers} layers")
            if 0 < here < every:
                told.append(f"in {here} of {every} KV heads")
        marks |= set(kinds)
        after = "\n" if "\n" in text else ""
        spans.append(
            f'<span class="{" ".join(kinds)}" style="--b:{glow:.3f}" title="{safe(", ".join(told))}">'
            f"{shown(text)}</span>{after}"
        )
    return f'<div class="thought" tabindex="0" role="group" aria-label="The text so far"><div>{"".join(spans)}</div></div>{_legend(bright, marks)}'


def likely(desk: Desk) -> str:
    """The next token's distribution."""
    if not desk.branches:
        return '<p class="empty">The model\'s next choice appears here.</p>'
    rows = desk.likely()
    rest = max(1.0 - sum(p for _, _, p in rows), 0.0)
    alike = Counter(text for _, text, _ in rows)
    body = "".join(
        f'<tr title="id {i}"><th scope="row">{_label(text, i, alike[text])}</th>'
        f'<td>{_track(p)}</td><td class="p">{_share(p)}</td></tr>'
        for i, text, p in rows
    )
    others = f'<tr class="rest"><th scope="row">all others</th><td>{_track(rest)}</td><td class="p">{_share(rest)}</td></tr>'
    return f'<table class="bars" aria-label="The most probable next tokens"><tbody>{body}{others}</tbody></table>'


def cache(desk: Desk) -> str:
    """How much the cache holds, and how it came to that."""
    if not desk.branches:
        return ""
    branch = desk.branch
    now = branch.growth[-1]
    figures = [(f"{now.tokens}", f"token{'s' * (now.tokens != 1)} sent"), (f"{now.kept}", "held")]
    if not desk.holding:  # it has no token by token memory
        figures = figures[:1]
    what = ["K/V"] * desk.holding + ["recurrent state"] * desk.recurrent
    figures.append((size(now.kv_bytes), f"of {' and '.join(what)}"))
    cells = "".join(f"<div><b>{value}</b> <span>{what}</span></div>" for value, what in figures)
    drawn = (
        _growth(branch)
        if desk.holding
        else "This model keeps a state of one size, whatever it reads."
    )
    return f'<div class="cache"><div>{CACHE}<div class="figures">{cells}</div></div><div>{drawn}</div></div>'


def compared(desk: Desk) -> str:
    """The last comparison, and whether it still says how the two branches stand."""
    if desk.answers.compared is None:
        return NO_PAIR
    *places, made = desk.answers.compared
    if not all(place.stands(desk.branches) for place in places):
        return f"{outdated('a branch has changed since: compare again')}{comparison(made)}"
    return comparison(made)


def judged(desk: Desk) -> str:
    """The last verdict on the current branch, and whether it is still one on it as it stands."""
    name = desk.current
    if name not in desk.answers.judged:
        if not name:
            return ""
        rows = "".join(
            f'<div><dt class="verdict {kind(v)}">{SIGNS[v]} {v}</dt><dd>{safe(VERDICTS[v])}</dd></div>'
            for v in COMPARED
        )
        first = f"Branch {name} is not judged yet. The usual answers:"
        return f'<p class="said">{first}</p><dl class="kinds">{rows}</dl>'
    place, made = desk.answers.judged[name]
    told = proof(made, name, place.tokens)
    if not place.stands(desk.branches):
        told = outdated(f"branch {name} has changed since: judge again") + told
    return told


def went(desk: Desk) -> str:
    """How the last branch went on elsewhere, and whether it still stands there."""
    if desk.answers.went is None or desk.answers.went[0].name not in desk.branches:
        return NO_TRIP
    place, here, made = desk.answers.went
    old = "" if place.stands(desk.branches) else outdated(f"branch {place.name} has changed since")
    return old + elsewhere(desk, place.name, here, made)


def outdated(why: str) -> str:
    """That an answer is one from before, and why it is no more than that."""
    return f'<p class="said old">\u21ba From before: {safe(why)}.</p>'


def comparison(pair: Comparison) -> str:
    """Two branches' next tokens, one bar above the other."""
    alike = Counter(row[1] for row in pair.rows)
    body = "".join(
        f'<tr title="id {i}"><th scope="row">{_label(text, i, alike[text])}</th>'
        f"<td>{_track(p)}{_track(q, 'other')}</td>"
        f'<td class="p"><div>{_share(p)}</div><div>{_share(q)}</div></td></tr>'
        for i, text, p, q in pair.rows
    )
    a, b = (f"branch {safe(n)} at {at} tokens" for n, at in zip((pair.a, pair.b), pair.at))
    where = "have the same text" if pair.parted is None else f"part at token {pair.parted + 1}"
    same = "the same" if pair.metrics["top1_agreement"] else "not the same"
    apart = (
        f"their most probable next token is {same}. KL {number(pair.metrics['kl_max'])} nats, largest "
        f"logit difference {number(pair.metrics['max_abs_diff'])}."
    )
    if len({*pair.at}) > 1:
        apart += " They have read different numbers of tokens, so these are two different places of the text."
    if pair.stale:
        apart = "they hold different keys and values, but these figures are of before that. Step both, then compare."
    return (
        f'<div class="side"><div><p class="said">B{a[1:]} and {b} {where}; {apart}</p>'
        f'<p class="legend"><span><i class="key a"></i>branch {safe(pair.a)}</span>'
        f'<span><i class="key b"></i>branch {safe(pair.b)}</span></p></div>'
        f'<table class="bars pair" aria-label="Next tokens of both branches"><tbody>{body}</tbody></table></div>'
    )


def elsewhere(desk: Desk, there: str, here: str, made: Continued) -> str:
    """How branch `here` went on elsewhere, as branch `there`, below how it goes on here."""
    said, tone, sign = f"the same {len(made.tokens)} tokens", "good", "= the same"
    if made.parted is not None:
        said, tone, sign = f"another token at step {made.parted + 1}", "bad", "\u2260 not the same"
    parts = [f"{made.where}: {said}"]
    if made.apart is not None:
        parts.append(f"log-probabilities differ by up to {made.apart:.3g}")
    if made.read is not None:
        parts.append(f"{made.read} tokens were read again")
    if made.whole:
        parts.append("it has read every token, though this branch holds fewer")
    rows = (("there", made.tokens), ("here", made.here))
    body = "".join(
        f'<tr><th scope="row">{name}</th><td>{shown(desk.text(list(ids)))}</td></tr>'
        for name, ids in rows
    )
    return (
        f'<p class="verdict {tone}"><b>{sign}</b> <span>branch {there} beside branch {here}</span></p>'
        f'<p class="said">{safe("; ".join(parts))}.</p>'
        f'<table class="plain words"><tbody>{body}</tbody></table>'
    )


def folded(said: str, rest: list[str]) -> str:
    """What went wrong, the rest of its reasons one below the other behind a fold; it can be dismissed."""
    many = f"{len(rest)} other reason{'s' * (len(rest) != 1)}"
    more = "".join(f"<br>{safe(line)}" for line in rest)
    fold = f"<details><summary>{many}</summary>{more[4:]}</details>" if rest else ""
    button = '<button class="dismiss" aria-label="Dismiss this message">\u00d7</button>'
    again = monotonic_ns()  # the same words are shown again after they were dismissed
    return f'{button}<span class="problem" data-at="{again}">{safe(said)}</span>{fold}'


def problems(*said: str) -> str:
    """What went wrong with the autosave, below what is said."""
    return "".join(f'<br><span class="problem">{safe(line)}</span>' for line in said if line)


def proof(made: Proof, name: str, tokens: int) -> str:
    """The verdict on branch `name` in one sentence, then the figures beside their noise floor."""
    rows = "".join(
        f'<tr><th scope="row">{plain(key)}</th><td>{_figure(key, made.metrics[key])}</td>'
        f"<td>{_figure(key, made.noise.get(key))}</td></tr>"
        for key in FIGURES
    )
    return (
        f'<div class="side"><div><p class="verdict {kind(made.verdict)}"><b>{SIGNS[made.verdict]} {safe(made.verdict)}</b> '
        f"<span>branch {name} beside {safe(made.beside)}</span></p>"
        f'<p class="conclusion">{safe(made.conclusion)}</p>'
        f'<p class="said">Branch {name} at {tokens} tokens; {made.steps} tokens after the restore, beside {safe(made.against)}. '
        f"Reason: {safe(made.reason)}. {size(made.stored_bytes)} saved in {made.save_s * 1e3:.0f} ms, "
        f"read and verified in {made.load_s * 1e3:.0f} ms.</p></div>"
        '<table class="plain" aria-label="Figures of the verdict"><thead><tr><td></td><th scope="col">restored</th><th scope="col">noise</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _figure(key: str, value: Any) -> str:
    return "none" if key == "first_divergence" and value is None else number(counted(key, value))


def _full(bright: list[float]) -> float:
    ordered = sorted(b for b in bright if b > 0) or [1.0]
    return max(ordered[int(TOP * (len(ordered) - 1))], 1e-9)


def _legend(bright: list[float] | None, kinds: set[str]) -> str:
    glow = (
        '<span>attention received: less <i class="ramp"></i> more</span>'
        if bright
        else "<span>the attention its tokens received was not recorded</span>"
    )
    told = "".join(
        f'<span><span class="t {mark}">{what}</span></span>'
        for mark, what in MARKS.items()
        if mark in kinds
    )
    return f'<p class="legend">{glow}{told}</p>'


def _label(text: str, token: int, alike: int) -> str:
    """A token as a row's name, its leading space visible; its id too where the text is nothing, or that
    of several rows."""
    space = "<i>\u00b7</i>" if text.startswith(" ") else ""
    number = f" <i>{token}</i>" if alike > 1 or not text else ""
    return space + shown(text[1:] if space else text) + number


def _track(p: float, look: str = "") -> str:
    """A bar; full where the probability `p` is 1."""
    return f'<div class="track"><div class="fill {look}" style="width:{p * 100:.2f}%"></div></div>'


def _share(p: float) -> str:
    return f"{p * 100:.1f}%" if p >= 0.0005 else "&lt;0.1%"


def _growth(branch: Branch) -> str:
    rows = branch.growth[-400:]
    most = max(max(r.tokens, r.kept) for r in rows)
    across = min(WIDE / len(rows), (WIDE - LAST) / max(len(rows) - 1, 1))

    def line(values: list[int]) -> str:
        steps = [(0.0, values[0])]
        for i, v in enumerate(values[1:], 1):  # an act happens at once
            steps += [(i * across, values[i - 1]), (i * across, v)]
        steps.append((WIDE, values[-1]))
        return " ".join(f"{x:.1f},{HIGH - v / most * HIGH:.1f}" for x, v in steps)

    sent, kept = line([r.tokens for r in rows]), line([r.kept for r in rows])
    return (
        f'<svg class="growth" viewBox="0 -2 {WIDE} {HIGH + 4}" preserveAspectRatio="none" role="img" '
        f'aria-label="tokens sent and held after each of {len(branch.growth)} acts, {most} at most">'
        f'<polygon points="0,{HIGH} {kept} {WIDE},{HIGH}"/><polyline class="kept" points="{kept}"/>'
        f'<polyline class="sent" points="{sent}"/></svg>'
        f'<p class="legend"><span><i class="key kept"></i>held</span><span><i class="key sent"></i>sent</span>'
        f"<span>each act from left to right, {most} tokens high</span></p>"
    )
