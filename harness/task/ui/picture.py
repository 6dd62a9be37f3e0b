"""What the page shows, as HTML: glowing tokens, bars, the cache's growth, verdicts, scores. No gradio.

Braces, dollar signs and backticks are escaped too, because the page's own template would read them.
"""

from collections import Counter
from html import escape
from time import monotonic_ns
from typing import Any

from harness.report.badge import SIGNS, kind
from harness.report.evaluate import page as evaluate
from harness.report.glossary import VERDICTS
from harness.report.names import plain
from harness.report.terminal.console import number
from harness.snapshot.cells import WHOLE
from harness.snapshot.cells import name as cell_name
from harness.snapshot.result import COMPARED, counted
from harness.task.ui.answers import Comparison
from harness.task.ui.branches import Branch
from harness.task.ui.continuation import Continued
from harness.task.ui.evaluation import Evaluation
from harness.task.ui.session import PageSession
from harness.task.ui.verdict import Proof

TOP = 0.95  # share of the tokens below full brightness: the first one outshines all
GAMMA = 0.7
WIDE, HIGH = 600, 96  # the growth picture's own units
LAST = 30  # least width of the last act
FIGURES = ("bitwise_equal", "max_abs_diff", "kl_max", "top1_agreement", "first_divergence")
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
NO_SCORES = '<p class="empty">Choose what to try, then see how many questions each setting still answers.</p>'
FEWER = '<span class="fewer" title="measurably fewer than the whole state">\u25bc</span>'


def safe(text: Any) -> str:
    """`text` escaped for an HTML page that is also a template."""
    plain = escape(str(text))
    return plain.replace("{", "&#123;").replace("$", "&#36;").replace("`", "&#96;")


def shown(text: str) -> str:
    """A token's text, invisible characters made visible."""
    return safe(text.replace("\n", "\u21b5").replace("\t", "\u21e5")) or "\u2205"


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def thought(session: PageSession) -> str:
    """The text token by token, as bright as the attention each one received."""
    if not session.branches:
        return PATH if not session.store.names() else PATH.replace("path", "path kept", 1)
    branch, bright, holders = session.branch, session.brightness(), session.holders()
    ids = branch.state.token_ids[0].tolist()
    layers = sum(bool(layer.segments) for layer in branch.state.layers)
    per_head = any(layer.per_head for layer in branch.state.layers)
    full = _full(bright) if bright else 1.0
    own, special = set(branch.own), set(session.loaded.tokenizer.all_special_ids)
    spans, marks = [], set()
    for place, (token, text) in enumerate(zip(ids, session.pieces(ids), strict=True)):
        kinds, title = ["t"], [f"id {token} at position {place}"]
        glow = min((bright[place] / full) ** GAMMA, 1.0) if bright else 0.0
        if bright:
            title.append(f"received {bright[place]:.2f}")
        kinds += ["own"] * (place in own) + ["special"] * (token in special)
        if holders is not None:
            in_layers, in_heads, heads = int(holders[0][place]), int(holders[1][place]), holders[2]
            title.append(f"held by {in_layers} of {layers} layers")
            if 0 < in_heads < heads:
                title.append(f"in {in_heads} of {heads} KV heads")
            if not in_layers:
                kinds.append("gone")
            elif in_layers < layers and not per_head:
                kinds.append("part")
            elif in_heads < heads:
                kinds.append("thin")
        marks |= set(kinds)
        spans.append(
            f'<span class="{" ".join(kinds)}" style="--b:{glow:.3f}" title="{safe(", ".join(title))}">'
            f"{shown(text)}</span>" + ("\n" if "\n" in text else "")
        )
    glowing = (
        'attention received: less <i class="ramp"></i> more'
        if bright
        else "the attention its tokens received was not recorded"
    )
    legend = [glowing, *(f'<span class="t {m}">{what}</span>' for m, what in MARKS.items() if m in marks)]  # fmt: skip
    return (
        f'<div class="thought" tabindex="0" role="group" aria-label="The text so far"><div>{"".join(spans)}</div></div>'
        f"{_legend(legend)}"
    )


