"""Which act of the session each control calls, and what the page shows afterwards.

Every browser tab has a session of its own (`tabs.py`); sessions share the read-only model and the named
snapshots. A session does one act at a time; a run goes on without a page.
"""

import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from operator import is_
from typing import Any

import gradio as gr

from harness import machine
from harness.errors import HarnessError, InputProblem
from harness.snapshot.history import tokens_held
from harness.snapshot.words import on_average, uneven
from harness.task.ui import picture
from harness.task.ui.evaluation import FILE
from harness.task.ui.layout import HEATS, LONGEST, NUCLEI, PENALTIES, QUESTIONS, TOPS, Controls
from harness.task.ui.script import BACK, OPENED, RECALL
from harness.task.ui.session import PageSession
from harness.task.ui.tabs import Tabs
from harness.task.ui.work import Work

TITLE = "harness: a thought, step by step"
LOOK = 0.4  # seconds between two pictures of an evaluation
BEAT = 0.1  # seconds between two pictures of a run
SHORT = 500  # tokens
STOPPING = "Stopping after the model's current call."
LOST = "Session not found: the server was restarted. Reload the page; saved branches come back."
ENDS = {"temperature": HEATS, "top_k": TOPS, "top_p": NUCLEI, "repetition_penalty": PENALTIES}
log = logging.getLogger(__name__)
Shown = tuple[str, dict[Any, Any]]  # a message, and what else changes


def build(tabs: Tabs, steps: int, *first: Any) -> gr.Blocks:
    """The page. steps: tokens that a verdict judges. first: the arguments of `Controls`."""
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True) as page:
        Page(tabs, steps, Controls(*first)).listen(page)
    return page


