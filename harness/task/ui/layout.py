"""The controls and where they stand. `handlers` connects them; the look is in page.css."""

import json
from abc import ABCMeta
from typing import Any

import gradio as gr

from harness.task.ui import picture
from harness.task.ui.evaluation import FILE, SETS
from harness.task.ui.session import POLICIES, QUANTIZERS
from harness.variants import headline

HEATS, NUCLEI, TOPS, PENALTIES = (0.1, 3.0), (0.05, 1.0), (0, 100), (1.0, 2.0)
LONGEST, QUESTIONS = 4096, 1000  # tokens of a run; questions of an evaluation
BUDGETS = (0.1, 0.25, 0.5, 0.75)  # shares of the context
WORDS = {"recall": "recall dialogues", "needle": "a needle in prose", "multi_key": "several keys",
         "variable_tracking": "a value handed on", FILE: "a file of mine"}  # fmt: skip


PURPOSE = (
    "Watch a language model think, one token at a time. Pause it, save it, change its memory, bring it back: "
    "is it still thinking the same thought?"
)


# A slider that passes on what was typed: None, or a number beyond its ends. The handler refuses that with a
# message; gradio's own check prints a traceback on the terminal. Made without gradio's metaclass, which would
# write a file of types beside this one.
Slider = ABCMeta.__new__(
    type(gr.Slider),
    "Slider",
    (gr.Slider,),
    {"is_template": True, "preprocess": lambda self, payload: payload, "__module__": __name__},
)


