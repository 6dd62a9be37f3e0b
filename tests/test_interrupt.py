"""Ctrl-C and `kill` at any moment: one plain line, nothing half-written, what is finished is kept."""

import gc
import io
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import weakref
from pathlib import Path

import pytest
from crossing import crossed
from stopping import Running, after, folders, listens, says

from harness import interrupt
from harness.report.terminal.console import Say
from harness.save import atomic, store

LONG = " ".join(["let k be 5 . the bird sang ."] * 50)


MOMENTS = {
    "listens": listens,
    "composes": after(listens, 0.2),
    "imports torch": after(says("torch ..."), 0.3),
    "imports transformers": says("transformers ..."),
}


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc to see a handler in")
@pytest.mark.parametrize(
    "when, number",
    [
        *crossed([*MOMENTS][:2], ["SIGINT", "SIGTERM"]),
        *(
            pytest.param(m, s, marks=pytest.mark.slow)
            for m in [*MOMENTS][2:]
            for s in ("SIGINT", "SIGTERM")
        ),
    ],
)
def test_while_it_starts(place, when, number) -> None:
    said = Running(place, "track=none").stop(MOMENTS[when], signal.Signals[number])
    assert "nothing was written" in said and not folders(place)


def test_what_a_library_made_of_a_signal_is_no_fault_of_a_point(tmp_path, monkeypatch) -> None:
    """Omegaconf, cut off in its middle, says that the configuration is wrong; the point was only stopped."""
    from harness import task
    from harness.errors import ConfigProblem

    def cut():
        raise ConfigProblem("'NoneType' object has no attribute")

    assert task.dispatch(cut, tmp_path / "0", sweep=True).verdict == "failed"
    monkeypatch.setattr(interrupt, "_last", [(time.monotonic(), 130)])
    with pytest.raises(interrupt.Stopped):
        task.dispatch(cut, tmp_path / "1", sweep=True)
    assert not (tmp_path / "1" / "result.json").exists()


@pytest.mark.parametrize(
    "begin", [lambda say: say.stage("model"), lambda say: say.line("a", end="")]
)
def test_a_signal_that_comes_as_soon_as_a_line_is_begun(begin, monkeypatch) -> None:
    """Writing gives others their turn, so that is when many a signal arrives."""

    class Cut(io.StringIO):
        def flush(self) -> None:
            if not self.getvalue().endswith("\n"):
                raise interrupt.Stopped

    shown = Cut()
    monkeypatch.setattr(sys, "stderr", shown)
    say = Say()
    say.out.file = shown
    with pytest.raises(interrupt.Stopped):
        begin(say)
    say.problem("harness: interrupted")
    assert shown.getvalue().splitlines()[1:] == ["harness: interrupted"]


@pytest.mark.slow
def test_in_the_middle_of_a_capture(place) -> None:
    text = " ".join(["the bird sang ."] * 110)
    running = Running(place, f"text={text}", "steps=2", "track=none", "prompt.chunk=1")
    said = running.stop(says("capture ..."))
    assert "at 'capture'; nothing was written." in said and not folders(place)


def test_in_the_middle_of_a_save_over_an_old_snapshot(place, captured) -> None:
    session, made = captured("text='let k be 5 .'")
    store.save(made.state, place / "mine", session.cfg.save)
    before = (place / "mine" / "manifest.json").read_bytes()
    shape = ["model=shape", "model.config.hidden_size=512", "model.config.num_hidden_layers=8",
             "model.config.num_attention_heads=8", "model.config.num_key_value_heads=8"]  # fmt: skip
    running = Running(place, "task=save", f"text={LONG}", "out=mine", "overwrite=true", "save=gzip", *shape)  # fmt: skip
    said = running.stop(lambda r: bool(list(place.glob(".mine.*.tmp/kv-*"))))
    assert "at 'save gzip'; kept: the old snapshot mine." in said
    assert (place / "mine" / "manifest.json").read_bytes() == before
    assert store.faults(place / "mine") == [] and not folders(place)


@pytest.mark.slow
def test_while_resumed_text_streams(place, captured) -> None:
    session, made = captured("text='let k be 5 .'")
    manifest = store.save(made.state, place / "mine", session.cfg.save)
    running = Running(place, "task=resume", "snapshot=mine", "text= the bird", "steps=400",
                      "out=next", "track=none", "sampling=sample")  # fmt: skip
    said = running.stop(lambda r: len(r.out) > 60, signal.SIGTERM)
    assert "terminated in task=resume; out=next was not written." in said
    assert running.out.endswith("\n") and not folders(place) and not (place / "next").exists()
    assert store.load(place / "mine")[1] == manifest


@pytest.mark.slow
def test_in_a_chat_the_finished_turns_are_kept(place) -> None:
    running = Running(place, "task=chat", "steps=12", "track=none")
    said = running.stop(lambda r: r.out.count("user:") > 3)
    (folder,) = folders(place)
    turns = sorted((folder / "snapshot").iterdir())
    assert len(turns) >= 3 and all(store.faults(t) == [] for t in turns)
    assert f"kept: {len(turns)} finished snapshots, the last of them" in said
    assert said.endswith(f"{turns[-1].relative_to(place)}.")
    assert not list(folder.glob("*.html")) and not (folder / "result.json").exists()


def uploading(running: Running) -> bool:
    return any("run_id" in p.read_text() for p in running.place.glob("runs/*/*/pending.json"))


@pytest.mark.slow
def test_while_it_is_tracked(place) -> None:
    said = Running(place, "steps=2", "prompt=text").stop(uploading)
    (folder,) = folders(place)
    assert f"the result is complete in {folder.relative_to(place)}, its upload" in said
    assert (folder / "result.json").exists() and (folder / "report.html").exists()
    store = sqlite3.connect(place / "runs" / "mlflow.db")
    assert store.execute("select status from runs").fetchall() == [("KILLED",)]


