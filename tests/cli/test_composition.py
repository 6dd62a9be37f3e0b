"""What a sweep composes quickly is what Hydra composes, mistakes included."""

import subprocess
import sys

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import OmegaConf

from harness import config
from harness.cli.composition import KEPT, Composer, Early

POINTS = (
    ["seed=3", "steps=2"],
    ["cache=manual", "seed=3"],
    ["steps=5", "cache=manual", "+model.config.x=3"],
    ["prune=chain", "prune.stages=[{name: knorm, ratio: 0.5}]"],
    ["~prune", "seed=1"],
    ["experiment=claims", "seed=9"],
    ["steps=abc"],
    ["nope=1"],
    ["cache=nope", "seed=1"],
    ["name@x=3"],
)


@pytest.fixture
def loaders():
    config.register("token")
    with initialize_config_dir(str(config.conf_dir()), version_base="1.3"):
        hydra = GlobalHydra.instance().config_loader()
        master = hydra.load_configuration("config", ["seed=0,1"], RunMode.MULTIRUN)
        yield hydra, Composer(hydra.config_search_path), master


def composed(loader, master, point) -> str:
    try:
        return OmegaConf.to_yaml(loader.load_sweep_config(master, point))
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"


@pytest.mark.parametrize("point", POINTS, ids=" ".join)
def test_a_point_is_what_hydra_composes(loaders, point) -> None:
    hydra, ours, master = loaders
    first, again = (composed(ours, master, point) for _ in range(2))
    assert first == again == composed(hydra, master, point)


def test_one_point_leaves_nothing_in_the_next(loaders) -> None:
    _, ours, master = loaders
    one = ours.load_sweep_config(master, ["seed=3", "+model.config.x=1"])
    one.steps, one.hydra.job.num = 99, 7
    other = ours.load_sweep_config(master, ["seed=4"])
    assert other.steps == 32 and "config" not in other.model and other.seed == 4


def test_what_only_values_together_make_wrong_fails_alone(loaders) -> None:
    _, ours, master = loaders
    swept = ("prune=knorm", "prune.budget=uniform,adaptive", "prune.per_head=true,false")
    said: list[str] = []
    ours.ahead = Early(swept, 4, True, lambda: said.append("it begins"))
    for budget in ("adaptive", "uniform"):
        for each in ("False", "True"):  # adaptive with false is no choice
            ours.load_sweep_config(master, ["prune=knorm", f"prune.budget={budget}", f"prune.per_head={each}"])  # fmt: skip
            assert len(said) == (ours.ahead.left == 0)  # only once all were looked at
    assert said and ours.ahead.problems and not ours.ahead.unseen


def test_values_cost_no_composition_and_options_one(loaders, monkeypatch) -> None:
    hydra, ours, master = loaders
    calls, load = [], type(hydra).load_configuration
    monkeypatch.setattr(type(hydra), "load_configuration",
                        lambda *a, **k: (calls.append(1), load(*a, **k))[1])  # fmt: skip
    for _ in range(2):
        for seed in range(4):
            for cache in ("manual", "cloned"):
                ours.load_sweep_config(master, [f"cache={cache}", f"seed={seed}"])
    assert len(calls) == 2 < KEPT


def test_a_worker_is_sent_no_compositions(loaders) -> None:
    """And one that has not begun anything can read what it is sent."""
    cloudpickle = pytest.importorskip("cloudpickle")
    _, ours, master = loaders
    before = len(cloudpickle.dumps(ours))
    ours.load_sweep_config(master, ["seed=4"])
    sent = cloudpickle.dumps(ours)
    assert len(sent) == before
    script = "import pickle, sys; print(len(pickle.load(sys.stdin.buffer).get_sources()) > 1)"
    worker = subprocess.run([sys.executable, "-c", script], input=sent, capture_output=True)
    assert worker.stdout == b"True\n", worker.stderr
