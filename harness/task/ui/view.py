"""What every control shows of a desk."""

from typing import Any

import gradio as gr

from harness.task.ui import picture, words
from harness.task.ui.desk import Desk
from harness.task.ui.layout import HEATS, NUCLEI, PENALTIES, TOPS, Controls

ENDS = {"temperature": HEATS, "top_k": TOPS, "top_p": NUCLEI, "repetition_penalty": PENALTIES}


class View:
    """controls: those of one page. `acts` can be done while there is a thought and nothing is at work;
    `asked` are those of an evaluation."""

    def __init__(self, controls: Controls):
        self.c = c = controls
        self.acts = [
            c.step, c.run, c.add, c.pruned, c.save, c.fork, c.judge, c.coded, c.close, c.back, c.there,
        ]  # fmt: skip
        self.asked = [c.scores, c.evaluate, c.enough, c.status]
        self.everything = [
            c.desk, c.tab, c.undo, c.redo, c.thought, c.likely, c.cache, c.status, c.keep, c.current, c.other, c.compare,
            c.compared, c.gone, c.loaded, c.load, c.how, c.temperature, c.top_k, c.top_p, c.penalty,
            c.choice, c.judged, c.prompt, c.begin, c.stop, c.more, c.name, *self.acts,
        ]  # fmt: skip

    def _view(self, desk: Desk, said: str) -> dict[Any, Any]:
        """What every act may change. What a person set or typed is left alone."""
        c, busy = self.c, desk.running is not None
        ready, many, saved = bool(desk.branches), len(desk.branches) > 1, desk.shelf.names()
        kept = desk.branch.state.kept_tokens if ready else 1
        return {
            c.desk: desk,
            c.thought: picture.thought(desk),
            c.likely: picture.likely(desk),
            c.cache: picture.cache(desk),
            c.status: self._status(desk, said),
            c.keep: gr.update(maximum=max(kept, 2), interactive=ready),
            c.current: gr.update(choices=_named(desk), value=desk.current or None),
            c.loaded: gr.update(choices=saved, interactive=bool(saved)),
            c.choice: gr.update(label=f"Sampling: {desk.sampling.name}"),
            **{box: gr.update(**range_) for box, _, range_ in self._settings(desk.sampling)},
            c.compared: picture.compared(desk),
            c.gone: picture.went(desk),
            c.judged: picture.judged(desk),
            c.begin: gr.update(variant="secondary" if ready else "primary", interactive=not busy),
            c.load: gr.update(interactive=bool(saved) and not busy),
            c.undo: gr.update(interactive=desk.undoable and not busy),
            c.redo: gr.update(interactive=desk.redoable and not busy),
            c.compare: gr.update(interactive=many and not busy),
            c.stop: gr.update(interactive=busy),
            **{field: gr.update(interactive=ready) for field in (c.more, c.name)},
            **{act: gr.update(interactive=ready and not busy) for act in self.acts},
        }

    def _status(self, desk: Desk, said: str) -> str:
        """What is said. How far work is changes many times a second, and is not read out."""
        quiet = ' aria-hidden="true"' if desk.running is not None else ""
        return f'<div class="told"{quiet}>{said}{picture.problems(desk.unkept)}</div>'

    def _turned(self, desk: Desk) -> dict[Any, Any]:
        """What the controls say once another state or another branch is the current one."""
        c, s, many = self.c, desk.sampling, len(desk.branches) > 1
        kept = desk.branch.state.kept_tokens if desk.branches else 1
        others = [name for name in desk.branches if name != desk.current]
        keep = desk.typed.get("keep")
        if not isinstance(keep, int | float) or not 1 <= keep <= kept:
            keep = max(kept // 2, 1)
        return {
            c.keep: gr.update(maximum=max(kept, 2), value=keep, interactive=bool(desk.branches)),
            c.other: gr.update(
                choices=others, value=others[-1] if many else None, interactive=many
            ),
            c.how: s.name,
            **{box: gr.update(value=at, **range_) for box, at, range_ in self._settings(s)},
        }

    def _typed(self, desk: Desk) -> dict[Any, Any]:
        """What was set on the page, set again; what is no choice any more is left."""
        made = {}
        for name, value in desk.typed.items():
            control = self.c.typed.get(name)
            known = [at for _, at in getattr(control, "choices", ())]
            several = value if isinstance(value, list) else [value]
            if control is not None and name != "keep" and (not known or all(one in known for one in several)):  # fmt: skip
                made[control] = gr.update(value=value)
        return made

    def _settings(self, sampling: Any) -> list[tuple[Any, float, dict[str, float]]]:
        """Each box of a sampling number, the number, and the ends of the box."""
        c = self.c
        boxes = dict(zip(ENDS, (c.temperature, c.top_k, c.top_p, c.penalty), strict=True))
        return [(box, getattr(sampling, key), ends(sampling)[key]) for key, box in boxes.items()]

    def _chosen(self, desk: Desk, name: str | None) -> dict[Any, Any]:
        saved = desk.shelf.names()
        return {self.c.loaded: gr.update(choices=saved, value=name, interactive=bool(saved))}


def ends(sampling: Any) -> dict[str, dict[str, float]]:
    """The least and the largest of every sampling number that its box takes: a snapshot's own may lie beyond."""
    now = {key: getattr(sampling, key) for key in ENDS}
    return {
        key: {"minimum": min(low, now[key]), "maximum": max(high, now[key])}
        for key, (low, high) in ENDS.items()
    }


def inside(sampling: Any, typed: dict[str, float]) -> tuple[dict[str, float], list[str]]:
    """The numbers that hold where `typed` are asked for, as their boxes show them in the end: each within its
    box's ends, top-k whole; and what was moved, in words."""
    held, moved = {}, []
    for key, number in typed.items():
        low, high = ends(sampling)[key].values()
        held[key] = min(max(int(number) if key == "top_k" else float(number), low), high)
        if held[key] != number:
            moved.append(f"{key.replace('_', ' ')} {number:g} is not from {low:g} to {high:g}")
    return held, moved


def _named(desk: Desk) -> list[tuple[str, str]]:
    """Each branch as a person tells it from the others."""
    each = desk.branches.items()
    return [(f"{name}: {words.counted(branch.state.tokens)}", name) for name, branch in each]
