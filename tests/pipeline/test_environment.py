"""The record of a run says all that a second run needs."""

import hashlib
import subprocess
from datetime import UTC, datetime
from importlib import metadata

import torch

from harness.pipeline import environment
from harness.snapshot import record
from harness.task.audit.difference import changes


def test_the_record_says_what_a_second_run_needs(harness) -> None:
    given = ("steps=2", "seed=3", "sampling=sample", "sampling.seed=5", "prompt=text")
    folder = harness(*given).folders[0]
    where = record.read(folder / "result.json")["environment"]
    assert where["command"] == ["python", "-m", "harness", *given, "track=none"]
    assert (where["seed"], where["sampling_seed"]) == (3, 5)
    ended = datetime.fromisoformat(where["date"])
    assert 0 <= (datetime.now(UTC) - ended).total_seconds() < 600
    page = (folder / "report.html").read_text()
    asked = "prompt text, steps 2, seed 3, sampling.seed 5"
    assert f"float32 on cpu, {asked}, {ended:%Y-%m-%d %H:%M} UTC</p>" in page
    later = {**where, "date": "2031-01-01T00:00:00+00:00"}
    one, two, other = ({"environment": e} for e in (where, later, {**where, "cores": 0}))
    assert changes(one, two) == [] and changes(one, other)
    assert where["threads"] == torch.get_num_threads() and where["cores"] >= 1
    assert where["interop_threads"] == torch.get_num_interop_threads()
    assert where["cpu"] and where["cpu_capability"] and where["device"] == "cpu"
    assert where["variables"]["OMP_NUM_THREADS"]
    for name in environment.PACKAGES:
        assert where["versions"][name] == metadata.version(name)
    held = record.read(folder / record.NAME)
    assert held["packages"].items() >= {k: metadata.version(k) for k in ("pip", "torch")}.items()
    config = held["config"]  # resolved: every key of every group, not only what was typed
    assert config["seed"] == 3 and config["sampling"]["seed"] == 5 and config["steps"] == 2
    assert config["cache"]["name"] == "auto" and config["compare"]["limit"] > 0
    assert "${" not in str(config)


def test_the_commit_and_what_is_not_committed(tmp_path, monkeypatch) -> None:
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True).stdout  # fmt: skip

    monkeypatch.setattr(environment, "PACKAGE", tmp_path)
    found = environment.checkout.__wrapped__
    assert found() == {"commit": None, "dirty": False, "diff_digest": None}
    git("init")
    (tmp_path / "a.py").write_text("a = 1\n")
    git("add", ".")
    git("commit", "-m", "a")
    commit = git("rev-parse", "HEAD").strip()
    assert found() == {"commit": commit, "dirty": False, "diff_digest": None}
    (tmp_path / "b.py").write_text("b = 1\n")
    assert found() == {"commit": commit, "dirty": True, "diff_digest": None}
    (tmp_path / "a.py").write_text("a = 2\n")
    digest = hashlib.sha256(git("diff", "HEAD").encode()).hexdigest()
    assert found() == {"commit": commit, "dirty": True, "diff_digest": digest}
