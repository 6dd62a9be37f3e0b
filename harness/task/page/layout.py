"""The page: what stands where, and which act of the desk each control calls.

Every browser tab has a desk of its own (kept by the server until the tab is closed or reloaded), so
two people cannot change each other's thought; they share the model, which is only read, and the
shelf, on which nothing is written over. One act runs at a time.
"""

from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from harness.errors import HarnessError
from harness.task.page import picture
from harness.task.page.desk import POLICIES, Desk

TITLE = "harness: a thought, step by step"


def build(
    open_desk: Callable[[], Desk], facts: str, prompt: str, run: int, steps: int
) -> gr.Blocks:
    """The page. open_desk: makes one tab's desk. facts: one line about the model. prompt: what the
    box holds at first. run: tokens of a run at first. steps: tokens that a verdict judges."""
    with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=True) as page:
        Page(open_desk, facts, prompt, run, steps).listen(page)
    return page


class Page:
    """The controls, in reading order, and their handlers."""

    def __init__(
        self, open_desk: Callable[[], Desk], facts: str, prompt: str, run: int, steps: int
    ):
        self.open_desk, self.steps = open_desk, steps
        self.desk = gr.State(None)
        gr.HTML(f"<header><h1>A thought, step by step</h1><p>{picture.safe(facts)}</p></header>")
        with gr.Row(elem_classes="begin"):
            self.prompt = gr.Textbox(prompt, label="Prompt", elem_id="prompt", lines=1, max_lines=6,
                                     autofocus=True, scale=1)  # fmt: skip
            self.begin = gr.Button(
                "Start", elem_id="begin", variant="primary", scale=0, min_width=110
            )
        with gr.Row(elem_classes="main"):
            with gr.Column(scale=7, min_width=300):
                self._thought(run)
            with gr.Column(scale=5, min_width=300):
                self._choice()
        with gr.Row(elem_classes="deck"):
            self._prune()
            self._shelf()
            self._branches()
            self._verdict()
        self.status = gr.HTML(elem_id="status")
        self.acts = [self.step, self.run, self.add, self.pruned, self.save, self.fork, self.judge]
        self.everything = [
            self.thought, self.likely, self.cache, self.status, self.keep, self.current, self.other,
            self.compared, self.compare, self.loaded, self.load, self.name, self.how, self.temperature,
            self.top_k, self.top_p, self.penalty, self.judged, self.choice, self.more, *self.acts,
        ]  # fmt: skip

    def _thought(self, run: int) -> None:
        with gr.Column(elem_classes="card"):
            gr.HTML("<h2>Thought</h2>")
            self.thought = gr.HTML(elem_id="thought")
            with gr.Row(elem_classes="line"):
                self.step = gr.Button(
                    "Step", elem_id="step", variant="primary", scale=0, min_width=96
                )
                self.run = gr.Button("Run", elem_id="run", scale=0, min_width=80)
                self.count = gr.Number(run, show_label=False, container=False, minimum=1, maximum=4096,
                                       precision=0, scale=0, min_width=84, elem_id="count")  # fmt: skip
                gr.HTML('<span class="unit">tokens</span>', elem_classes="fit")
                self.stop = gr.Button("Stop", elem_id="stop", scale=0, min_width=80)
            with gr.Row(elem_classes="line"):
                self.more = gr.Textbox(show_label=False, container=False, elem_id="more", lines=1, scale=1,
                                       max_lines=4, placeholder="Add text, exactly as typed")  # fmt: skip
                self.add = gr.Button("Add", elem_id="add", scale=0, min_width=80)
        with gr.Column(elem_classes="card"):
            gr.HTML("<h2>Cache</h2>")
            self.cache = gr.HTML(elem_id="cache")

    def _choice(self) -> None:
        with gr.Column(elem_classes="card"):
            gr.HTML("<h2>Next token</h2>")
            self.likely = gr.HTML(elem_id="likely")
            with gr.Accordion("Sampling", open=False, elem_id="sampling") as self.choice:
                self.how = gr.Radio(
                    ["greedy", "sample"], value="greedy", label="Choose", elem_id="how"
                )
                self.temperature = gr.Slider(0.1, 3, 1, step=0.05, label="Temperature")
                self.top_p = gr.Slider(0.05, 1, 1, step=0.05, label="Top-p (1 is off)")
                self.top_k = gr.Slider(0, 100, 0, step=1, label="Top-k (0 is off)")
                self.penalty = gr.Slider(1, 2, 1, step=0.05, label="Repetition penalty (1 is off)")

    def _prune(self) -> None:
        with gr.Column(elem_classes="card"):
            gr.HTML("<h2>Prune</h2><p>Drop tokens from the cache. What stays keeps its place.</p>")
            self.policy = gr.Dropdown(
                list(POLICIES), value="keep_last", label="Policy", elem_id="policy"
            )
            self.keep = gr.Slider(1, 2, 2, step=1, label="Tokens to keep", elem_id="keep")
            self.pruned = gr.Button("Prune", elem_id="prune")

    def _shelf(self) -> None:
        with gr.Column(elem_classes="card"):
            gr.HTML(
                "<h2>Save and load</h2><p>Everything the next token depends on, verified byte by byte.</p>"
            )
            self.name = gr.Textbox(label="Name", elem_id="name", lines=1, max_lines=1)
            self.save = gr.Button("Save", elem_id="save")
            self.loaded = gr.Dropdown([], label="Snapshot", elem_id="snapshot")
            self.load = gr.Button("Load", elem_id="load")

    def _branches(self) -> None:
        with gr.Column(elem_classes="card"):
            gr.HTML("<h2>Branches</h2><p>Two ways on from here, one memory.</p>")
            self.current = gr.Radio([], label="On branch", elem_id="branches")
            self.fork = gr.Button("Branch here", elem_id="fork")
            self.other = gr.Dropdown([], label="Beside", elem_id="other")
            self.compare = gr.Button("Compare logits", elem_id="compare")
            self.compared = gr.HTML(elem_id="compared")

    def _verdict(self) -> None:
        with gr.Column(elem_classes="card"):
            gr.HTML("<h2>Verdict</h2><p>Save, restore, go on: is it still the same thought?</p>")
            self.judge = gr.Button("Save, restore, judge", elem_id="judge")
            self.judged = gr.HTML(elem_id="judged")

    def listen(self, page: gr.Blocks) -> None:
        """Connect the controls with the acts."""
        settings = [self.how, self.temperature, self.top_k, self.top_p, self.penalty]
        self._on(page.load, self._open, [])
        self._on([self.prompt.submit, self.begin.click], self._begin, [self.prompt])
        self._on(self.step.click, self._step, [])
        running = self._on(self.run.click, self._run, [self.count])
        self.stop.click(None, cancels=[running])
        self._on([self.more.submit, self.add.click], self._add, [self.more])
        self._on([c.input for c in settings], self._sample, settings)
        self._on(self.pruned.click, self._pruned, [self.policy, self.keep])
        self._on([self.name.submit, self.save.click], self._save, [self.name])
        self._on(self.load.click, self._load, [self.loaded])
        self._on(self.fork.click, self._fork, [])
        self._on(self.current.input, self._switch, [self.current])
        self._on(self.compare.click, self._compare, [self.other])
        self._on(self.judge.click, self._judge, [])

    def _on(self, event: Any, act: Callable[..., Any], inputs: list[Any]) -> Any:
        """`act(desk, ...)` on every one of the events: an expected failure becomes one message."""

        def handled(desk: Desk | None, *given: Any) -> Iterator[dict[Any, Any]]:
            desk = desk or self.open_desk()
            try:
                for said, changed in act(desk, *given):
                    yield {self.desk: desk, **self._view(desk, said), **changed}
            except HarnessError as problem:
                said = f'<span class="problem">{picture.safe(problem)}</span>'
                yield {self.desk: desk, **self._view(desk, said)}

        return gr.on(
            event if isinstance(event, list) else [event],
            handled, [self.desk, *inputs], [self.desk, *self.everything],
            show_progress="hidden", api_visibility="private",
            concurrency_limit=1, concurrency_id="desk",
        )  # fmt: skip

    def _view(self, desk: Desk, said: str) -> dict[Any, Any]:
        """Every control as the desk stands now."""
        ready, many, held = bool(desk.branches), len(desk.branches) > 1, desk.shelf.names()
        kept = desk.branch.state.kept_tokens if ready else 1
        others = [name for name in desk.branches if name != desk.current]
        s = desk.sampling
        return {
            self.thought: picture.thought(desk),
            self.likely: picture.likely(desk),
            self.cache: picture.cache(desk),
            self.status: f"<p>{said or 'ready'}</p>",
            self.keep: gr.update(maximum=max(kept, 2), value=max(kept // 2, 1), interactive=ready),
            self.current: gr.update(choices=list(desk.branches), value=desk.current or None),
            self.other: gr.update(choices=others, value=others[-1] if many else None, interactive=many),
            self.compare: gr.update(interactive=many),
            self.loaded: gr.update(choices=held, value=held[0] if held else None, interactive=bool(held)),
            self.load: gr.update(interactive=bool(held)),
            self.more: gr.update(interactive=ready),
            self.name: gr.update(interactive=ready),
            self.how: s.name,
            self.temperature: s.temperature,
            self.top_k: s.top_k,
            self.top_p: s.top_p,
            self.penalty: s.repetition_penalty,
            self.choice: gr.update(label=f"Sampling: {s.name}"),
            **{act: gr.update(interactive=ready) for act in self.acts},
        }  # fmt: skip

    def _open(self, desk: Desk) -> Any:
        yield "ready", {}

    def _begin(self, desk: Desk, text: str) -> Any:
        desk.begin(text)
        yield f"{desk.branch.state.tokens} tokens read", {self.judged: "", self.compared: ""}

    def _step(self, desk: Desk) -> Any:
        token = desk.step()
        yield f"wrote <code>{picture.shown(desk.text([token]))}</code>, token {token}", {}

    def _run(self, desk: Desk, count: float) -> Any:
        for done in range(1, int(count or 0) + 1):
            desk.step()
            yield f"{done} of {int(count)} tokens", {}

    def _add(self, desk: Desk, text: str) -> Any:
        yield f"{desk.say(text)} tokens read", {self.more: ""}

    def _sample(
        self, desk: Desk, how: str, temperature: float, k: float, p: float, penalty: float
    ) -> Any:
        desk.sample(how, temperature=temperature, top_k=int(k), top_p=p, repetition_penalty=penalty)
        yield f"the next token is chosen by {how}", {}

    def _pruned(self, desk: Desk, policy: str, keep: float) -> Any:
        gone = desk.prune(policy, int(keep))
        yield f"{policy} dropped {gone} tokens, {desk.branch.state.kept_tokens} are held", {}

    def _save(self, desk: Desk, name: str) -> Any:
        manifest = desk.save(name)
        name = desk.shelf.names()[0]
        said = f"saved as {picture.safe(name)}, {picture.size(desk.shelf.stored_bytes(name))}, read back and verified: {manifest['id'][:16]}"
        yield said, {self.name: "", self.loaded: gr.update(choices=desk.shelf.names(), value=name)}

    def _load(self, desk: Desk, name: str) -> Any:
        desk.load(name)
        yield (
            f"restored {picture.safe(name)}, every byte verified",
            {self.judged: "", self.compared: ""},
        )

    def _fork(self, desk: Desk) -> Any:
        yield f"branch {desk.fork()} starts here; no memory was copied", {}

    def _switch(self, desk: Desk, name: str) -> Any:
        desk.switch(name)
        yield f"on branch {name}", {}

    def _compare(self, desk: Desk, other: str) -> Any:
        found = desk.compare(desk.current, other)
        yield f"{found.a} beside {found.b}", {self.compared: picture.comparison(found)}

    def _judge(self, desk: Desk) -> Any:
        yield "saving, restoring, judging", {self.judged: '<p class="empty">Working</p>'}
        made = desk.verdict(self.steps)
        where = f"Branch {desk.current} at {desk.branch.state.tokens} tokens"
        yield f"verdict: {made.verdict}", {self.judged: picture.proof(made, where)}
