"""An option of one's own that inherits one of ours is read as that one, and recorded by its own name."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from harness.cli import point, remote
from harness.config import Config, aliases, sibling
from harness.config.compose import typed
from harness.errors import ConfigProblem

ROOT = Path(__file__).resolve().parents[2]
INHERITS = "defaults: [snapkv, _self_]\nwindow: 32\n"


@pytest.fixture
def own(place):
    def write(group, name, text):
        (place / "conf" / group).mkdir(parents=True, exist_ok=True)
        (place / "conf" / group / f"{name}.yaml").write_text(text)
        return "--config-dir", str(place / "conf")

    return write


def test_cells_of_an_evaluation_are_of_ones_own_options_too(harness, own):
    """The twin: the shipped options beside them, which have their own windows and their own names. Without its folder
    an audit says what it needs instead of accusing the record."""
    where = own("prune", "my_snap", f"{INHERITS}protect: 2\n")
    own("quantize", "my_int4", "defaults: [int4, _self_]\n")
    own("task", "my_eval", "defaults: [evaluate, _self_]\nprunes: [none, my_snap, snapkv]\n")
    asked = ["prompt=recall", "prompt.samples=1", "task.budgets=[0.3]", "task.asked=[after]"]
    done = harness(*where, "task=my_eval", "task.quantizers=[none,my_int4]", *asked)
    assert done.code == 0, done.out
    rows = {
        (r["prune"], r["quantize"]): r
        for r in json.loads((done.folders[0] / "evaluate.json").read_text())
    }
    assert {prune for prune, _ in rows} == {"none", "my_snap", "snapkv"}
    kept = list(map(json.loads, (done.folders[0] / "answers.jsonl").read_text().splitlines()))
    kl = {a["prune"]: a["kl"] for a in kept if a.get("quantize") == "none" and "kl" in a}
    assert len({json.dumps(kl[name]) for name in ("my_snap", "snapkv")}) == 2, kl
    alone = harness("task=audit", f"run={done.folders[0]}")
    assert alone.code == 2 and "--config-dir DIR, the folder that was named then" in alone.out
    assert "has quantize=my_int4" in alone.out or "has prune=my_snap" in alone.out
    audit = harness(*where, "task=audit", f"run={done.folders[0]}")
    assert audit.code == 0, audit.out
    told = harness(*where, "task=my_eval", "--help").out
    assert "caches: []" in told and "prunes: [none, my_snap, snapkv]" in told, told
    assert "defaults" not in told and "prunes: [none, keep_last" not in told


@pytest.mark.parametrize("chosen", ["my_snap", "snapkv"])
def test_a_task_whose_list_refers_to_the_chosen_option_means_the_one_that_was_chosen(chosen):
    """As `experiment=prune_search` has it, whose cells are of the policy that is searched."""
    shipped = OmegaConf.load(ROOT / "conf" / "experiment" / "prune_search.yaml")
    tree = {"prune": {"name": "snapkv", "ratio": 0.5}, "task": shipped.task, "called": {}}
    told = aliases.applied(OmegaConf.create(tree), {"prune": chosen})
    assert list(told.task.prunes) == [chosen] and list(told.task.budgets) == [0.5]
    assert told.prune.name == "snapkv", "by which its class is found"


def test_a_cell_has_the_keys_of_its_own_option_and_those_that_were_typed_for_it(own, monkeypatch):
    """The twin: the option that it inherits, whose own keys are not those of the one that was chosen."""
    where = own("prune", "my_snap", f"{INHERITS}protect: 2\n")
    monkeypatch.setattr("sys.argv", ["harness", *where])
    mine = sibling("prune", Config(), "my_snap", ratio=0.3)
    assert (mine.name, mine.window, mine.protect, mine.ratio) == ("snapkv", 32, 2, 0.3)
    shipped = sibling("prune", Config(), "snapkv", ratio=0.3)
    assert (shipped.name, shipped.window, shipped.protect) == ("snapkv", 8, 0)
    chosen = Config(prune=replace(mine, window=5, protect=1), called={"prune": "my_snap"})
    again, other = (sibling("prune", chosen, name) for name in ("my_snap", "snapkv"))
    assert (again.window, again.protect) == (5, 1)
    assert (other.window, other.protect) == (8, 1), "a shared key was typed for all"


@pytest.mark.parametrize("kind, named", [("Slurm", True), ("Local", True), ("Joblib", False)])
def test_a_launcher_is_known_by_its_class_whatever_its_option_is_called(kind, named):
    home = "hydra_submitit_launcher.submitit" if named else "hydra_joblib_launcher.joblib"
    target = f"hydra_plugins.{home}_launcher.{kind}Launcher"
    config = OmegaConf.create({"hydra": {"launcher": {"_target_": target}}})
    assert remote.queued(config) is named
    assert remote.queued(config, "Slurm") is (kind == "Slurm")


def test_a_fault_of_ones_own_that_inherits_one_is_a_row_by_its_own_name(harness, own):
    where = own("fault", "my_swap", "defaults: [layer_swap, _self_]\n")
    few = ("task=faults", "track=none", "steps=2", "compare.oracle=false")
    done = harness(*where, *few, "fault=my_swap")
    assert done.code == 0 and "1 fault, my_swap: noticed by" in done.out, done.out
    done = harness(*where, *few, "task.only=[layer_swap,my_swap]")
    assert done.code == 0 and "2 faults: all noticed" in done.out, done.out


def test_a_record_from_before_there_was_such_a_key_is_the_same_configuration(compose):
    cfg = compose("track=none")
    before = json.loads(json.dumps(asdict(cfg)))
    before.pop(aliases.KEY)
    assert point.same(cfg, before)
    cfg.called = {"prune": "mine"}
    assert not point.same(cfg, before) and aliases.KEY in Config.__dataclass_fields__


@pytest.mark.parametrize("names", [{"prune": "none"}, {"task": "mine"}, {"prompt": "recall"}])
def test_no_record_calls_an_option_by_the_name_of_another(compose, names):
    """The twin: a name of one's own. An audit runs a record again by what it holds, and would repeat the lie."""
    cfg = OmegaConf.structured(compose("track=none", "prune=knorm"))
    tree = OmegaConf.create(OmegaConf.to_container(cfg))
    tree.called = {"prune": "mine"}
    assert typed(tree, record=True).called == {"prune": "mine"}
    tree.called = names
    with pytest.raises(ConfigProblem, match="no name of an option of your own"):
        typed(tree, record=True)
