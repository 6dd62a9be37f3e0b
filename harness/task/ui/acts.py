"""Which act of the desk each control calls, and what the page shows afterwards.

Every browser tab has a desk of its own and gets it back when it is reloaded, or opened again after it was
closed (`tabs.py`), so two people cannot change each other's thought; they share the model, which is
only read, and the shelf, on which nothing is written over. A desk does one act at a time; desks wait
for each other no longer than one call of the model. A run goes on without a page.
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
from harness.task.ui import picture, scores, words
from harness.task.ui.desk import Desk
from harness.task.ui.evaluation import FILE
from harness.task.ui.layout import LONGEST, QUESTIONS, Controls
from harness.task.ui.script import BACK, RECALL, SEATED
from harness.task.ui.tabs import Tabs
from harness.task.ui.view import ENDS, View, inside
from harness.task.ui.work import Work

TITLE = "harness: a thought, step by step"
LOOK = 0.4  # seconds between two pictures of an evaluation
BEAT = 0.1  # seconds between two pictures of a run: more of them only keep the Stop button waiting
SHORT = 500  # tokens
log = logging.getLogger(__name__)


def build(tabs: Tabs, steps: int, *first: Any) -> gr.Blocks:
    """The page. tabs: which desk a tab sits at. steps: tokens that a verdict judges. first: what the
    controls hold at first."""
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True) as page:
        Page(tabs, steps, Controls(*first)).listen(page)
    return page


class Page(View):
    """The handlers. Each act yields `(what to say, what else changes)` once or more."""

    def __init__(self, tabs: Tabs, steps: int, controls: Controls):
        super().__init__(controls)
        self.tabs, self.steps = tabs, steps

    def listen(self, page: gr.Blocks) -> None:
        """Connect the controls with the acts."""
        c = self.c
        settings = [c.how, c.temperature, c.top_k, c.top_p, c.penalty]  # as ENDS has them
        quiet = {"show_progress": "hidden", "api_visibility": "private"}
        typed = [*c.typed.values()]
        opened = page.load(
            self._open, [c.tab, c.prompt], [*self.everything, *typed], js=RECALL, **quiet
        )
        opened.then(None, [c.tab], None, js=SEATED)
        opened.then(self._handled(self._watch), [c.desk], self.everything, **quiet)
        opened.then(self._scored, [c.desk], self.asked, **quiet)
        page.unload(self._left)
        self._on([c.prompt.submit, c.begin.click], self._begin, [c.prompt])
        self._on([c.step.click], self._step, [], trigger_mode="multiple")  # no click is lost
        self._on([c.run.click], self._run, [c.count])
        self._on([c.stop.click], self._stop, [])
        self._on([c.undo.click], self._undo, [])
        self._on([c.redo.click], self._redo, [])
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
        begun.then(self._scored, [c.desk], self.asked, concurrency_limit=None, **quiet)
        self._on([c.enough.click], self._enough, [])
        for name, one in c.typed.items():
            one.input(partial(_set, name), [c.desk, one], trigger_mode="always_last", **quiet)
        c.asking.change(_asking, [c.asking], [c.samples, c.file], **quiet)

    def _on(self, events: list[Any], act: Callable[..., Any], inputs: list[Any], **how: Any) -> Any:
        """`act(desk, ...)` on each of `events`. A button that was disabled meanwhile has the focus again."""
        done = gr.on(
            events, self._handled(act), [self.c.desk, *inputs], self.everything, show_progress="hidden",
            api_visibility="private", concurrency_limit=None, **how,
        )  # fmt: skip
        for event in events:
            if event.event_name == "click":
                done.then(None, None, None, js=BACK % event.__self__.elem_id)
        return done

    def _handled(self, act: Callable[..., Any]) -> Callable[..., Iterator[dict[Any, Any]]]:
        """`act`, whose expected failures become one message."""

        def handled(desk: Desk | None, *values: Any) -> Iterator[dict[Any, Any]]:
            if desk is None:
                yield {
                    self.c.status: '<div class="told">The server knows no thought of this page: it was started anew, or could not open the page. Reload it; every branch that was kept comes back.</div>'
                }
                return
            try:
                doing, before = act(desk, *values), None
                while (piece := self._next(desk, doing, before)) is not None:
                    answer, before = piece
                    yield answer
            except Exception as problem:
                if not isinstance(problem, HarnessError):
                    log.exception("unexpected")  # the run's harness.log has it
                yield self._view(desk, picture.folded(*words.told(problem)))

        return handled

    def _next(
        self, desk: Desk, doing: Iterator[Any], before: Any
    ) -> tuple[dict[Any, Any], Any] | None:
        """One piece of an act: what it shows, and of what; alone at this desk. Where nothing but words has
        changed since `before`, these alone. None when the act is done."""
        with desk.turn:
            if (done := next(doing, None)) is None:
                return None
            said, more = done
            seen = self._seen(desk)  # a run may go on while this is drawn: then it is drawn again
            if not more and before is not None and all(map(is_, before, seen)):
                return {self.c.status: self._status(desk, said)}, seen
            return {**self._view(desk, said), **more}, seen

    def _seen(self, desk: Desk) -> tuple[Any, ...]:
        return desk.branches, desk.current, desk.running

    def _open(self, tab: str, typed: str | None, request: gr.Request) -> dict[Any, Any]:
        """The desk of a page that opens, as it was left. typed: into the prompt's box, in this tab."""
        try:
            tab, desk = self.tabs.seat(tab, str(request.session_hash))
            newest = next(iter(desk.shelf.names()), None)
            with desk.turn:
                view = self._view(desk, words.greeting(desk))
                if typed is not None or (desk.branches and desk.prompt):
                    view[self.c.prompt] = desk.prompt if typed is None else typed
                shown = {**view, **self._turned(desk), **self._chosen(desk, newest)}
                return {**shown, **self._typed(desk), self.c.tab: tab}
        except Exception as problem:
            log.exception("unexpected")
            return {self.c.status: f'<div class="told">{picture.folded(f"{problem}", [])}</div>'}

    def _left(self, request: gr.Request) -> None:
        self.tabs.leave(str(request.session_hash))

    def _watch(self, desk: Desk) -> Any:
        """What a run that goes on is writing. Without a word gradio would empty every control."""
        yield words.greeting(desk), {}
        if desk.running is not None:
            yield from self._watched(desk)

    def _doing(self, desk: Desk, work: Work, act: Callable[[Work], str]) -> Any:
        """Begins work and looks at it."""
        desk.do(work, act)
        yield from self._watched(desk)

    def _watched(self, desk: Desk) -> Any:
        """Looks at work until it has ended, here or elsewhere."""
        known = desk.branches.keys()
        while (work := desk.running) is not None:
            yield f"{work}", {}
            tokens = desk.branch.state.tokens if desk.branches else 0
            time.sleep(BEAT * max(tokens / SHORT, 1))  # a long picture takes long to draw
        if desk.problem is not None:
            raise desk.problem
        yield desk.said, {} if known == desk.branches.keys() else self._turned(desk)

    def _undo(self, desk: Desk) -> Any:
        yield f"Undone: {desk.undo()}{_now(desk)}.", self._turned(desk)

    def _redo(self, desk: Desk) -> Any:
        yield f"Done again: {desk.redo()}{_now(desk)}.", self._turned(desk)

    def _quantize(self, desk: Desk, name: str) -> Any:
        again = bool(desk.branch.state.quantized)
        yield words.quantized(desk, name, *desk.quantize(name), again), {}

    def _close(self, desk: Desk) -> Any:
        yield f"Branch {desk.close()} is put away. Undo brings it back.", self._turned(desk)

    def _back(self, desk: Desk, place: float | None) -> Any:
        at = words.whole(place, desk.branch.state.tokens, "Go back to token")
        name = desk.back(at)
        yield f"Branch {name} stands after {words.counted(at)}.", self._turned(desk)

    def _begin(self, desk: Desk, text: str) -> Any:
        def act(work: Work) -> str:
            said = f"Read {words.counted(desk.begin(text, work))}{words.beside(desk)}."
            return said if text.strip() else f"{said} The prompt is blank: {words.read(desk)}"

        yield from self._doing(desk, Work("Reading"), act)

    def _step(self, desk: Desk) -> Any:
        token = desk.step()
        yield f"Wrote <code>{picture.shown(desk.spelled(token))}</code>, id {token}.", {}

    def _run(self, desk: Desk, count: float | None) -> Any:
        many = words.whole(count, LONGEST, "Tokens of a run")
        desk.start(many)
        yield from self._watched(desk)

    def _stop(self, desk: Desk) -> Any:
        if desk.running is None:
            yield desk.said or "Nothing runs.", {}
            return
        desk.halt()
        yield words.STOPPING, {}
        desk.stop()
        yield words.STOPPING if desk.running is not None else desk.said, {}

    def _add(self, desk: Desk, text: str) -> Any:
        def act(work: Work) -> str:
            return f"Read {words.counted(desk.say(text, work))}."

        before = desk.branches
        yield from self._doing(desk, Work("Reading"), act)
        if desk.branches is not before:
            yield desk.said, {self.c.more: gr.update(value="", interactive=True)}

    def _sample(self, desk: Desk, how: str, *numbers: float | None) -> Any:
        typed = dict(zip(ENDS, (n for n in numbers if n is not None), strict=False))
        if len(typed) < len(ENDS):
            raise InputProblem("a number is missing under Sampling; the last settings still hold.")
        held, moved = inside(desk.sampling, typed)
        desk.sample(how, **held)
        heat = f"The next token is chosen by {how}, temperature {held['temperature']:g}."
        yield f"{heat} {picture.safe('; '.join(moved))}".strip(), {}

    def _prune(self, desk: Desk, policy: str, keep: float | None, per_head: bool) -> Any:
        budget = words.whole(keep, desk.branch.state.tokens, "Tokens to keep")
        said = words.pruned(desk, policy, desk.prune(policy, budget, per_head), budget)
        yield said, {self.c.keep: self._turned(desk)[self.c.keep]}

    def _save(self, desk: Desk, name: str) -> Any:
        manifest, name = desk.save(name), name.strip()
        size = picture.size(desk.shelf.stored_bytes(name))
        said = (
            f"Saved as {picture.safe(name)}: {size}, read back and verified, {manifest['id'][:16]}"
            f"{words.needing(manifest)}."
        )
        emptied = {self.c.name: gr.update(value="", interactive=True)}
        yield said, {**emptied, **self._chosen(desk, name)}

    def _load(self, desk: Desk, name: str) -> Any:
        desk.load(name)
        yield (
            f"Restored {picture.safe(name)} as branch {desk.current}, every byte verified.",
            self._turned(desk),
        )

    def _fork(self, desk: Desk) -> Any:
        yield f"Branch {desk.fork()} starts here. No memory was copied.", self._turned(desk)

    def _switch(self, desk: Desk, name: str) -> Any:
        desk.switch(name)
        yield f"On branch {name}.", self._turned(desk)

    def _compare(self, desk: Desk, other: str) -> Any:
        made = desk.compare(desk.current, other)
        yield f"Branch {made.a} beside branch {made.b}.", {}

    def _go_on(self, desk: Desk, where: str, count: float | None) -> Any:
        many = words.whole(count, LONGEST, "Tokens of a run")

        def act(work: Work) -> str:
            desk.go_on(where, many, work)
            return f"Branch {desk.current} is how it goes on in {where}."

        yield from self._doing(desk, Work(f"Wrote in {where}", many), act)

    def _judge(self, desk: Desk) -> Any:
        def act(work: Work) -> str:
            made = desk.verdict(self.steps, work)
            return f"Verdict: {made.verdict}, beside {made.beside}."

        work = Work(f"Saving, restoring, judging{desk.judging(self.steps)}")
        yield from self._doing(desk, work, act)

    def _evaluate(
        self, desk: Desk, prunes: list[str], budgets: list[float], coders: list[str], kind: str,
        path: str, samples: float | None, per_head: bool,
    ) -> Any:  # fmt: skip
        made = desk.evaluation
        asked = 1 if kind == FILE else words.whole(samples, QUESTIONS, "How many")
        made.start(prunes, budgets, coders, kind, path or "", asked, per_head)
        yield f"Asking {made.total} questions of {made.cells} settings.", {}

    def _enough(self, desk: Desk) -> Any:
        desk.evaluation.halt()
        yield words.STOPPING, {}
        desk.evaluation.stop()
        yield words.STOPPING if desk.evaluation.running else self._counted(desk), {}

    def _counted(self, desk: Desk) -> str:
        return f"The evaluation ended after {machine.many(desk.evaluation.done, 'question')}."

    def _scored(self, desk: Desk | None) -> Iterator[dict[Any, Any]]:
        """Looks at an evaluation until it has ended; the other acts go on beside it."""
        ran = False
        while desk is not None:
            going = desk.evaluation.running
            seen = {
                self.c.scores: scores.shown(desk.evaluation),
                self.c.evaluate: gr.update(interactive=not going),
                self.c.enough: gr.update(interactive=going),
            }
            if ran and not going:
                seen[self.c.status] = self._status(desk, self._counted(desk))
            yield seen
            if not going:
                return
            ran = True
            time.sleep(LOOK)


def _now(desk: Desk) -> str:
    return f"; now on branch {desk.current}" if desk.current else ""


def _set(name: str, desk: Desk | None, value: Any) -> None:
    if desk is not None:
        desk.set(name, value)


def _asking(kind: str) -> tuple[Any, Any]:
    """How many are generated, or which file: one of the two is asked for."""
    return gr.update(visible=kind != FILE), gr.update(visible=kind == FILE)
