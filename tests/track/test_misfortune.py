"""What befalls a sweep that nobody watches: a point that hangs, a disk that is full, a machine that stops."""

import errno
import os
import random
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest
from tracking import ENV, ROOT, kill, whole

from harness import interrupt
from harness.cli import point, remote
from harness.errors import DiskFull, InputProblem, TooLong, disk_is_full
from harness.pipeline.finish import remedy
from harness.present.messages import worded
from harness.snapshot import record
from harness.task.audit import target
from harness.track.store import brief

HANGS = """
import time
from harness.prune import Policy

class Hangs(Policy):
    def score(self, layer, rank, keep):
        while True:
            time.sleep(1)
"""
YAML = "# Never ends.\n_target_: my_hangs.Hangs\nname: hangs\nratio: 0.5\n"


def test_points_that_hang_are_given_up_and_the_next_is_run(harness, place):
    (place / "conf" / "prune").mkdir(parents=True)
    (place / "my_hangs.py").write_text(HANGS)
    (place / "conf" / "prune" / "hangs.yaml").write_text(YAML)
    done = harness("--config-dir", "conf", "-m", "plugins.path=.", "prune=hangs", "seed=1,2", "steps=1",
                   "limit_s=1")  # fmt: skip
    assert done.code == 1 and "Traceback" not in done.out, done.out
    assert [r["verdict"] for r in done.results] == ["failed"] * 2
    assert all("stopped after limit_s=1 seconds" in worded(r["reason"]) for r in done.results)
    assert all((f / "record.json").is_file() for f in done.folders), "what failed is on record"


def test_a_limit_is_told_again_where_a_library_swallows_it(monkeypatch):
    monkeypatch.setattr(interrupt, "AGAIN", 0.05)
    swallowed = []
    with pytest.raises(TooLong), interrupt.limited(0.05, TooLong(0.05)):
        while True:
            try:
                time.sleep(5)
            except TooLong as problem:
                swallowed.append(problem)
                if len(swallowed) == 3:
                    raise


def test_a_limit_waits_for_what_must_be_done_whole():
    done = []
    with pytest.raises(TooLong), interrupt.limited(0.02, TooLong(0.02)):
        with interrupt.held():
            time.sleep(0.06)
            done.append("sealed")
        done.append("cut")
    assert done == ["sealed"]
    with interrupt.limited(0.02, TooLong(0.02)):
        interrupt.in_time()  # what was measured is being written
        time.sleep(0.04)
    with interrupt.limited(0.02, TooLong(0.02)):
        pass
    time.sleep(0.04)  # nothing is left of it


def test_what_a_full_disk_looks_like_from_afar():
    for number, full in ((errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EACCES, False)):
        problem = InputProblem("cannot write a snapshot")
        problem.__cause__ = OSError(number, "why")
        assert disk_is_full(problem) is full
    assert not issubclass(DiskFull, Exception), "Hydra goes on after those"


@pytest.fixture
def small_disk(place):
    """A disk of 3 MB of its own."""
    disk = place / "runs"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk]
    if os.getuid() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a disk of one's own needs root")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def verdict(folder: Path) -> str:
    return record.read(folder / "result.json")["verdict"]


@pytest.mark.slow
def test_a_disk_that_fills_up_ends_the_sweep_and_resuming_it_runs_the_rest(
    harness, resumed, small_disk
):
    filler = small_disk / "filler"
    filler.write_bytes(bytes(1 << 20))
    full = harness("-m", "seed=range(8)", "steps=1", "prompt=text", "compare.oracle=false")
    assert full.code == 2 and "Traceback" not in full.out, full.out
    assert "No space left" in full.out
    assert "points are finished" in full.out and "-m resume=" in full.out
    (folder,) = (small_disk / "experiment").iterdir()
    done = [p.parent for p in folder.glob("*/record.json") if verdict(p.parent) != "failed"]
    sealed = {p / "record.json": (p / "record.json").read_bytes() for p in done}
    assert 0 < len(sealed) < 8, full.out
    code, said = resumed(folder)
    assert code == 2 and "No space left" in said and "Traceback" not in said, said
    assert (folder / "multirun.yaml").stat().st_size > 1000
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=99m", small_disk], check=True)
    code, said = resumed(folder)
    assert code == 0, said
    assert [verdict(p.parent) for p in folder.glob("*/record.json")] == ["equivalent"] * 8
    assert sealed == {p: p.read_bytes() for p in sealed}, "nothing is run twice"
    assert not any(list(record.broken(p.parent)) for p in folder.glob("*/record.json"))


