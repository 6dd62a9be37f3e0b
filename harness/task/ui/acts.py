"""Which act of the desk each control calls, and what the page shows afterwards.

Every browser tab has a desk of its own (a reloaded page starts with a new one), so two people
cannot change each other's thought; they share the model, which is only read, and the
shelf, on which nothing is written over. One act runs at a time.
"""

import logging
import time
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

import gradio as gr

from harness.errors import HarnessError, InputProblem
from harness.task.ui import picture
from harness.task.ui.desk import Desk
from harness.task.ui.layout import HEATS, PENALTIES, TOPS, Controls

TITLE = "harness: a thought, step by step"
BEAT = 0.1  # seconds between two pictures of a run: more of them only keep the Stop button waiting
log = logging.getLogger(__name__)


def build(open_desk: Callable[[], Desk], facts: str, prompt: str, run: int, steps: int) -> gr.Blocks:  # fmt: skip
    """The page. open_desk: makes one tab's desk. facts: one line about the model. prompt: what the
    box holds at first. run: tokens of a run at first. steps: tokens that a verdict judges."""
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True) as page:
        Page(open_desk, steps, Controls(facts, prompt, run)).listen(page)
    return page


class Page:
    """The handlers. Each act yields `(what to say, what else changes)` once or more."""

    def __init__(self, open_desk: Callable[[], Desk], steps: int, controls: Controls):
        self.open_desk, self.steps, self.c = open_desk, steps, controls
        self._turn = Lock()
        c = controls
        self.acts = [
            c.step,
            c.run,
            c.stop,
            c.add,
            c.more,
            c.pruned,
            c.name,
            c.save,
            c.fork,
            c.judge,
        ]
        self.everything = [
            c.desk, c.thought, c.likely, c.cache, c.status, c.keep, c.current, c.other, c.compare,
            c.compared, c.loaded, c.load, c.how, c.temperature, c.top_k, c.top_p, c.penalty,
            c.choice, c.judged, *self.acts,
        ]  # fmt: skip

    def listen(self, page: gr.Blocks) -> None:
        """Connect the controls with the acts."""
        c = self.c
        settings = [c.how, c.temperature, c.top_k, c.top_p, c.penalty]
        self._on([page.load], self._open, [])
        self._on([c.prompt.submit, c.begin.click], self._begin, [c.prompt])
        self._on([c.step.click], self._step, [])
        running = self._on([c.run.click], self._run, [c.count])
        c.stop.click(None, cancels=[running])
        self._on([c.stop.click], self._stop, [])  # waits for the run's last beat
        self._on([c.more.submit, c.add.click], self._add, [c.more])
        self._on([s.input for s in settings], self._sample, settings)
        self._on([c.pruned.click], self._prune, [c.policy, c.keep])
        self._on([c.name.submit, c.save.click], self._save, [c.name])
        self._on([c.load.click], self._load, [c.loaded])
        self._on([c.fork.click], self._fork, [])
        self._on([c.current.input], self._switch, [c.current])
        self._on([c.compare.click], self._compare, [c.other])
        self._on([c.judge.click], self._judge, [])

    def _on(self, events: list[Any], act: Callable[..., Any], inputs: list[Any]) -> Any:
        """`act(desk, ...)` on each of `events`: an expected failure becomes one message."""

        def handled(desk: Desk | None, *given: Any) -> Iterator[dict[Any, Any]]:
            try:
                desk = desk or self.open_desk()
                doing = act(desk, *given)
                while (answer := self._next(desk, doing)) is not None:
                    yield answer
            except Exception as problem:
                said = str(problem)
                if not isinstance(problem, HarnessError):
                    log.exception("unexpected")  # the run's harness.log has it
                    said = (
                        f"unexpected {type(problem).__name__}: {problem} (a fault of the harness)"
                    )
                said = f'<span class="problem">{picture.safe(said)}</span>'
                yield self._view(desk, said) if desk else {self.c.status: f"<p>{said}</p>"}

        return gr.on(
            events, handled, [self.c.desk, *inputs], self.everything, show_progress="hidden",
            api_visibility="private", concurrency_limit=1, concurrency_id="desk",
        )  # fmt: skip

    def _next(self, desk: Desk, doing: Iterator[Any]) -> dict[Any, Any] | None:
        """One piece of an act and what it shows, alone: the queue gives the turn away while a run
        that was stopped is still at its last piece. None when the act is done."""
        with self._turn:
            if (done := next(doing, None)) is None:
                return None
            return {**self._view(desk, done[0]), **done[1]}

    def _view(self, desk: Desk, said: str) -> dict[Any, Any]:
        """What every act may change. What a person set or typed is left alone."""
        c = self.c
        ready, many, held = bool(desk.branches), len(desk.branches) > 1, desk.shelf.names()
        kept = desk.branch.state.kept_tokens if ready else 1
        return {
            c.desk: desk,
            c.thought: picture.thought(desk),
            c.likely: picture.likely(desk),
            c.cache: picture.cache(desk),
            c.status: f'<p role="status">{said}</p>',
            c.keep: gr.update(maximum=max(kept, 2), interactive=ready),
            c.compare: gr.update(interactive=many),
            c.loaded: gr.update(choices=held, interactive=bool(held)),
            c.load: gr.update(interactive=bool(held)),
            c.choice: gr.update(label=f"Sampling: {desk.sampling.name}"),
            **{act: gr.update(interactive=ready) for act in self.acts},
        }

    def _turned(self, desk: Desk) -> dict[Any, Any]:
        """What the controls say once another state or another branch is the current one."""
        c, s, many = self.c, desk.sampling, len(desk.branches) > 1
        kept = desk.branch.state.kept_tokens if desk.branches else 1
        others = [name for name in desk.branches if name != desk.current]
        half = {"maximum": max(kept, 2), "value": max(kept // 2, 1)}
        return {
            c.keep: gr.update(**half, interactive=bool(desk.branches)),
            c.current: gr.update(choices=list(desk.branches), value=desk.current or None),
            c.other: gr.update(
                choices=others, value=others[-1] if many else None, interactive=many
            ),
            c.how: s.name,
            c.temperature: gr.update(value=s.temperature, maximum=max(HEATS[1], s.temperature)),
            c.top_k: gr.update(value=s.top_k, maximum=max(TOPS[1], s.top_k)),
            c.top_p: s.top_p,
            c.penalty: gr.update(
                value=s.repetition_penalty,
                minimum=min(PENALTIES[0], s.repetition_penalty),
                maximum=max(PENALTIES[1], s.repetition_penalty),
            ),
        }

    def _anew(self, desk: Desk) -> dict[Any, Any]:
        clean = {self.c.judged: picture.NO_PROOF, self.c.compared: picture.NO_PAIR}
        return {**self._turned(desk), **clean}

    def _chosen(self, desk: Desk, name: str | None) -> dict[Any, Any]:
        held = desk.shelf.names()
        return {self.c.loaded: gr.update(choices=held, value=name, interactive=bool(held))}

    def _open(self, desk: Desk) -> Any:
        newest = next(iter(desk.shelf.names()), None)
        yield "Ready.", {**self._anew(desk), **self._chosen(desk, newest)}

    def _begin(self, desk: Desk, text: str) -> Any:
        desk.begin(text)
        yield f"Read {desk.branch.state.tokens} tokens.", self._anew(desk)

    def _step(self, desk: Desk) -> Any:
        token = desk.step()
        yield f"Wrote <code>{picture.shown(desk.text([token]))}</code>, token {token}.", {}

    def _run(self, desk: Desk, count: float | None) -> Any:
        many, shown = int(count or 1), 0.0
        for done in range(1, many + 1):
            desk.step()
            if done == many or time.monotonic() - shown >= BEAT:
                yield f"Wrote {done} of {many} tokens.", {}
                shown = time.monotonic()

    def _stop(self, desk: Desk) -> Any:
        yield f"Stopped at {desk.branch.state.tokens} tokens.", {}

    def _add(self, desk: Desk, text: str) -> Any:
        added = desk.say(text)
        yield f"Read {added} tokens.", {self.c.more: gr.update(value="", interactive=True)}

    def _sample(self, desk: Desk, how: str, *given: float | None) -> Any:
        heat, k, p, penalty = (None if number is None else float(number) for number in given)
        if heat is None or k is None or p is None or penalty is None:
            raise InputProblem("a number is missing under Sampling; the last settings still hold.")
        desk.sample(how, temperature=heat, top_k=int(k), top_p=p, repetition_penalty=penalty)
        yield f"The next token is chosen by {how}, temperature {heat:g}.", {}

    def _prune(self, desk: Desk, policy: str, keep: float | None) -> Any:
        gone = desk.prune(policy, int(keep or 0))
        said = f"{policy} dropped {gone} tokens, {desk.branch.state.kept_tokens} are held."
        yield said, {self.c.keep: self._turned(desk)[self.c.keep]}

    def _save(self, desk: Desk, name: str) -> Any:
        manifest, name = desk.save(name), name.strip()
        size = picture.size(desk.shelf.stored_bytes(name))
        said = (
            f"Saved as {picture.safe(name)}: {size}, read back and verified, {manifest['id'][:16]}."
        )
        emptied = {self.c.name: gr.update(value="", interactive=True)}
        yield said, {**emptied, **self._chosen(desk, name)}

    def _load(self, desk: Desk, name: str) -> Any:
        desk.load(name)
        yield f"Restored {picture.safe(name)}, every byte verified.", self._anew(desk)

    def _fork(self, desk: Desk) -> Any:
        yield f"Branch {desk.fork()} starts here. No memory was copied.", self._turned(desk)

    def _switch(self, desk: Desk, name: str) -> Any:
        desk.switch(name)
        yield f"On branch {name}.", self._turned(desk)

    def _compare(self, desk: Desk, other: str) -> Any:
        found = desk.compare(desk.current, other)
        yield f"{found.a} beside {found.b}.", {self.c.compared: picture.comparison(found)}

    def _judge(self, desk: Desk) -> Any:
        yield "Saving, restoring, judging.", {}
        made = desk.verdict(self.steps)
        where = f"Branch {desk.current} at {desk.branch.state.tokens} tokens"
        yield f"Verdict: {made.verdict}.", {self.c.judged: picture.proof(made, where)}
