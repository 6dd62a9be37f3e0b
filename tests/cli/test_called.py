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


def test_it_has_its_own_name_in_records_tables_and_audits(harness, process, own):
    """The twin: the shipped option beside it."""
    where = own("prune", "my_snap", INHERITS)
    done = harness("-m", *where, "prune=snapkv,my_snap", "prune.ratio=0.25", "steps=3", "name=ms")
    assert done.code == 0 and " prune=my_snap" in done.out, done.out
    assert [r["options"]["prune"] for r in done.results] == ["snapkv", "my_snap"]
    sealed = [json.loads((f / "record.json").read_text())["config"] for f in done.folders]
    assert [c["called"] for c in sealed] == [{}, {"prune": "my_snap"}]
    assert [c["prune"]["name"] for c in sealed] == ["snapkv", "snapkv"]
    assert [c["prune"]["window"] for c in sealed] == [8, 32]
    sweep = done.folders[0].parent
    assert "Nearest to the full cache: prune=" in done.out
    assert "Sweep of prune" in (sweep / "sweep.html").read_text("utf-8")
    audit = harness("task=audit", f"run={sweep}")
    assert audit.code == 0, audit.out
    again = process("-m", f"resume={sweep}")
    assert again.code == 0 and not again.folders, "nothing is run twice"


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


@pytest.mark.parametrize("typed, told", [
    ("prune=my_snap prune.pool=3", "pool: 3"),
    ("prune=my_snap prune.window=4", "window: 4"),
    ("task=my_eval task.asked=[after]", "- after"),
    ("task=my_eval task.prunes.1=knorm", "- knorm"),
    ("sampling=hot sampling.top_k=5", "top_k: 5"),
])  # fmt: skip
def test_inherited_keys_are_set_on_the_command_line(harness, own, typed, told):
    where = own("prune", "my_snap", INHERITS)
    own("task", "my_eval", "defaults: [evaluate, _self_]\nprunes: [none, my_snap]\n")
    own("sampling", "hot", "defaults: [sample, _self_]\ntemperature: 2.0\n")
    group, _, option = typed.split()[0].partition("=")
    done = harness(*where, *typed.split(), "--cfg", "job", "-p", group)
    assert done.code == 0 and told in done.out.splitlines(), done.out
    wrong = harness(*where, f"{group}={option}", f"{group}.nope=1")
    assert wrong.code == 2 and "nope" in wrong.out


@pytest.mark.parametrize("text, told", [
    ("defaults: [snapkv, _self_]\nwindw: 8\n", "prune.windw is not read by prune=snapkv"),
    ("defaults: [/prune/snapkv, _self_]\n", "no option of prune is chosen"),
])  # fmt: skip
def test_what_is_wrong_in_the_file_of_such_an_option_is_told_by_its_name(harness, own, text, told):
    done = harness(*own("prune", "mine", text), "prune=mine", "steps=2")
    assert done.code == 2 and told in done.out and "Write name" not in done.out, done.out


def test_a_fault_of_ones_own_that_inherits_one_is_a_row_by_its_own_name(harness, own):
    where = own("fault", "my_swap", "defaults: [layer_swap, _self_]\n")
    few = ("task=faults", "track=none", "steps=2", "compare.oracle=false")
    done = harness(*where, *few, "fault=my_swap")
    assert done.code == 0 and "1 fault, my_swap: noticed by" in done.out, done.out
    done = harness(*where, *few, "task.only=[layer_swap,my_swap]")
    assert done.code == 0 and "2 faults: all noticed" in done.out, done.out


@pytest.mark.parametrize("launcher", ["basic", pytest.param("joblib", marks=pytest.mark.slow)])
def test_a_finished_point_is_not_run_over_where_its_options_file_has_changed(
    harness, process, own, place, launcher
):
    """The twin: the file put back. The record of the first run stays as it was."""
    where = own("save", "mygz", "defaults: [gzip, _self_]\nlevel: 1\n")
    few = ("steps=2", f"hydra.sweep.dir={place}/sw", f"hydra/launcher={launcher}")
    done = harness("-m", *where, "save=mygz,torch", *few)
    assert done.code == 0, done.out
    points = [place / "sw" / name for name in "01"]
    before = {f: f.read_bytes() for p in points for f in p.rglob("*") if f.is_file()}
    own("save", "mygz", "defaults: [gzip, _self_]\nlevel: 5\n")
    again = process("-m", f"resume={place}/sw")
    assert again.code == 2 and "was run with save.level=1, which is 5 now" in again.out, again.out
    assert {f: f.read_bytes() for p in points for f in p.rglob("*") if f.is_file()} == before
    own("save", "mygz", "defaults: [gzip, _self_]\nlevel: 1\n")
    back = process("-m", f"resume={place}/sw")
    assert back.code == 0 and "2 points were there, 0 were run now" in back.out, back.out


def test_options_of_a_primary_configurations_own_search_path_are_options(harness, own, place):
    own("cache", "my_static", "defaults: [static, _self_]\n")
    path = f"[file://{place}/conf]"
    (place / "mine").mkdir()
    main = f"defaults: [config, _self_]\nhydra:\n  searchpath: {path}\n"
    (place / "mine" / "main2.yaml").write_text(main)
    where = ("--config-dir", str(place / "mine"), "-cn", "main2")
    done = harness(*where, "cache=my_static", "--cfg", "job", "-p", "cache.name")
    assert done.code == 0 and done.out.strip() == "static", done.out
    assert "my_static" in harness(*where, "cache", "--help").out
    (place / "mine" / "main2.yaml").write_text("defaults: [config, _self_]\n")
    gone = harness(*where, "cache=my_static", "--cfg", "job")
    assert gone.code == 2 and "is not an option of cache" in gone.out


def test_a_name_without_a_class_is_refused_with_what_to_leave_out(harness, own):
    """The twin: the same file without it."""
    where = own("prompt", "mine", "defaults: [jsonl, _self_]\nname: mine\npath: q.jsonl\n")
    line = {"context": "let k be 5 .", "question": "what is k ?", "expected": "5"}
    Path("q.jsonl").write_text(json.dumps(line))
    done = harness(*where, "prompt=mine", "steps=2")
    assert done.code == 2 and "mine" in done.out and "Traceback" not in done.out, done.out
    own("prompt", "mine", "defaults: [jsonl, _self_]\npath: q.jsonl\n")
    done = harness(*where, "prompt=mine", "steps=2")
    assert done.code == 0 and done.result["options"]["prompt"] == "mine", done.out


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


@pytest.mark.parametrize(
    "typed", ["prune=one --cfg job", "prune=one --help", "prune=snapkv prune.nope=1"]
)
def test_options_that_inherit_one_another_in_a_circle_are_one_message(harness, own, typed):
    own("prune", "one", "defaults: [two, _self_]\n")
    where = own("prune", "two", "defaults: [one, _self_]\n")
    done = harness(*where, *typed.split())
    assert done.code == 2 and "Traceback" not in done.out, done.out
    wanted = "'prune.nope' is not a key" if "nope" in typed else "back to"
    assert wanted in done.out, done.out