def likely(session: PageSession) -> str:
    """The next token's distribution."""
    if not session.branches:
        return '<p class="empty">The model\'s next choice appears here.</p>'
    rows = session.likely()
    others = max(1.0 - sum(p for _, _, p in rows), 0.0)
    alike = Counter(text for _, text, _ in rows)
    body = "".join(
        f'<tr title="id {i}"><th scope="row">{_label(text, i, alike[text])}</th>'
        f'<td>{_bar(p)}</td><td class="p">{_share(p)}</td></tr>'
        for i, text, p in rows
    )
    last = f'<tr class="rest"><th scope="row">all others</th><td>{_bar(others)}</td><td class="p">{_share(others)}</td></tr>'
    return f'<table class="bars" aria-label="The most probable next tokens"><tbody>{body}{last}</tbody></table>'


def cache(session: PageSession) -> str:
    """How much the cache holds, and how it came to that."""
    if not session.branches:
        return ""
    branch = session.branch
    now = branch.growth[-1]
    figures = [(f"{now.tokens}", f"token{'s' * (now.tokens != 1)} sent"), (f"{now.kept}", "held")]
    if not session.holding:
        figures = figures[:1]
    what = ["K/V"] * session.holding + ["recurrent state"] * session.recurrent
    figures.append((size(now.kv_bytes), f"of {' and '.join(what)}"))
    cells = "".join(f"<div><b>{value}</b> <span>{what}</span></div>" for value, what in figures)
    drawn = "This model keeps a state of one size, whatever it reads."
    if session.holding:
        drawn = _growth(branch)
    return f'<div class="cache"><div>{CACHE}<div class="figures">{cells}</div></div><div>{drawn}</div></div>'


def compared(session: PageSession) -> str:
    """The last comparison."""
    if session.answers.compared is None:
        return NO_PAIR
    *places, made = session.answers.compared
    changed = not all(place.current(session.branches) for place in places)
    return _outdated("a branch has changed since: compare again") * changed + comparison(made)


def judged(session: PageSession) -> str:
    """The last verdict on the current branch."""
    name = session.current
    if name not in session.answers.judged:
        if not name:
            return ""
        rows = "".join(
            f'<div><dt class="verdict {kind(v)}">{SIGNS[v]} {v}</dt><dd>{safe(VERDICTS[v])}</dd></div>'
            for v in COMPARED
        )
        return f'<p class="note">Branch {name} is not judged yet. The usual answers:</p><dl class="kinds">{rows}</dl>'
    place, made = session.answers.judged[name]
    changed = not place.current(session.branches)
    old = _outdated(f"branch {name} has changed since: judge again") * changed
    return old + proof(made, name, place.state.tokens)


def went(session: PageSession) -> str:
    """How the last branch went on elsewhere."""
    if session.answers.went is None or session.answers.went[0].name not in session.branches:
        return NO_TRIP
    place, here, made = session.answers.went
    changed = not place.current(session.branches)
    old = _outdated(f"branch {place.name} has changed since") * changed
    return old + elsewhere(session, place.name, here, made)


def _outdated(why: str) -> str:
    return f'<p class="note old">\u21ba From before: {safe(why)}.</p>'