def test_a_sweep_ends_at_the_first_point_for_which_there_is_no_room(harness, small_disk):
    subprocess.run(["mount", "-o", "remount,size=150k", small_disk], check=True)
    full = harness("-m", "steps=1,2,3")
    assert full.code == 2 and "0 of 3 points are finished. Go on with: " in full.out, full.out
    assert "are free there. Nothing was written" in full.out and "[1/3]" not in full.out
    assert not list(small_disk.glob("experiment/*/*/result.json"))


def test_of_an_experiment_that_was_deleted_another_is_offered():
    gone = Exception(
        "The experiment 7 must be in the 'active' state. Current state is deleted.\nmore"
    )
    assert brief(gone) == "The experiment 7 must be in the 'active' state. Current state is deleted"
    assert "resume=runs/1 track.experiment=OTHER`" in remedy(Path("runs/1"), brief(gone), False)
    assert "server" not in remedy(Path("runs/1"), "the disk is full", False)


def test_what_mlflow_says_is_passed_on_without_who_asks():
    said = brief(Exception("no answer from http://me:secret@host:5000/x " + "and so on " * 99))
    assert said.startswith("no answer from http://host:5000/x") and said.endswith(" ...")
    assert brief(OSError()) == "OSError"


@pytest.mark.parametrize("code, said", [(401, "401"), (403, "403")])
def test_a_server_that_does_not_let_one_in_is_told(tmp_path, code, said):
    """Also where an audit cannot look up a run there, which it may well have."""

    class Closed(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(code)

        do_POST = do_GET

        def log_message(self, *words) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Closed) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = SimpleNamespace(name="mlflow", uri=f"http://127.0.0.1:{server.server_port}",
                                   experiment="harness", artifact_limit_mb=16.0)  # fmt: skip
        cfg = SimpleNamespace(track=settings, runs_dir=str(tmp_path), run="0" * 32)
        with pytest.raises(InputProblem, match=f"cannot be looked up: http.*{said}"):
            target.located(cfg)
        server.shutdown()


def test_a_point_is_run_by_one_process_at_a_time(tmp_path, capsys):
    """A job on a cluster and the command that resumes its sweep: who comes second waits."""
    order, place = [], tmp_path / "0"

    def second() -> None:
        with point.alone(place):
            order.append("second")

    other = threading.Thread(target=second)
    with point.alone(place), point.alone(tmp_path / "1"):
        other.start()
        time.sleep(0.1)
        order.append("first")
    other.join(10)
    assert order == ["first", "second"] and "run by another process" in capsys.readouterr().err


def test_points_that_run_elsewhere_are_counted_aloud(monkeypatch, capsys):
    monkeypatch.setattr(remote, "FIRST", 0.01)
    done = iter([2, 2, 5, *[9] * 999])
    remote.begin(lambda: next(done), 10)
    time.sleep(0.2)
    remote.end()
    said = capsys.readouterr().err.splitlines()
    assert [line.split("]")[0] for line in said] == ["[5", "[9"] and "of 10 points" in said[0]


@pytest.mark.slow
def test_a_machine_that_stops_again_and_again(tmp_path):
    """The sweep and all its processes are killed at any moment, and resumed, until it is done."""
    command = [sys.executable, "-m", "harness", "-m", "steps=4", "seed=range(8)",
               f"runs_dir={tmp_path}", "name=sweep"]  # fmt: skip
    moments, last, stops = random.Random(8), None, 0
    while last is None or last.poll() != 0:
        last = subprocess.Popen(command, cwd=ROOT, env=ENV, stdout=subprocess.DEVNULL,
                                stderr=(tmp_path / "said").open("a"), start_new_session=True)  # fmt: skip
        try:
            last.wait(moments.uniform(4, 16) if stops < 8 else 300)
        except subprocess.TimeoutExpired:
            kill(last)
            stops += 1
        folders: list[Path] = list((tmp_path / "sweep").glob("*/multirun.yaml"))
        if folders:
            command = [sys.executable, "-m", "harness", "-m", f"resume={folders[0].parent}"]
    assert stops and "Traceback" not in (tmp_path / "said").read_text()
    whole(tmp_path / "mlflow.db", folders[0].parent, 8)
    assert not any(list(record.broken(p.parent)) for p in folders[0].parent.glob("*/record.json"))