class Controls:
    """Every control, in reading order. Build it inside a `gr.Blocks`.

    facts: one line about the model. places: where a branch can be continued. The others are initial
    values: prompt, tokens of a run, questions of an evaluation and their file.
    """

    def __init__(
        self, facts: str, prompt: str, run: int, questions: str, file: str, places: list[str]
    ):
        self.session = gr.State(None)
        self.tab = gr.Textbox(visible="hidden", elem_id="tab")
        another = '<a href="?new" target="_blank" rel="opener">another thought in a new tab</a>'
        gr.HTML(
            f"<header><h1>A thought, step by step</h1><p class='what'>{PURPOSE}</p>"
            f"<p>{picture.safe(facts)} \u00b7 {another}</p></header>"
        )
        with gr.Row(elem_classes="begin"):
            self.prompt = gr.Textbox(
                prompt, label="Prompt", elem_id="prompt", lines=1, max_lines=6, scale=1, min_width=200
            )  # fmt: skip
            self.begin = _button("Start", "begin", variant="primary", scale=0, min_width=110)
        with gr.Row(elem_classes="main"):
            with gr.Column(elem_classes="card tall", scale=7, min_width=280):
                self._thought(run)
            with gr.Column(elem_classes="card", scale=5, min_width=280):
                self._choice()
        with gr.Column(elem_classes="card later"):
            self.cache = gr.HTML(elem_id="cache")
        self._verdict()
        with gr.Row(elem_classes="deck"):
            self._prune()
            self._quantize()
            self._branches()
            self._snapshots()
        with gr.Row(elem_classes="pairs later"):
            self._compare()
            self._elsewhere(places)
        self._evaluation(questions, file)
        self.status = gr.HTML(elem_id="status")
        # set by a person and changed by no handler: kept by these names
        self.typed = {
            "count": self.count, "policy": self.policy, "keep": self.keep, "per_head": self.per_head,
            "quantizer": self.coder, "place": self.place, "where": self.where, "prunes": self.prunes,
            "budgets": self.budgets, "quantizers": self.coders, "questions": self.asking,
            "samples": self.samples, "file": self.file,
        }  # fmt: skip

    def _thought(self, run: int) -> None:
        gr.HTML("<h2>Thought</h2>")
        self.thought = gr.HTML(elem_id="thought")
        with gr.Row(elem_classes="line"):
            self.step = _button("Step", "step", variant="primary", scale=0, min_width=92)
            self.run = _button("Run", "run", scale=0, min_width=72)
            self.count = gr.Number(
                run, label="Tokens of a run", show_label=False, container=False, scale=0,
                min_width=96, elem_id="count",
            )  # fmt: skip
            gr.HTML('<span class="unit">tokens</span>', elem_classes="fit")
            self.stop = _button("Stop", "stop", scale=0, min_width=72, interactive=False)
        with gr.Row(elem_classes="line"):
            self.more = gr.Textbox(
                label="Text to add", show_label=False, container=False, elem_id="more", lines=1, max_lines=4, scale=1,
                min_width=120, placeholder="Add text, exactly as typed",
            )  # fmt: skip
            self.add = _button("Add", "add", scale=0, min_width=72)

    def _choice(self) -> None:
        gr.HTML("<h2>Next token</h2>")
        self.likely = gr.HTML(elem_id="likely")
        with gr.Accordion("Sampling", open=False, elem_id="sampling") as self.choice:
            self.how = gr.Radio(["greedy", "sample"], value="greedy", label="Choose", elem_id="how")
            with gr.Row():
                self.temperature = _slider(HEATS, 1, 0.05, "Temperature", "temperature")
                self.top_p = _slider(NUCLEI, 1, 0.05, "Top-p, 1 is off", "top_p")
            with gr.Row():
                self.top_k = _slider(TOPS, 0, 1, "Top-k, 0 is off", "top_k")
                self.penalty = _slider(PENALTIES, 1, 0.05, "Repetition penalty", "penalty")

    def _prune(self) -> None:
        with _card("Prune", "A branch whose cache forgets tokens.", "later"):
            self.policy = gr.Dropdown(
                list(POLICIES),
                value="keep_last",
                label="Policy: which tokens stay",
                elem_id="policy",
            )
            self.policy_note = gr.HTML(_about("prune", "keep_last"), elem_id="policy_note")
            self.keep = _slider((1, 2), 2, 1, "Tokens to keep", "keep")
            self.per_head = gr.Checkbox(True, label="Each KV head for itself", elem_id="per_head")
            self.pruned = _button("Prune", "prune")
        self.policy.change(None, [self.policy], [self.policy_note], js=_describe("prune"))

    def _quantize(self) -> None:
        with _card("Quantize", "A branch whose cache keeps fewer bits.", "later"):
            with gr.Row(elem_classes="line bottom"):
                self.coder = gr.Dropdown(
                    list(QUANTIZERS), value=QUANTIZERS[0], label="Quantizer", elem_id="quantizer", min_width=80
                )  # fmt: skip
                self.coded = _button("Quantize", "quantize", scale=0, min_width=108)
            self.coder_note = gr.HTML(_about("quantize", QUANTIZERS[0]), elem_id="quantizer_note")
        self.coder.change(None, [self.coder], [self.coder_note], js=_describe("quantize"))

    def _snapshots(self) -> None:
        with _card("Save and load", "All that the next token depends on, verified byte by byte."):
            with gr.Row(elem_classes="line bottom"):
                self.name = gr.Textbox(
                    label="Name", elem_id="name", lines=1, max_lines=1, min_width=80
                )
                self.save = _button("Save", "save", scale=0, min_width=80)
            with gr.Row(elem_classes="line bottom"):
                self.loaded = gr.Dropdown([], label="Snapshot", elem_id="snapshot", min_width=80)
                self.load = _button("Load", "load", scale=0, min_width=80)

    def _branches(self) -> None:
        with _card("Branches", "Several ways on from one place, side by side.", "later"):
            self.current = gr.Radio([], label="On branch", elem_id="branches")
            with gr.Row(elem_classes="line bottom"):
                self.fork = _button("Branch here", "fork", min_width=100)
                self.close = _button("Close", "close", scale=0, min_width=108)
            with gr.Row(elem_classes="line bottom"):
                self.place = gr.Number(
                    1, label="Go back to token", elem_id="place", min_width=80
                )  # fmt: skip
                self.back = _button("Branch there", "back", scale=0, min_width=132)

    def _compare(self) -> None:
        with _card("Compare", "The next tokens of this branch beside those of another."):
            with gr.Row(elem_classes="line bottom"):
                self.other = gr.Dropdown([], label="Beside", elem_id="other", min_width=80)
                self.compare = _button("Compare", "compare", scale=0, min_width=100)
            self.compared = gr.HTML(elem_id="compared")

    def _elsewhere(self, places: list[str]) -> None:
        about = "As many tokens as Run has, in another cache: the same ones as here?"
        with _card("Go on elsewhere", about):
            with gr.Row(elem_classes="line bottom"):
                self.where = gr.Dropdown(
                    places,
                    value=places[-1],
                    label="Continue in",
                    elem_id="where",
                    min_width=80,
                )
                self.there = _button("Go on", "there", scale=0, min_width=80)
            self.gone = gr.HTML(elem_id="gone")

    def _verdict(self) -> None:
        with gr.Row(elem_classes="card later verdicts"):
            with gr.Column(scale=3, min_width=240):
                gr.HTML("<h2>Verdict</h2><p>Is what comes back still the same thought?</p>")
                self.judge = _button("Save, restore, judge", "judge")
            with gr.Column(scale=9, min_width=280):
                self.judged = gr.HTML(elem_id="judged")

    def _evaluation(self, questions: str, file: str) -> None:
        about = "What do pruning and quantizing cost in answers? Each question is asked of the whole state "
        with _card("Evaluate", about + "and of every setting."):
            with gr.Row(elem_classes="survey"):
                with gr.Column(scale=5, min_width=240):
                    self.prunes = _several(POLICIES, ["keydiff", "snapkv"], "Policies", "prunes")
                with gr.Column(scale=4, min_width=240):
                    shares = [(f"{share:.0%}", share) for share in BUDGETS]
                    self.budgets = _several(shares, [0.25, 0.5], "Tokens that stay", "budgets")
                    self.coders = _several(QUANTIZERS, [], "Quantizers", "quantizers")
                with gr.Column(scale=4, min_width=240):
                    self._questions(questions, file)
            self.scores = gr.HTML(picture.NO_SCORES, elem_id="scores")

    def _questions(self, questions: str, file: str) -> None:
        with gr.Row(elem_classes="line bottom"):
            self.asking = gr.Dropdown(
                [(WORDS[kind], kind) for kind in SETS], value=questions, label="Questions",
                elem_id="questions", min_width=120,
            )  # fmt: skip
            self.samples = gr.Number(
                12, label="How many", scale=0, min_width=96, elem_id="samples", visible=questions != FILE
            )  # fmt: skip
        self.file = gr.Textbox(
            file, label="File: lines of context, question, expected (JSON)", elem_id="file", lines=1,
            max_lines=1, visible=questions == FILE,
        )  # fmt: skip
        with gr.Row(elem_classes="line"):
            self.evaluate = _button("Evaluate", "evaluate")
            self.enough = _button(
                "Stop asking", "enough", scale=0, min_width=110, interactive=False
            )


def _several(values: Any, chosen: list[Any], label: str, name: str) -> gr.CheckboxGroup:
    return gr.CheckboxGroup(
        list(values), value=chosen, label=label, elem_id=name, elem_classes="several"
    )


def _about(group: str, name: str) -> str:
    """The first line of the option's YAML."""
    return f'<p class="note">{picture.safe(headline(group, name))}</p>'


def _describe(group: str) -> str:
    """JavaScript: the line about the chosen option, without asking the server."""
    names = POLICIES if group == "prune" else QUANTIZERS
    return f"(name) => ({json.dumps({name: _about(group, name) for name in names})})[name] ?? ''"


def _card(title: str, about: str, also: str = "") -> gr.Column:
    card = gr.Column(elem_classes=f"card {also}".split(), min_width=200)
    with card:
        gr.HTML(f"<h2>{title}</h2><p>{about}</p>")
    return card


def _button(label: str, name: str, **keys: object) -> gr.Button:
    return gr.Button(label, elem_id=name, **keys)


def _slider(ends: tuple[float, float], at: float, step: float, label: str, name: str | None = None) -> gr.Slider:  # fmt: skip
    return Slider(*ends, at, step=step, label=label, elem_id=name, buttons=[], min_width=220)
