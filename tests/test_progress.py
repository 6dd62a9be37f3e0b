"""Long work shows a bar where somebody looks, and nothing anywhere else."""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.cells import cell_len
from rich.console import Console

from harness import progress
from harness.model.pace import Pace
from harness.pipeline import drive, yardstick
from harness.report.terminal import bar, fold
from harness.report.terminal.console import Say
from harness.report.terminal.point import Passing

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

    def name(self, what, still=False):
        self.begun.append((what, 0))

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
    calls = [state.token_ids.numel()]
    once = progress.weight(calls) * (loaded.layers + 1)  # and what comes after the layers
    assert seen.done == once == seen.begun[0][1]
    with progress.passes(loaded.model, loaded.layers, "again", calls), torch.no_grad():
        loaded.uncached(state.token_ids, 1)
    assert seen.done == 2 * once
    assert not any(m._forward_hooks for m in loaded.model.modules())


def test_nobody_looks_and_no_hook_is_set(captured) -> None:
    loaded = captured("prompt=text")[0].loaded
    with progress.passes(loaded.model, loaded.layers, "prefill", [8]):
        assert not any(m._forward_hooks for m in loaded.model.modules())


def test_a_verdict_is_one_count_that_is_full_when_all_is_done(seen, captured, monkeypatch) -> None:
    """Of its passes, each under its name; a decode step is the work of several tokens."""
    session, made = captured("prompt=turns")
    loaded, state, sampler = session.loaded, made.state, session.sampler(made.state)
    reference = drive.drive(drive.Uninterrupted(loaded, made.live, state), sampler, 6)
    seen.begun, seen.done, seen.ended = [], 0, 0
    loaded.__dict__.pop("_yardsticks", None)
    yardstick.measure(loaded, state, reference, session.cfg.compare, session.cfg.prompt.chunk)
    (what, total), *parts = seen.begun
    assert (what, seen.ended) == ("judging", 1) and seen.done == pytest.approx(total)
    assert [name for name, _ in parts][2] == "float64 oracle" and len(parts) == 4
    pace = Pace()  # not this machine's, which has more to do at one moment than at another
    pace.rate, pace._stepped = 2e5 * loaded.parameters, True  # 10 us a token
    pace.stepped(1e-3)
    monkeypatch.setattr(loaded, "pace", pace)
    monkeypatch.setattr(loaded.oracle, "_pace", pace)
    few = yardstick.cost(loaded, 1, 100, True).seconds
    assert yardstick.cost(loaded, 1, 100, True, [1] * 8).seconds > 1.3 * few


def test_what_holds_a_count_up_is_named_while_it_does(seen) -> None:
    with progress.meanwhile("kernels"):
        assert not seen.begun  # nothing is counted
    with progress.counting("steps", 4), progress.meanwhile("kernels"):
        assert seen.begun == [("steps", 4), ("kernels", 0)]
    assert seen.begun[2:] == [("", 0)]


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


def test_a_line_that_takes_several_rows_is_taken_away_whole(monkeypatch) -> None:
    """A path longer than the terminal: else its first row stays and the line is there twice."""
    file = io.StringIO()
    display = bar.Bar(Console(file=file, force_terminal=True, width=40))
    display.line = "  load " + "a" * 80 + " ... "
    display.begin("load", 4)
    display.name("kernels", still=True)
    display.end()
    assert file.getvalue().startswith("\r\x1b[2K" + "\x1b[1A\x1b[2K" * 2 + "\x1b[?25l")


def test_a_stage_breaks_between_words_on_a_terminal_and_nowhere_else() -> None:
    path = "runs/" + "long" * 12
    start, line = fold.continued("", "  load a snapshot ... ", 40)
    assert (start, line) == ("  load a snapshot ... ",) * 2
    more, line = fold.continued(line, f"103 tokens of {path}, verified\n", 40)
    assert path in more and max(len(row) for row in more.split("\n")) <= len(path) + 6
    assert all(row.startswith("    ") for row in more.rstrip().split("\n")[1:])
    assert (
        f"{start}{more}".split() == f"  load a snapshot ... 103 tokens of {path}, verified".split()
    )
    assert fold.continued(start, f"{path}\n", None)[0] == f"{path}\n"
    date = "see runs/save/2026-11-25_10-21-35_6386e4705c"
    assert fold.filled(date, 30).split("\n")[1] == date[4:]


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


def test_a_log_says_once_how_long_long_work_takes(monkeypatch) -> None:
    assert noted(monkeypatch, 1, 40) == ["about 40s in all"]  # that stays true in what is written
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
        with progress.passes(loaded.model, loaded.layers, "prefill", [8]):
            assert not any(m._forward_hooks for m in loaded.model.modules())
    finally:
        progress.show_on(None)


