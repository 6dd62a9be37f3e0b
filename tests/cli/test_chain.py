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


@pytest.mark.parametrize("way", ["experiment=built", "experiment=named", "-cn my2"])
@pytest.mark.parametrize("typed, said", [("prune.ratio=0.9", "0.9\n"), ("-m prune.ratio=0.8,0.7", "# the first of 2 points\n0.8\n")])  # fmt: skip
def test_a_key_is_checked_against_what_hydra_composes(harness, own, way, typed, said) -> None:
    done = harness("-cd", "own", *way.split(), *typed.split(), *RATIO)
    assert done.code == 0 and done.out == said, done.out
    wrong = harness("-cd", "own", *way.split(), "prune=none", *typed.split())
    assert wrong.code == 2 and "prune.ratio is not read by prune=none" in wrong.out


def test_a_primary_config_of_one_s_own_writes_over_no_record(harness, own, place: Path) -> None:
    (own / "my3.yaml").write_text("defaults: [config]\n")
    asked = ["-cd", "own", "-cn", "my3", "task=save", "name=x"]
    assert harness(*asked, "hydra.run.dir=runs/a").folders == [place / "runs" / "a"]
    assert primary(place / "runs" / "a") == ["--config-name=my3"]
    again = harness("task=save", "name=x", "hydra.run.dir=runs/a")
    assert again.code == 2 and "holds the record of another run (--config-name=my3 " in again.out
    recorded = (place / "runs" / "a" / ".hydra" / "config.yaml").read_text()
    (place / "bare").mkdir()
    (place / "bare" / "whole.yaml").write_text(recorded)  # without any hydra block
    bare = f"--config-path={place}/bare"
    done = harness(bare, "-cn", "whole", "track={}", "name=y")
    assert done.code == 0 and done.folders[0].parent == place / "runs" / "y", done.out
    assert {p.name for p in place.iterdir()} == {"own", "runs", "bare"}
    assert primary(done.folders[0]) == [bare, "--config-name=whole"]
    refused = harness(f"--config-path={place}/runs/a/.hydra", "-cn", "config")
    other = harness("-cd", "runs/a/.hydra", "-cn", "config")
    assert refused.code == other.code == 2
    command = "harness --config-dir own --config-name=my3 task=save name=x track=none"
    assert command in refused.out and command in other.out


@pytest.mark.parametrize(
    "written", ["defaults:\n- model: tiny\n- _self_\nsteps: 4\n", "steps: 4\n"]
)
@pytest.mark.parametrize("typed", ["", "track=none"])
def test_a_primary_config_without_the_harness_s_own_is_told_what_it_lacks(
    harness, own, written, typed
) -> None:
    (own / "alone.yaml").write_text(written)
    done = harness("-cd", "own", "-cn", "alone", *typed.split())
    assert (
        done.code == 2
        and "--config-name alone: its defaults leave out the harness's own." in done.out
    ), done.out
    (own / "alone.yaml").write_text("defaults:\n- config\n- _self_\nsteps: 4\n")  # as it is told to
    assert (
        harness("-cd", "own", "-cn", "alone", *typed.split(), "--cfg", "job", "-p", "steps").out
        == "4\n"
    )


def test_a_primary_config_that_misses_the_harness_s_own_is_told_how_it_begins(harness, own) -> None:
    """Shown, run elsewhere, and one that misspells it."""
    asked = ("-cd", "own", "-cn", "alone")
    (own / "alone.yaml").write_text("steps: 4\ntrack: {name: none}\n")
    shown = harness(*asked, "--cfg", "job", "-p", "track")
    assert shown.code == 2 and "`defaults: [config, _self_]`" in shown.out, shown.out
    placed = harness(*asked, "hydra.run.dir=y", "track={}")
    assert placed.code == 2 and "its defaults leave out the harness's own" in placed.out, placed.out
    (own / "alone.yaml").write_text("defaults: [schema, {task: experiment}, _self_]\n")
    bare = harness(*asked, "--cfg", "job", "track={}")
    assert bare.code == 2 and "no option of model is chosen: model=OPTION. The defaults" in bare.out
    (own / "alone.yaml").write_text("defaults: [confg, _self_]\n")
    near = harness(*asked)
    assert (
        near.code == 2 and "'confg', and there is no such file. Did you mean 'config'?" in near.out
    )