class Page:
    """The handlers. Each act yields a message and what else changes, once or more."""

    def __init__(self, tabs: Tabs, steps: int, controls: Controls):
        self.tabs, self.steps = tabs, steps
        self.c = c = controls
        # enabled while there is a thought and nothing is at work
        self.acts = [
            c.step, c.run, c.add, c.pruned, c.save, c.fork, c.judge, c.coded, c.close, c.back, c.there,
        ]  # fmt: skip
        self.asked = [c.scores, c.evaluate, c.enough, c.status]  # of an evaluation
        self.everything = [
            c.session, c.tab, c.thought, c.likely, c.cache, c.status, c.keep, c.current, c.other, c.compare,
            c.compared, c.gone, c.loaded, c.load, c.how, c.temperature, c.top_k, c.top_p, c.penalty,
            c.choice, c.judged, c.prompt, c.begin, c.stop, c.more, c.name, *self.acts,
        ]  # fmt: skip

    def listen(self, page: gr.Blocks) -> None:
        """Connect the controls with the acts."""
        c = self.c
        settings = [c.how, c.temperature, c.top_k, c.top_p, c.penalty]  # as ENDS has them
        quiet = {"show_progress": "hidden", "api_visibility": "private"}
        typed = [*c.typed.values()]
        opened = page.load(
            self._open, [c.tab, c.prompt], [*self.everything, *typed], js=RECALL, **quiet
        )
        opened.then(None, [c.tab], None, js=OPENED)
        opened.then(self._handled(self._watch), [c.session], self.everything, **quiet)
        opened.then(self._scored, [c.session], self.asked, **quiet)
        page.unload(self._left)
        self._on([c.prompt.submit, c.begin.click], self._begin, [c.prompt])
        self._on([c.step.click], self._step, [], trigger_mode="multiple")  # no click is lost
        self._on([c.run.click], self._run, [c.count])
        self._on([c.stop.click], self._stop, [])
        self._on([c.more.submit, c.add.click], self._add, [c.more])
        self._on([s.input for s in settings], self._sample, settings)
        self._on([c.pruned.click], self._prune, [c.policy, c.keep, c.per_head])
        self._on([c.coded.click], self._quantize, [c.coder])
        self._on([c.name.submit, c.save.click], self._save, [c.name])
        self._on([c.load.click], self._load, [c.loaded])
        self._on([c.fork.click], self._fork, [])
        self._on([c.close.click], self._close, [])
        self._on([c.back.click, c.place.submit], self._back, [c.place])
        self._on([c.current.input], self._switch, [c.current])
        self._on([c.compare.click], self._compare, [c.other])
        self._on([c.there.click], self._go_on, [c.where, c.count])
        self._on([c.judge.click], self._judge, [])
        chosen = [c.prunes, c.budgets, c.coders, c.asking, c.file, c.samples, c.per_head]
        begun = self._on([c.evaluate.click, c.file.submit], self._evaluate, chosen)
        begun.then(self._scored, [c.session], self.asked, concurrency_limit=None, **quiet)
        self._on([c.enough.click], self._enough, [])
        for name, control in c.typed.items():
            control.input(
                partial(_set, name), [c.session, control], trigger_mode="always_last", **quiet
            )
        c.asking.change(_asking, [c.asking], [c.samples, c.file], **quiet)

    def _on(self, events: list[Any], act: Callable[..., Any], inputs: list[Any], **how: Any) -> Any:
        """`act(session, ...)` on each of `events`. A button that was disabled meanwhile has the focus again."""
        done = gr.on(
            events, self._handled(act), [self.c.session, *inputs], self.everything, show_progress="hidden",
            api_visibility="private", concurrency_limit=None, **how,
        )  # fmt: skip
        for event in events:
            if event.event_name == "click":
                done.then(None, None, None, js=BACK % event.__self__.elem_id)
        return done

    def _handled(self, act: Callable[..., Any]) -> Callable[..., Iterator[dict[Any, Any]]]:
        """`act`; its errors become one message."""

        def handled(session: PageSession | None, *values: Any) -> Iterator[dict[Any, Any]]:
            if session is None:
                yield {self.c.status: f'<div class="message">{LOST}</div>'}
                return
            try:
                doing, before = act(session, *values), None
                while (piece := self._next(session, doing, before)) is not None:
                    answer, before = piece
                    yield answer
            except HarnessError as problem:
                yield self._view(session, picture.problem(problem))
            except Exception as problem:
                log.exception("unexpected")  # into the run's harness.log
                yield self._view(session, picture.problem(f"{type(problem).__name__}: {problem}"))

        return handled

    def _next(
        self, session: PageSession, doing: Iterator[Shown], before: Any
    ) -> tuple[dict[Any, Any], Any] | None:
        """One piece of an act: what it shows, and of what. Where nothing but the message has changed since
        `before`, that alone. None when the act is done."""
        with session.turn:
            if (done := next(doing, None)) is None:
                return None
            message, more = done
            # noted first: a run may go on while this is drawn, and then it is drawn again
            seen = session.branches, session.current, session.running
            if not more and before is not None and all(map(is_, before, seen)):
                return {self.c.status: self._status(session, message)}, seen
            return {**self._view(session, message), **more}, seen

    def _open(self, tab: str, typed: str | None, request: gr.Request) -> dict[Any, Any]:
        """What a page that opens shows. typed: into the prompt's box, in this tab."""
        try:
            tab, session = self.tabs.open(tab, str(request.session_hash))
            newest = next(iter(session.store.names()), None)
            with session.turn:
                view = self._view(session, greeting(session))
                if typed is not None or (session.branches and session.prompt):
                    view[self.c.prompt] = session.prompt if typed is None else typed
                more = {**self._turned(session), **self._chosen(session, newest)}
                return {**view, **more, **self._typed(session), self.c.tab: tab}
        except Exception as problem:
            log.exception("unexpected")
            return {self.c.status: f'<div class="message">{picture.problem(problem)}</div>'}

    def _left(self, request: gr.Request) -> None:
        self.tabs.leave(str(request.session_hash))

    def _watch(self, session: PageSession) -> Iterator[Shown]:
        """A run that goes on. The first message is needed: gradio would empty every control."""
        yield greeting(session), {}
        if session.running is not None:
            yield from self._watched(session)

    def _doing(
        self, session: PageSession, work: Work, act: Callable[[Work], str]
    ) -> Iterator[Shown]:
        session.do(work, act)
        yield from self._watched(session)

    def _watched(self, session: PageSession) -> Iterator[Shown]:
        """Shows work until it has ended, here or elsewhere."""
        known = session.branches.keys()
        while (work := session.running) is not None:
            yield f"{work}", {}
            tokens = session.branch.state.tokens if session.branches else 0
            time.sleep(BEAT * max(tokens / SHORT, 1))  # a long picture takes long to draw
        if session.problem is not None:
            raise session.problem
        changed = known != session.branches.keys()
        yield session.message, self._turned(session) if changed else {}

    def _begin(self, session: PageSession, text: str) -> Iterator[Shown]:
        def act(work: Work) -> str:
            message = f"Read {_tokens(session.begin(text, work))}"
            if len(session.branches) > 1:
                message += f", as branch {session.current}; the others are kept"
            if not text.strip():
                read = session.text(session.branch.state.token_ids[0].tolist())
                message += (
                    f". The prompt is blank; the template gave <code>{picture.shown(read)}</code>"
                )
            return f"{message}."

        yield from self._doing(session, Work("Reading"), act)

    def _step(self, session: PageSession) -> Iterator[Shown]:
        token = session.step()
        yield f"Wrote <code>{picture.shown(session.spelled(token))}</code>, id {token}.", {}

    def _run(self, session: PageSession, count: float | None) -> Iterator[Shown]:
        session.start(whole_number(count, LONGEST, "Tokens of a run"))
        yield from self._watched(session)

    def _stop(self, session: PageSession) -> Iterator[Shown]:
        if session.running is None:
            yield session.message or "Nothing runs.", {}
            return
        session.halt()
        yield STOPPING, {}
        session.stop()
        yield STOPPING if session.running is not None else session.message, {}

    def _add(self, session: PageSession, text: str) -> Iterator[Shown]:
        def act(work: Work) -> str:
            return f"Read {_tokens(session.add(text, work))}."

        before = session.branches
        yield from self._doing(session, Work("Reading"), act)
        if session.branches is not before:
            yield session.message, {self.c.more: gr.update(value="", interactive=True)}

    def _sample(self, session: PageSession, how: str, *numbers: float | None) -> Iterator[Shown]:
        typed = dict(zip(ENDS, (n for n in numbers if n is not None), strict=False))
        if len(typed) < len(ENDS):
            raise InputProblem("a number is missing under Sampling; the last settings still hold.")
        held, moved = within_ends(session.sampling, typed)
        session.sample(how, **held)
        heat = f"The next token is chosen by {how}, temperature {held['temperature']:g}."
        yield f"{heat} {picture.safe('; '.join(moved))}".strip(), {}

    def _prune(
        self, session: PageSession, policy: str, keep: float | None, per_head: bool
    ) -> Iterator[Shown]:
        budget = whole_number(keep, session.branch.state.tokens, "Tokens to keep")
        dropped = session.prune(policy, budget, per_head)
        yield pruned_message(session, policy, dropped, budget), self._turned(session)

    def _quantize(self, session: PageSession, name: str) -> Iterator[Shown]:
        codes, before = map(picture.size, session.quantize(name))
        message = f"Branch {session.current}: {name}, {codes} instead of {before}."
        yield message + unasked(session), self._turned(session)

    def _save(self, session: PageSession, name: str) -> Iterator[Shown]:
        manifest, name = session.save(name), name.strip()
        size = picture.size(session.store.stored_bytes(name))
        parents = " and ".join(sorted({row["place"] for row in manifest["lineage"]}))
        needs = f"; it needs {picture.safe(parents)} beside it" if parents else ""
        message = f"Saved as {picture.safe(name)}: {size}, verified, {manifest['id'][:16]}{needs}."
        emptied = {self.c.name: gr.update(value="", interactive=True)}
        yield message, {**emptied, **self._chosen(session, name)}

    def _load(self, session: PageSession, name: str) -> Iterator[Shown]:
        session.load(name)
        message = f"Restored {picture.safe(name)} as branch {session.current}, verified."
        yield message, self._turned(session)

    def _fork(self, session: PageSession) -> Iterator[Shown]:
        name = session.fork()
        yield f"Branch {name} starts here. No memory was copied.", self._turned(session)

    def _close(self, session: PageSession) -> Iterator[Shown]:
        yield f"Branch {session.close()} is closed.", self._turned(session)

    def _back(self, session: PageSession, place: float | None) -> Iterator[Shown]:
        at = whole_number(place, session.branch.state.tokens, "Go back to token")
        name = session.back(at)
        yield f"Branch {name} stands after {_tokens(at)}.", self._turned(session)

    def _switch(self, session: PageSession, name: str) -> Iterator[Shown]:
        session.switch(name)
        yield f"On branch {name}.", self._turned(session)

    def _compare(self, session: PageSession, other: str) -> Iterator[Shown]:
        made = session.compare(session.current, other)
        yield f"Branch {made.a} beside branch {made.b}.", {}

    def _go_on(self, session: PageSession, where: str, count: float | None) -> Iterator[Shown]:
        many = whole_number(count, LONGEST, "Tokens of a run")

        def act(work: Work) -> str:
            session.go_on(where, many, work)
            return f"Branch {session.current} is how it goes on in {where}."

        yield from self._doing(session, Work(f"Wrote in {where}", many), act)

    def _judge(self, session: PageSession) -> Iterator[Shown]:
        def act(work: Work) -> str:
            made = session.verdict(self.steps, work)
            return f"Verdict: {made.verdict}, beside {made.beside}."

        work = Work(f"Saving, restoring, judging{session.judging_time(self.steps)}")
        yield from self._doing(session, work, act)

    def _evaluate(
        self, session: PageSession, prunes: list[str], budgets: list[float], coders: list[str], kind: str,
        path: str, samples: float | None, per_head: bool,
    ) -> Iterator[Shown]:  # fmt: skip
        made = session.evaluation
        many = 1 if kind == FILE else whole_number(samples, QUESTIONS, "How many")
        made.start(prunes, budgets, coders, kind, path or "", many, per_head)
        yield f"Asking {made.total} questions of {made.cells} settings.", {}

    def _enough(self, session: PageSession) -> Iterator[Shown]:
        session.evaluation.halt()
        yield STOPPING, {}
        session.evaluation.stop()
        yield STOPPING if session.evaluation.running else _ended(session), {}

    def _scored(self, session: PageSession | None) -> Iterator[dict[Any, Any]]:
        """Shows an evaluation until it has ended; the other acts go on beside it."""
        ran = False
        while session is not None:
            going = session.evaluation.running
            seen = {
                self.c.scores: picture.scores(session.evaluation),
                self.c.evaluate: gr.update(interactive=not going),
                self.c.enough: gr.update(interactive=going),
            }
            if ran and not going:
                seen[self.c.status] = self._status(session, _ended(session))
            yield seen
            if not going:
                return
            ran = True
            time.sleep(LOOK)

    def _view(self, session: PageSession, message: str) -> dict[Any, Any]:
        """What every act may change. What a person set or typed is left alone."""
        c, busy = self.c, session.running is not None
        ready, many, saved = (
            bool(session.branches),
            len(session.branches) > 1,
            session.store.names(),
        )
        kept = session.branch.state.kept_tokens if ready else 1
        named = [
            (f"{name}: {_tokens(b.state.tokens)}", name) for name, b in session.branches.items()
        ]
        return {
            c.session: session,
            c.thought: picture.thought(session),
            c.likely: picture.likely(session),
            c.cache: picture.cache(session),
            c.status: self._status(session, message),
            c.keep: gr.update(maximum=max(kept, 2), interactive=ready),
            c.current: gr.update(choices=named, value=session.current or None),
            c.loaded: gr.update(choices=saved, interactive=bool(saved)),
            c.choice: gr.update(label=f"Sampling: {session.sampling.name}"),
            **{box: gr.update(**ends) for box, _, ends in self._settings(session.sampling)},
            c.compared: picture.compared(session),
            c.gone: picture.went(session),
            c.judged: picture.judged(session),
            c.begin: gr.update(variant="secondary" if ready else "primary", interactive=not busy),
            c.load: gr.update(interactive=bool(saved) and not busy),
            c.compare: gr.update(interactive=many and not busy),
            c.stop: gr.update(interactive=busy),
            **{field: gr.update(interactive=ready) for field in (c.more, c.name)},
            **{act: gr.update(interactive=ready and not busy) for act in self.acts},
        }  # fmt: skip

    def _status(self, session: PageSession, message: str) -> str:
        """The status line. Progress changes many times a second, and is not read out."""
        quiet = ' aria-hidden="true"' if session.running is not None else ""
        return f'<div class="message"{quiet}>{message}{picture.problems(session.unsaved)}</div>'

    def _turned(self, session: PageSession) -> dict[Any, Any]:
        """The controls once another state or another branch is the current one."""
        c, s, many = self.c, session.sampling, len(session.branches) > 1
        kept = session.branch.state.kept_tokens if session.branches else 1
        others = [name for name in session.branches if name != session.current]
        keep = session.typed.get("keep")
        if not isinstance(keep, int | float) or not 1 <= keep <= kept:
            keep = max(kept // 2, 1)
        return {
            c.keep: gr.update(maximum=max(kept, 2), value=keep, interactive=bool(session.branches)),
            c.other: gr.update(choices=others, value=others[-1] if many else None, interactive=many),
            c.how: s.name,
            **{box: gr.update(value=at, **ends) for box, at, ends in self._settings(s)},
        }  # fmt: skip

    def _typed(self, session: PageSession) -> dict[Any, Any]:
        """What was set on the page, set again; values that are no choice any more are left out."""
        made = {}
        for name, value in session.typed.items():
            control = self.c.typed.get(name)
            known = [at for _, at in getattr(control, "choices", ())]
            several = value if isinstance(value, list) else [value]
            if control is not None and name != "keep" and (not known or all(v in known for v in several)):  # fmt: skip
                made[control] = gr.update(value=value)
        return made

    def _settings(self, sampling: Any) -> list[tuple[Any, float, dict[str, float]]]:
        """Each box of a sampling number, the number, and the ends of the box."""
        c = self.c
        boxes = zip(ENDS, (c.temperature, c.top_k, c.top_p, c.penalty), strict=True)
        return [(box, getattr(sampling, key), _ends(sampling, key)) for key, box in boxes]

    def _chosen(self, session: PageSession, name: str | None) -> dict[Any, Any]:
        saved = session.store.names()
        return {self.c.loaded: gr.update(choices=saved, value=name, interactive=bool(saved))}


def greeting(session: PageSession) -> str:
    """The status line of a page that opens."""
    if session.running is not None:
        return f"{session.running}"
    many = len(session.branches)
    kept = f"{many} branches, as you left them." if many > 1 else "One branch, as you left it."
    message = f"Ready. {kept if many else 'Start reads the prompt.'}"
    return message + picture.problems(*session.skipped)


def pruned_message(session: PageSession, policy: str, dropped: int, keep: int) -> str:
    """What a policy did that was to leave `keep` tokens."""
    state = session.branch.state
    left = state.kept_tokens
    if not dropped:
        return f"Policy {policy} dropped nothing: the cache holds {_tokens(left)}, and {keep} may stay."
    result = f"dropped {_tokens(dropped)}, {left} {'is' if left == 1 else 'are'} held"
    _, mean = tokens_held(state)
    if uneven(left, mean):
        result = f"dropped tokens, {on_average(left, mean, ' are held')}"
    apart = any(layer.per_head for layer in state.layers)
    each = " Each KV head chose its own: struck out is what none of them holds." * apart
    return f"Branch {session.current}: {policy} {result}.{each}{unasked(session)}"


def unasked(session: PageSession) -> str:
    """That the next token is still the one from before the last act, where it is."""
    return (
        "" if session.fresh else " Next token is as it was before; the next step shows the change."
    )


def whole_number(value: Any, most: int, name: str) -> int:
    """The value of box `name`: a whole number from 1 to `most`, else InputProblem."""
    if not isinstance(value, int | float) or not 1 <= value <= most or value != int(value):
        what = "is empty" if value is None else f"cannot be {value:,.10g}"
        raise InputProblem(f"'{name}' {what}. Type a whole number from 1 to {most}.")
    return int(value)


def within_ends(sampling: Any, typed: dict[str, float]) -> tuple[dict[str, float], list[str]]:
    """`typed`, each within its box's ends and top-k whole; and a message for each that was moved."""
    held, moved = {}, []
    for key, number in typed.items():
        low, high = _ends(sampling, key).values()
        held[key] = min(max(int(number) if key == "top_k" else float(number), low), high)
        if held[key] != number:
            moved.append(f"{key.replace('_', ' ')} {number:g} is not from {low:g} to {high:g}")
    return held, moved


def _ends(sampling: Any, key: str) -> dict[str, float]:
    """The ends of a sampling number's box: a snapshot's own value may lie beyond the usual ones."""
    now, (low, high) = getattr(sampling, key), ENDS[key]
    return {"minimum": min(low, now), "maximum": max(high, now)}


def _tokens(count: int) -> str:
    return machine.many(count, "token")


def _ended(session: PageSession) -> str:
    return f"The evaluation ended after {machine.many(session.evaluation.done, 'question')}."


def _set(name: str, session: PageSession | None, value: Any) -> None:
    if session is not None:
        session.set(name, value)


def _asking(kind: str) -> tuple[Any, Any]:
    """Either how many are generated, or which file."""
    return gr.update(visible=kind != FILE), gr.update(visible=kind == FILE)