@pytest.mark.parametrize("given", [("task=loop", "text=let k be 5 ."), ("text=let k be 5 .",)])
def test_many_tokens_are_never_a_silent_minute(harness, monkeypatch, given) -> None:
    given = (*given, "steps=12", "compare.oracle=false", "name=long")
    assert " in all" not in harness(*given).out
    monkeypatch.setattr(bar, "SURE", 0)
    monkeypatch.setattr(bar, "LONG", -1)
    shown = harness(*given).out
    stages = [line for line in shown.splitlines() if "about" in line and " in all" in line]
    wanted = ["loop 12 steps"] if "task=loop" in given else ["uninterrupted run", "restored run"]
    assert all(any(w in line for line in stages) for w in wanted), shown


def test_a_note_that_interrupts_no_line_is_a_line(capsys) -> None:
    say = Say()
    say.note("reading 9 tokens: about 7 s")
    say.stage("save")
    say.note("about 8 s")
    assert capsys.readouterr().err == "  reading 9 tokens: about 7 s\n  save ... about 8 s ... "


def on_terminal(given: list[str], cwd: Path, stdout: int | None = subprocess.DEVNULL) -> str:
    """What the real command writes to a terminal of 80 columns: on stderr, where `stdout` is not None."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "80"}
    ours, theirs = pty.openpty()
    done = subprocess.Popen(given, cwd=cwd, env=env, stdout=stdout or theirs, stderr=theirs)
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
    os.close(ours)
    assert done.wait() == 0, text
    return text.decode()


def kept(text: str) -> list[str]:
    """The lines of a terminal after `text`, as far as a line that is taken away goes."""
    return [line.rpartition("\x1b[2K")[2].strip("\r") for line in text.split("\n")]


def command(*given: str) -> list[str]:
    code = (
        "from harness.report.terminal import bar, point; bar.MOMENT = bar.OFTEN = bar.SOME = 0\n"
        "point.OFTEN = point.SOME = 0\n"
        "from harness.__main__ import main; raise SystemExit(main())"
    )
    return [sys.executable, "-c", code, *given, "track=none"]


def test_a_terminal_sees_it_and_a_pipe_does_not(tmp_path, fresh) -> None:
    """The real command, its stderr once a terminal and once a pipe."""
    given = command("steps=4", "prompt=text")
    text = on_terminal(given, tmp_path)
    assert "float64 oracle" in text and "left" in text and "prefill" in text
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    piped = fresh(given, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert "\x1b" not in piped.stderr and "left" not in piped.stderr and piped.returncode == 0
    assert "capture ... " in piped.stderr


@pytest.mark.slow
def test_a_sweep_shows_what_its_point_does_and_leaves_only_the_points(tmp_path, fresh) -> None:
    given = command("-m", "cache=manual,cloned", "steps=4", "prompt=text")
    text = on_terminal(given, tmp_path, None)
    for shown in (
        "[1/2] cache=manual: torch ...",
        "[1/2] cache=manual: noise floor, oracle, verdict ... ",  # and how far
        "[2/2] cache=cloned: noise floor, oracle, verdict ...",  # which is known by then
        "the whole sweep: its table and page ...",
    ):
        assert shown in text
    assert "% " in text and "left" in text
    told = [line for line in kept(text) if " ..." in line or "[" in line]
    assert [line[:5] for line in told] == ["[1/2]", "[2/2]"], told
    assert all(".../" in line for line in told)  # the line of the point, with its folder
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    piped = fresh(given, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert not piped.stderr and "\x1b" not in piped.stdout and piped.returncode == 0
    workers = command(*given[3:-1], "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    text = on_terminal(workers, tmp_path, None)
    assert "\x1b[2K[" not in text and "\x1b[2Kthe whole sweep: " in text


def test_a_line_that_passes_fits_the_terminal_and_yields_to_what_is_printed() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=60)
    passing = Passing(console, "[1/2] text=" + "wort \u8a9e " * 20)
    say = Say(True, passing)
    say.stage("noise floor, oracle")
    shown = file.getvalue().rpartition("\x1b[2K")[2]
    assert cell_len(shown) <= 59 and shown.startswith("[1/2] text=") and "\u2026" in shown
    assert shown.endswith("noise floor, oracle ...")
    say.line("a result")
    assert file.getvalue().endswith("\x1b[2K")  # gone
    say.line("it is stre", end="")
    before = file.getvalue()
    say.stage("more")  # would take away what stands there
    assert file.getvalue() == before