def comparison(pair: Comparison) -> str:
    """Two branches' next tokens, one bar above the other."""
    alike = Counter(row[1] for row in pair.rows)
    body = "".join(
        f'<tr title="id {i}"><th scope="row">{_label(text, i, alike[text])}</th>'
        f"<td>{_bar(p)}{_bar(q, 'other')}</td>"
        f'<td class="p"><div>{_share(p)}</div><div>{_share(q)}</div></td></tr>'
        for i, text, p, q in pair.rows
    )
    a, b = safe(pair.a), safe(pair.b)
    where = "have the same text" if pair.parted is None else f"part at token {pair.parted + 1}"
    same = "the same" if pair.metrics["top1_agreement"] else "not the same"
    apart = (
        f"their most probable next token is {same}. KL {number(pair.metrics['kl_max'])} nats, largest "
        f"logit difference {number(pair.metrics['max_abs_diff'])}."
    )
    if pair.at[0] != pair.at[1]:
        apart += " They differ in length, so these are different places of the text."
    if pair.stale:
        apart = "their keys and values differ, but these logits are older. Step both, then compare."
    keys = [f'<i class="key a"></i>branch {a}', f'<i class="key b"></i>branch {b}']
    return (
        f'<div class="side"><div><p class="note">Branch {a} at {pair.at[0]} tokens and branch {b} at '
        f"{pair.at[1]} tokens {where}; {apart}</p>{_legend(keys)}</div>"
        f'<table class="bars pair" aria-label="Next tokens of both branches"><tbody>{body}</tbody></table></div>'
    )


def elsewhere(session: PageSession, there: str, here: str, made: Continued) -> str:
    """How branch `here` went on elsewhere, as branch `there`, and here."""
    result, tone, sign = f"the same {len(made.tokens)} tokens", "good", "= the same"
    if made.parted is not None:
        result, tone = f"another token at step {made.parted + 1}", "bad"
        sign = "\u2260 not the same"
    parts = [f"{made.where}: {result}"]
    if made.apart is not None:
        parts.append(f"log-probabilities differ by up to {made.apart:.3g}")
    if made.read is not None:
        parts.append(f"{made.read} tokens were read again")
    if made.whole:
        parts.append("it has read every token, though this branch holds fewer")
    body = "".join(
        f'<tr><th scope="row">{name}</th><td>{shown(session.text(list(ids)))}</td></tr>'
        for name, ids in (("there", made.tokens), ("here", made.here))
    )
    return (
        f'<p class="verdict {tone}"><b>{sign}</b> <span>branch {there} beside branch {here}</span></p>'
        f'<p class="note">{safe("; ".join(parts))}.</p>'
        f'<table class="plain words"><tbody>{body}</tbody></table>'
    )


def problem(text: Any) -> str:
    """A message as it was raised; it can be dismissed."""
    button = '<button class="dismiss" aria-label="Dismiss this message">\u00d7</button>'
    lines = "<br>".join(map(safe, str(text).split("\n")))
    # a new time stamp, so that the same message is shown again after it was dismissed
    return f'{button}<span class="problem" data-at="{monotonic_ns()}">{lines}</span>'


def problems(*lines: str) -> str:
    """Messages of the autosave, below the status."""
    return "".join(f'<br><span class="problem">{safe(line)}</span>' for line in lines if line)


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
        f'<p class="note">Branch {name} at {tokens} tokens; {made.steps} tokens after the restore, beside {safe(made.against)}. '
        f"Reason: {safe(made.reason)}. {size(made.stored_bytes)} saved in {made.save_s * 1e3:.0f} ms, "
        f"read and verified in {made.load_s * 1e3:.0f} ms.</p></div>"
        '<table class="plain" aria-label="Figures of the verdict"><thead><tr><td></td><th scope="col">restored</th><th scope="col">noise</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def scores(made: Evaluation) -> str:
    """How far an evaluation is, and right answers against memory, setting by setting."""
    if not made.total:
        return NO_SCORES
    parts = [_progress(made)]
    if made.rows:
        parts.append(_scores(made.rows))
    if made.place is not None:
        parts.append(
            f'<p class="note">Kept in {safe(made.place)}: <a href="{safe(made.report)}" target="_blank">'
            "report.html</a> and every answer.</p>"
        )
    return "".join(parts)