@pytest.mark.slow
def test_in_the_middle_of_a_sweep(place, process) -> None:
    running = Running(place, "-m", "steps=2", "prompt=text", "seed=1,2,3", "name=x")
    said = running.stop(says("[1/3]"), signal.SIGTERM)
    (folder,) = folders(place)
    count = int(re.search(r"(\d) of 3 points", said)[1])
    assert 1 <= count < 3 and said.endswith(f"-m resume={folder.relative_to(place)}")
    assert len((folder / "sweep.csv").read_text().splitlines()) == count + 1
    store = sqlite3.connect(place / "runs" / "mlflow.db")
    assert not store.execute("select 1 from runs where status = 'RUNNING'").fetchall()
    done = process(*said.split("python -m harness ")[1].split())
    assert done.code == 0 and len(list(folder.glob("*/record.json"))) == 3


def waited() -> None:
    """Until a signal that was put off comes, which takes a fraction of a second."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        time.sleep(0.01)


def test_an_import_is_not_cut_in_two(tmp_path, monkeypatch, capfd) -> None:
    """What starts in C++ imports in Python, and ends the process when that raises: the signal waits, which is
    said at once, and once."""
    (tmp_path / "halved.py").write_text(
        "import os, signal, time\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "time.sleep(0.1)\n"
        "whole = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(interrupt.Stopped), interrupt.listening():
        import halved

        assert halved.whole
        assert capfd.readouterr().err.strip() == interrupt.WAITS.strip()
        waited()
    assert sys.modules.pop("halved").whole


def test_what_is_handed_to_the_compiler_is_handed_whole() -> None:
    source = (
        "def give(owned):\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "    owned.append(False)\n"
        "    time.sleep(0.2)\n"
    )
    for place, owned in (("llvmlite/binding/module.py", [False]), ("elsewhere/module.py", [])):
        names = {"signal": signal, "time": time}
        exec(compile(source, os.path.join(os.sep, "packages", *place.split("/")), "exec"), names)
        given: list[bool] = []
        with pytest.raises(interrupt.Stopped), interrupt.listening():
            names["give"](given)
            waited()
        assert given == owned


def test_a_job_that_is_itself_imported_can_be_stopped(tmp_path, monkeypatch) -> None:
    (tmp_path / "job.py").write_text(
        "import os, signal, time\n"
        "from harness import interrupt\n"
        "try:\n"
        "    with interrupt.listening():\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        time.sleep(60)\n"
        "except interrupt.Stopped:\n"
        "    stopped = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    began = time.monotonic()
    import job

    assert job.stopped and time.monotonic() < began + 30


def test_what_is_held_is_done_whole(tmp_path) -> None:
    done = []
    with interrupt.listening(), pytest.raises(interrupt.Stopped), interrupt.held():
        signal.raise_signal(signal.SIGTERM)
        done.append("the end of the block")
    assert done and interrupt.code() == 143
    with pytest.raises(KeyboardInterrupt), interrupt.held():  # under anybody's handler
        signal.raise_signal(signal.SIGINT)
        done.append("again")
    assert len(done) == 2


def test_a_save_told_to_end_leaves_no_trace(tmp_path) -> None:
    with pytest.raises(KeyboardInterrupt), atomic.directory(tmp_path / "s") as growing:
        (growing.path / "half").touch()
        signal.raise_signal(signal.SIGINT)
    assert list(tmp_path.iterdir()) == []


def test_a_signal_that_a_library_swallows_comes_again() -> None:
    class Thing: ...

    def callback(_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    with interrupt.listening(), pytest.raises(interrupt.Stopped):
        thing = Thing()
        held = weakref.ref(thing, callback)
        del thing
        gc.collect()
        waited()
    assert held() is None and interrupt.code() == 130


@pytest.mark.parametrize("taken", [False, True])
def test_a_worker_knows_that_it_was_stopped_although_a_library_made_another_error_of_it(
    taken,
) -> None:
    program = f"""
import signal
from harness import interrupt
from harness.cli import sweep
before = signal.signal(signal.SIGINT, lambda *_: print("its own")) if {taken} else None
sweep._revive("token", {{}}, [])
try:
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        unbound  # as in a library whose `finally` needs what was cut off
except NameError:
    print("stopped" if interrupt.stopped() else "a failed point")
"""
    here = {**os.environ, "PYTHONPATH": str(Path(interrupt.__file__).parents[1])}
    began = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    done = subprocess.run(
        [sys.executable, "-c", program], env=here, capture_output=True, text=True, preexec_fn=began
    )
    assert done.stdout.split("\n")[-2:-1] == ["a failed point" if taken else "stopped"], done


def test_handlers_are_given_back() -> None:
    before = [signal.getsignal(n) for n in interrupt.SIGNALS]
    with interrupt.listening(), interrupt.held():
        assert signal.getsignal(signal.SIGINT) is not before[0]
    assert [signal.getsignal(n) for n in interrupt.SIGNALS] == before


def test_every_handler_is_given_back_although_a_signal_comes_between(monkeypatch) -> None:
    before, install = [signal.getsignal(n) for n in interrupt.SIGNALS], signal.signal

    def cut(number: int, handler: object) -> None:
        install(number, handler)
        if handler is before[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr(signal, "signal", cut)
    with pytest.raises(KeyboardInterrupt), interrupt.held():
        pass
    assert [signal.getsignal(n) for n in interrupt.SIGNALS] == before