def test_help_of_a_primary_config_says_whose_defaults_it_shows(harness, own) -> None:
    """The twins: the shipped one, and one that is not there."""
    told = harness("-cd", "own", "-cn", "my2", "--help")
    assert told.code == 0 and told.out.endswith(
        "Shipped defaults; `--cfg job` shows those of my2.\n"
    )
    assert "Shipped defaults" not in harness("-cd", "own", "--help").out
    gone = harness("-cd", "own", "-cn", "my3", "--help")
    assert gone.code == 2 and "Did you mean 'my2'?" in gone.out, gone.out


def test_a_sweep_of_a_primary_config_of_one_s_own_is_resumed_with_it(harness, own, place) -> None:
    (own / "my3.yaml").write_text("defaults: [config, _self_]\nsteps: 3\n")
    (own / "odd.yaml").write_text("task: {}\nseed: 0\ntrack: {}\n")
    harness("-cd", "own", "-cn", "my3", "-m", "task=save", "seed=1", "hydra.sweep.dir=runs/s")
    words = resumed(["-m", "resume=runs/s"])
    assert words[:5] == ["-m", "--config-dir", "own", "--config-name=my3", "task=save"]
    done = harness("--config-path=own", "-cn", "my3")
    assert done.code == 2 and f"From here: --config-path={own}" in done.out, done.out
    odd = harness(f"--config-path={own}", "-cn", "odd", "-m", "task=save", "seed=1,2", "track={}")
    assert odd.code == 2 and "launcher" not in odd.out


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


def test_a_key_of_an_option_that_a_file_varies_can_be_typed(harness, own) -> None:
    """The twin: one run chooses no such option."""
    text = "# @package _global_\nhydra: {sweeper: {params: {prune: 'knorm,snapkv'}}}\n"
    (own / "experiment" / "grid.yaml").write_text(text)
    typed = ["--config-dir", "own", "experiment=grid", "prune.window=4", "--cfg", "job"]
    assert harness("-m", *typed).code == 0
    one = harness(*typed)
    assert one.code == 2 and "prune.window is not read by prune=none" in one.out, one.out


def test_an_experiment_that_leads_to_itself_is_told_so(harness, own) -> None:
    (own / "experiment" / "loop.yaml").write_text(f"{HEAD}  - /experiment: mine\n")
    done = harness("-cd", "own", "experiment=loop")
    assert done.code == 2 and "`- /experiment/mine`" in done.out and "Traceback" not in done.out


DICTS = {
    "-m prune={ratio:0.5},{ratio:0.3} steps=1": "prune.ratio is not read by prune=none",
    "-m prune={ratio:0.5} seed=1,2": "prune.ratio is not read by prune=none",
    "-m sampling={temperature:0.5},{temperature:0.9}": "is not read by sampling=greedy",
    "prune={name:snapkv,ratio:0.5}": "prune.name=snapkv: an option brings all of its keys",
}


@pytest.mark.parametrize("typed", DICTS)
def test_keys_in_braces_are_checked_like_others(harness, place: Path, typed: str) -> None:
    done = harness(*typed.split())
    assert done.code == 2 and DICTS[typed] in done.out, done.out
    assert done.out.count("\n") == 1 and not list(place.iterdir())
    good = harness("prune=snapkv", "prune={ratio:0.3}", *RATIO)
    assert good.code == 0 and good.out == "0.3\n"


def test_a_primary_config_that_says_not_where_it_stands_is_noted_in_one_line(harness, own) -> None:
    (own / "loose.yaml").write_text("defaults: [config]\nsteps: 3\n")
    for _ in range(2):  # whatever a process has warned of before
        done = harness("-cd", "own", "-cn", "loose", "--cfg", "job", "-p", "steps")
        assert done.code == 0 and done.out.count("loose.yaml does not say where it stands") == 1
        assert "site-packages" not in done.out and done.out.startswith("3\n")
    placed = harness("-cd", "own", "-cn", "my2", "--cfg", "job", "-p", "steps")
    assert "does not say" not in placed.out
