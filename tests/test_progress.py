"""Long work shows a bar where somebody looks, and nothing anywhere else."""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from harness import progress
from harness.report import bar
from harness.report.console import Say

ROOT = Path(__file__).resolve().parent.parent


class Seen:
    """Counts what it is told."""

    close = True

    def __init__(self) -> None:
        self.begun: list[tuple[str, float]] = []
        self.done = self.ended = 0

    def begin(self, what, total):
        self.begun.append((what, total))

    def advance(self, by):
        self.done += by

    def end(self):
        self.ended += 1


@pytest.fixture
def seen():
    display = Seen()
    progress.show_on(display)
    yield display
    progress.show_on(None)


def test_only_the_outermost_count_is_shown(seen) -> None:
    for _ in progress.over(range(3), "prompts", 3):
        with progress.counting("prefill", 100) as done:
            done(100)
    assert (seen.begun, seen.done, seen.ended) == ([("prompts", 3)], 3, 1)


def test_a_pass_is_counted_layer_by_layer_and_leaves_no_hook(seen, captured) -> None:
    session, made = captured("prompt=text")
    loaded, state = session.loaded, made.state
    tokens = state.token_ids.numel()
    assert seen.done == tokens * loaded.layers == seen.begun[0][1]
    with progress.passes(loaded.model, loaded.layers, "again", tokens), torch.no_grad():
        loaded.uncached(state.token_ids, 1)
    assert seen.done == 2 * tokens * loaded.layers
    assert not any(m._forward_hooks for m in loaded.model.modules())


def test_nobody_looks_and_no_hook_is_set(captured) -> None:
    loaded = captured("prompt=text")[0].loaded
    with progress.passes(loaded.model, loaded.layers, "prefill", 8):
        assert not any(m._forward_hooks for m in loaded.model.modules())


def shown(monkeypatch, **settings) -> str:
    """What a bar of 4 steps, a second each, leaves on a terminal."""
    clock = iter(range(100))
    monkeypatch.setattr(bar.time, "monotonic", lambda: float(next(clock)))
    file = io.StringIO()
    display = bar.Bar(Console(file=file, force_terminal=True, width=80, **settings))
    display.line = "  prefill ... "
    display.begin("prefill", 4)
    for _ in range(4):
        display.advance(1)
    display.end()
    return file.getvalue()


def test_a_bar_says_how_much_is_left_and_gives_the_line_back(monkeypatch) -> None:
    text = shown(monkeypatch)
    first = text[text.index("25%") : text.index("50%")]
    assert "left" not in first and "2s left" in text and "1s left" in text
    assert text.endswith("  prefill ... ")


def test_where_nothing_is_done_yet_no_estimate_is_made(monkeypatch) -> None:
    monkeypatch.setattr(bar, "MOMENT", 0)
    monkeypatch.setattr(bar, "OFTEN", 0)
    file = io.StringIO()
    display = bar.Bar(Console(file=file, force_terminal=True, width=80))
    display.begin("write", 4)
    display.advance(0)  # an empty tensor, say
    assert not file.getvalue()
    display.advance(1)
    display.end()
    assert "25%" in file.getvalue()


def test_a_bar_without_colour_has_none(monkeypatch) -> None:
    plain = shown(monkeypatch, no_color=True)
    assert "2s left" in plain and "\x1b[3" not in plain and "\x1b[9" not in plain
    assert "\x1b[3" in shown(monkeypatch)


def noted(monkeypatch, seconds: float, steps: int) -> list[str]:
    """What a log says of `steps` steps that take `seconds` each."""
    clock = (seconds * tick for tick in range(1000))
    monkeypatch.setattr(bar.time, "monotonic", lambda: next(clock))
    said: list[str] = []
    display = bar.Estimate(said.append)
    display.begin("steps", steps)
    for _ in range(steps):
        display.advance(1)
    display.end()
    return said


def test_a_log_says_once_how_much_is_left_of_long_work(monkeypatch) -> None:
    assert noted(monkeypatch, 1, 40) == ["about 37s left"]
    assert noted(monkeypatch, 1, 8) == [] == noted(monkeypatch, 0.01, 100)


@pytest.mark.parametrize("slow", [0, 3])
def test_a_step_that_imports_or_compiles_promises_nothing(slow) -> None:
    """The twin: at the mean of all steps, 81 of 0.25 s after one of 13 s are promised as 17 minutes."""
    pace, now, said = bar.Pace(81, 0.0), 0.0, []
    for step in range(12):
        now += 13.0 if step == slow else 0.25
        pace.advance(1, now)
        said.append(pace.rest(bar.SOME))
    assert said[0] is None and said[-1] == pytest.approx(69 * 0.25)
    assert max(s for s in said if s is not None) < 21
    assert now / pace.done * 69 > 80  # the mean


def test_a_log_counts_no_layers(captured) -> None:
    """A pass is announced before it starts: hooks would tell the same again."""
    loaded = captured("prompt=text")[0].loaded
    progress.show_on(bar.Estimate(lambda text: None))
    try:
        with progress.passes(loaded.model, loaded.layers, "prefill", 8):
            assert not any(m._forward_hooks for m in loaded.model.modules())
    finally:
        progress.show_on(None)


@pytest.mark.parametrize("given", [("task=loop", "text=let k be 5 ."), ("text=let k be 5 .",)])
def test_many_tokens_are_never_a_silent_minute(harness, monkeypatch, given) -> None:
    given = (*given, "steps=12", "compare.oracle=false", "name=long")
    assert " left" not in harness(*given).out
    monkeypatch.setattr(bar, "SURE", 0)
    monkeypatch.setattr(bar, "LONG", -1)
    shown = harness(*given).out
    stages = [line for line in shown.splitlines() if "about" in line and " left" in line]
    wanted = ["loop 12 steps"] if "task=loop" in given else ["uninterrupted run", "restored run"]
    assert all(any(w in line for line in stages) for w in wanted), shown


def test_a_note_that_interrupts_no_line_is_a_line(capsys) -> None:
    say = Say()
    say.note("reading 9 tokens: about 7 s")
    say.stage("save")
    say.note("about 8 s")
    assert capsys.readouterr().err == "  reading 9 tokens: about 7 s\n  save ... about 8 s ... "


def test_a_terminal_sees_it_and_a_pipe_does_not(tmp_path) -> None:
    """The real command, its stderr once a terminal and once a pipe."""
    code = (
        "from harness.report import bar; bar.MOMENT = bar.OFTEN = bar.SOME = 0\n"
        "from harness.__main__ import main; raise SystemExit(main())"
    )
    given = [sys.executable, "-c", code, "steps=4", "track=none", "prompt=text"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "80"}
    ours, theirs = pty.openpty()
    done = subprocess.Popen(given, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    text = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        text += part
        if not part:
            break
    assert done.wait() == 0
    assert b"float64 oracle" in text and b"left" in text and b"prefill" in text
    piped = subprocess.run(given, cwd=tmp_path, env=env, capture_output=True)
    assert b"\x1b" not in piped.stderr and b"left" not in piped.stderr and piped.returncode == 0