def _progress(made: Evaluation) -> str:
    asked = f"{made.done} of {made.total} questions asked of {made.cells} settings"
    if made.running:
        share = f'max="{made.total}" value="{made.done}"'
        return f'<p class="note">{asked}.</p><progress {share} aria-label="questions asked"></progress>'
    bad = made.problem or (made.unsound and f"These figures count for nothing: {made.unsound}")
    if bad:
        line = f'<span class="problem">{safe(bad)}</span>'
    elif made.stopped:
        line = f"Stopped: {asked}.{' Evaluate again to go on from here.' if made.done else ''}"
    else:
        line = f"<b>{safe(evaluate.conclusion(made.rows))}</b>"
    return f'<p class="note" role="status">{line}</p>'


def _scores(rows: list[dict[str, Any]]) -> str:
    cells = evaluate.cells(rows)
    whole = next(iter(cells.values()))["contains"]["kv_bytes"]
    body = "".join(_score(cell, whole) for cell in cells.values())
    legend = ['<i class="key interval"></i>95% interval']
    if any(map(_worse, cells.values())):
        legend.append(f"{FEWER} measurably fewer than the whole state, question by question")
    return (
        '<div class="wide"><table class="bars scores"><thead><tr><th scope="col">setting</th>'
        '<th scope="col" colspan="2">right answers</th><th scope="col" class="p">held</th>'
        f'<th scope="col" class="p kl">KL, nats</th></tr></thead><tbody>{body}</tbody></table></div>'
        f"{_legend(legend)}"
    )


def _score(cell: dict[str, Any], whole: float) -> str:
    right = cell["contains"]
    name = cell_name(right)
    low, high = 100 * right["low"], 100 * right["high"]
    hits, share = round(right["value"] * right["n"]), right["kv_bytes"] / whole
    title = (
        f"{hits} of {right['n']}; 95% interval {low:.0f}% to {high:.0f}%; {share:.0%} of the bytes"
    )
    return (
        f'<tr class="{"whole" if name == WHOLE else ""}" title="{safe(title)}"><th scope="row">{safe(name)}</th>'
        f'<td><div class="track"><div class="fill" style="width:{100 * right["value"]:.1f}%"></div>'
        f'<i style="left:{low:.1f}%;width:{max(high - low, 0.5):.1f}%"></i></div></td>'
        f'<td class="p">{FEWER if _worse(cell) else ""}{right["value"]:.0%}</td>'
        f'<td class="p">{size(right["kv_bytes"])}</td><td class="p kl">{number(cell["kl"]["value"])}</td></tr>'
    )


def _worse(cell: dict[str, Any]) -> bool:
    return bool(cell["contains"].get("delta_high", 0) < 0)


def _figure(key: str, value: Any) -> str:
    return "none" if key == "first_divergence" and value is None else number(counted(key, value))


def _full(bright: list[float]) -> float:
    ordered = sorted(b for b in bright if b > 0) or [1.0]
    return max(ordered[int(TOP * (len(ordered) - 1))], 1e-9)


def _legend(parts: list[str]) -> str:
    return f'<p class="legend">{"".join(f"<span>{part}</span>" for part in parts)}</p>'


def _label(text: str, token: int, alike: int) -> str:
    """A token as a row's name, its leading space visible; with its id where the text is empty, or that
    of several rows."""
    space = "<i>\u00b7</i>" if text.startswith(" ") else ""
    number = f" <i>{token}</i>" if alike > 1 or not text else ""
    return space + shown(text[1:] if space else text) + number


def _bar(p: float, look: str = "") -> str:
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
    legend = ['<i class="key kept"></i>held', '<i class="key sent"></i>sent',
              f"each act from left to right, {most} tokens high"]  # fmt: skip
    return (
        f'<svg class="growth" viewBox="0 -2 {WIDE} {HIGH + 4}" preserveAspectRatio="none" role="img" '
        f'aria-label="tokens sent and held after each of {len(branch.growth)} acts, {most} at most">'
        f'<polygon points="0,{HIGH} {kept} {WIDE},{HIGH}"/><polyline class="kept" points="{kept}"/>'
        f'<polyline class="sent" points="{sent}"/></svg>{_legend(legend)}'
    )
