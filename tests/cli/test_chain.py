"""Primary configurations and experiments that are built on others: what they choose, and where their records go."""

from pathlib import Path

import pytest

from harness.cli.resume import resumed
from harness.config.launched import primary

HEAD = "# @package _global_\ndefaults:\n"

RATIO = ("--cfg", "job", "-p", "prune.ratio")


@pytest.fixture
def own(place: Path) -> Path:
    """A folder with `mine` (which chooses snapkv), two that are built on it, and a primary config."""
    folder = place / "own" / "experiment"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(f"{HEAD}  - override /prune: snapkv\n")
    (folder / "built.yaml").write_text(f"{HEAD}  - mine\n  - _self_\nsteps: 3\n")
    (folder / "named.yaml").write_text(f"{HEAD}  - /experiment/mine\n")
    (place / "own" / "my2.yaml").write_text("defaults:\n  - config\n  - override prune: snapkv\n")
    return place / "own"


@pytest.mark.parametrize("typed", [["hydra.run.dir=."], ["-m", "hydra.sweep.dir=.", "seed=1,2"]])
def test_no_job_writes_into_the_working_directory(harness, place: Path, typed: list[str]) -> None:
    done = harness("task=save", *typed)
    assert done.code == 2 and "is the working directory or one above it" in done.out
    assert not list(place.iterdir())


@pytest.mark.filterwarnings("ignore:Callback NoneType")
def test_a_configuration_without_the_harness_s_own_callback_writes_nothing(
    harness, own, place: Path
) -> None:
    (own / "deaf.yaml").write_text(
        "defaults: [config, _self_]\nhydra:\n  callbacks:\n    sweep: null\n"
    )
    done = harness("-cd", "own", "-cn", "deaf", "task=save")
    assert done.code == 2 and "hydra.callbacks" in done.out, done.out
    assert not [p for p in place.rglob("*") if p.is_file() and "own" not in p.parts]


DICTS = {
    "-m prune={ratio:0.5},{ratio:0.3} steps=1": "prune.ratio is not read by prune=none",
    "-m prune={ratio:0.5} seed=1,2": "prune.ratio is not read by prune=none",
    "-m sampling={temperature:0.5},{temperature:0.9}": "is not read by sampling=greedy",
    "prune={name:snapkv,ratio:0.5}": "prune.name=snapkv: an option brings all of its keys",
}


def test_a_primary_config_of_one_s_own_writes_over_no_record(harness, own, place: Path) -> None:
    (own / "my3.yaml").write_text("defaults: [config]\n")
    asked = ["-cd", "own", "-cn", "my3", "task=save", "name=x"]
    assert harness(*asked, "hydra.run.dir=runs/a").folders == [place / "runs" / "a"]
    assert primary(place / "runs" / "a") == ["--config-name=my3"]
    again = harness("task=save", "name=x", "hydra.run.dir=runs/a")
    assert again.code == 2 and "holds the record of another run (--config-name=my3 " in again.out


def test_a_sweep_of_a_primary_config_of_one_s_own_is_resumed_with_it(harness, own, place) -> None:
    (own / "my3.yaml").write_text("defaults: [config, _self_]\nsteps: 3\n")
    harness("-cd", "own", "-cn", "my3", "-m", "task=save", "seed=1", "hydra.sweep.dir=runs/s")
    words = resumed(["-m", "resume=runs/s"])
    assert words[:5] == ["-m", "--config-dir", "own", "--config-name=my3", "task=save"]
