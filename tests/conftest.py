"""Shared fixtures: the shipped model, and the command line run in process or as its own process."""

import io
import json
import os
import pickle
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import inside
import pytest
import warm
from inside import results

ROOT = Path(__file__).resolve().parent.parent
os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", HF_HUB_OFFLINE="1", COLUMNS="100")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models; spinning threads only get in the way

# Who starts the tests in the background of a shell may have told them, and what they start, to ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def parsed_once() -> Iterator[None]:
    """The same YAML text is parsed once in a process: each command line reads twenty files of `conf/`,
    twice, a tenth of what it does here. What cannot be parsed is parsed, and refused, each time."""
    from omegaconf import OmegaConf

    plain, known = OmegaConf.load, {}

    def load(file):
        if not isinstance(file, io.TextIOBase):
            return plain(file)
        begin = file.tell()
        if (text := file.read()) not in known:
            file.seek(begin)
            known[text] = pickle.dumps(plain(file))
        return pickle.loads(known[text])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OmegaConf, "load", staticmethod(load))
        yield


@pytest.fixture(scope="session", autouse=True)
def composed_once() -> Iterator[None]:
    """Hydra composes each command line twice, the first time only to see whether `hydra.mode` is set: half of what a
    run takes here. It is asked where something typed, or a configuration from outside, may set it."""
    from hydra._internal.hydra import Hydra

    plain = Hydra.get_mode

    def mode(self, config_name, overrides):
        outside = any(a.startswith(("--config", "-c", "--exp")) for a in sys.argv)
        if outside or any("hydra.mode" in o or "experiment" in o for o in overrides):
            return plain(self, config_name, overrides)
        return None  # as it says where nothing sets it

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Hydra, "get_mode", mode)
        yield


@dataclass
class Done:
    """What one command line left behind."""

    code: int
    out: str
    folders: list[Path]

    @property
    def results(self) -> list[dict]:
        return [json.loads((f / "result.json").read_text()) for f in self.folders]

    @property
    def result(self) -> dict:
        assert len(self.folders) == 1, self.out
        return self.results[0]

    @property
    def reason(self) -> str:
        """Why, as a sentence."""
        from harness.present.messages import worded

        return worded(self.result["reason"])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def fresh() -> Iterator[Callable[..., subprocess.CompletedProcess]]:
    """`subprocess.run` of `python -m MODULE`, its imports done beforehand."""
    with warm.serving() as run:
        yield run


@pytest.fixture
def harness(place: Path, capfd, fresh) -> Callable[..., Done]:
    """Run the command line in this process, without MLflow unless asked for; models are shared. The process
    in which an audit runs a record again is a forked one; those of `shell` and `process` start their own."""

    def run(*arguments: str, track: str = "none") -> Done:
        before = results(place)
        tracked = any(a.startswith("track") for a in arguments)
        given = [*arguments] if tracked else [*arguments, f"track={track}"]
        code = inside.run(given, fresh)
        shown = capfd.readouterr()
        found = sorted(results(place) - before)
        return Done(code, shown.out + shown.err, [f.parent for f in found])

    return run


def early(env: dict[str, str]) -> set[str]:
    """The names in `env` that may be read while what a run imports is imported."""
    return {name for name in env if name != "PATH" and not name.startswith("MLFLOW_")}


@pytest.fixture
def process(place: Path, fresh) -> Callable[..., Done]:
    """Run the command line as its own process; with an environment of its own, from its very start."""

    def run(*arguments: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> Done:
        where = cwd or place
        before = results(where)
        start = subprocess.run if early(env or {}) else fresh
        done = start(
            [sys.executable, "-m", "harness", *arguments], cwd=where, capture_output=True,
            text=True, timeout=900, env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        )  # fmt: skip
        found = sorted(results(where) - before)
        return Done(done.returncode, done.stdout + done.stderr, [f.parent for f in found])

    return run


@pytest.fixture(scope="session")
def compose() -> Callable[..., object]:
    """A checked Config from overrides, as the command line would compose it."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir

    from harness import config

    def make(*overrides: str) -> object:
        config.register()
        with initialize_config_dir(str(config.conf_dir()), version_base="1.3"):
            return config.typed(hydra_compose("config", list(overrides)))

    return make


@pytest.fixture(scope="session")
def session(compose, tmp_path_factory) -> Callable[..., object]:
    """An open Session for overrides, quiet; models are shared between equal configurations."""
    from harness.pipeline.session import Session
    from harness.report.terminal.console import Say

    def make(*overrides: str) -> object:
        cfg = compose("track=none", *overrides)
        return Session.open(cfg, tmp_path_factory.mktemp("run"), Say(quiet=True))

    return make


@pytest.fixture
def captured(session) -> Callable[..., tuple]:
    """`(session, Captured)` for overrides."""
    from harness.model.sampler import Sampler

    def make(*overrides: str) -> tuple:
        opened = session(*overrides)
        return opened, opened.capture(opened.encoded(), Sampler(opened.cfg.sampling))

    return make


@pytest.fixture(scope="session")
def shell(fresh) -> Callable[..., subprocess.CompletedProcess]:
    """The command line as its own process, for records that several tests share; with an environment of
    its own, from its very start."""

    def run(*arguments: str, **env: str) -> subprocess.CompletedProcess:
        start = subprocess.run if early(env) else fresh
        return start(
            [sys.executable, "-m", "harness", *arguments], cwd=ROOT, capture_output=True, text=True,
            timeout=500, env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "160", **env},
        )  # fmt: skip

    return run


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    """The `runs_dir` of the shared records."""
    return tmp_path_factory.mktemp("records") / "runs"


@pytest.fixture(scope="session")
def swept(runs, shell) -> Path:
    """A tracked sweep of six points, three of which fail (a prompt too short for its batch). Tests resume copies
    of it, into its own run in the store: in `as_swept` is the store as the sweep left it."""
    done = shell("-m", "steps=6", f"runs_dir={runs}", "name=swept",
                 "cache=dynamic,cloned,manual", "prompt.batch=1,99")  # fmt: skip
    assert done.returncode == 2, done.stdout + done.stderr
    (folder,) = (runs / "swept").iterdir()
    (folder / "console.txt").write_text(done.stdout)
    kept = runs / "as_swept"
    shutil.copytree(runs / "artifacts", kept / "artifacts")
    shutil.copy(runs / "mlflow.db", kept)
    with sqlite3.connect(kept / "mlflow.db") as store:
        there = (f"{runs}/artifacts", f"{kept}/artifacts")
        store.execute("update runs set artifact_uri = replace(artifact_uri, ?, ?)", there)
    return folder


@pytest.fixture(scope="session")
def recorded(runs, shell) -> Path:
    """One tracked run, with sampling, so that seeds matter."""
    done = shell("steps=6", f"runs_dir={runs}", "name=recorded", "sampling=sample")
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (runs / "recorded").iterdir()
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A headless Chromium; tests that ask for it carry `browsing.needs_browser`."""
    from browsing import started

    driver = started(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


@cache
def shares(file: Path) -> bool:
    """Whether tests of this file read the shared sweep."""
    return re.search(r"\bswept\b", file.read_text()) is not None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """A file stays with one worker, as with `--dist=loadfile`; and all that read the shared sweep with the one
    that made it, which takes longer than most files."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "swept" if shares(ROOT / file) else file

    return Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that start many processes come first, so that no worker is left alone with them at the end."""
    tests = ROOT / "tests"
    items.sort(key=lambda i: (not i.path.is_relative_to(tests / "track"), i.path.parent != tests))
