"""What a run, a point and an audit are called: what tells one from another comes first."""

import json

import pytest
from mlflow.tracking import MlflowClient

from harness import track
from harness.track import contents, description, links, metrics, names, parent


def test_names_tell_apart_what_was_asked_of_one_task_and_what_was_varied(tmp_path):
    from harness.cli.arguments import literal_text

    (tmp_path / ".hydra").mkdir()
    told = []
    for prunes in ("[none]", "[keydiff,snapkv]"):
        asked = ["task=evaluate", "prompt=recall", f"task.prunes={prunes}", "steps=6"]
        (tmp_path / ".hydra" / "overrides.yaml").write_text(json.dumps(asked))
        told.append(names.of_run({"task": "evaluate", "verdict": "unjudged"}, tmp_path, "evaluate"))
    assert told[1] == "keydiff, snapkv evaluate recall steps=6" != told[0]
    many = [
        "prompt=recall",
        "steps=60",
        "task.budgets=[0.25,.125]",
        "task.prunes=[keydiff, snapkv]",
    ]
    assert (
        names.asked("evaluate", many, {}) == "keydiff, snapkv 25%, 12.5% evaluate recall steps=60"
    )
    long = ["text='let k be 5 . the bird sang in the tree .'", "prune=snapkv", "prune.ratio=0.5",
            "quantize=none", "cache=view", "model.path=/a/long/way/to/mine", "out=x", "steps=12"]  # fmt: skip
    assert names.asked("experiment", long, {}) == "mine snapkv 0.5 quantize=none view ..."
    short = [
        "steps=8",
        "seed=3",
        "dtype=bfloat16",
        "prune.tokens=48",
        "save=gzip",
        "model=tiny",
        "prune=snapkv",
    ]
    assert (
        names.asked("experiment", short, {}) == "tiny snapkv tokens=48 gzip bfloat16 seed=3 steps=8"
    )
    assert names.asked("evaluate", ["model=tiny_hybrid", *many], {}).startswith(
        "tiny_hybrid keydiff, "
    )
    require = ["compare.require=equivalent", "prune=none"]
    assert names.asked("experiment", require, {}) == "prune=none require=equivalent"
    assert names.asked("experiment", [], {"model": "tiny"}) == "experiment tiny"
    assert (
        names.asked("experiment", ["steps=8", "seed=2"], {"model": "tiny"}) == "tiny seed=2 steps=8"
    )
    save = {"task": "save", "model": "tiny"}
    assert names.asked("save", ["task=save", "cache=view", "out=runs/m1"], save) == "save m1 view"
    placed = ["model=path", "model.path=a/mine", "prune=none", "prune.ratio=0.5"]
    assert names.asked("experiment", placed, {}) == "mine prune=none"
    big = ["prompt=recall", "task.prunes=[keydiff,snapkv,random,tova]", "task.budgets=[0.25,0.5]"]
    said = names.asked("bigeval", [*big, "steps=6", "dtype=float32"], {})
    assert said == "keydiff, snapkv + 2 policies 25%, 50% bigeval float32 ...", "whole words"
    one = ["task.prunes=[expected_attention,heavy_hitter]"]
    assert names.asked("evaluate", one, {}) == "expected_attention + 1 policy evaluate"
    some = ["task.prunes=[none,keydiff]", "task.quantizers=[none]"]
    assert names.asked("evaluate", some, {}) == "keydiff evaluate"
    assert names.asked("experiment", ["text=" + "word " * 30], {}).endswith("...")
    claims = ["experiment=claims", "task.only=[cursor, 'aliasing']"]
    assert names.asked("claims", claims, {}) == "claims only=cursor,aliasing", "once, and plain"
    quoted = literal_text(['text="say \\"hi\\" now ."'])
    assert names.asked("experiment", quoted, {}) == "\"say 'hi' now .\""
    assert names.asked("experiment", ["prompt.path='a/my b.jsonl'"], {}) == "path=my b.jsonl"
    typed = [
        "-m",
        """text="let k be 5 .","what's k ?, m ?\"""",
        "seed=1,2",
        "task.only=[a,b]",
        "out=x",
    ]
    told = {"hydra": {"overrides": {"task": literal_text(typed)[1:]}}}
    (tmp_path / "multirun.yaml").write_text(json.dumps(told))
    said = '"let k be 5 .","what\'s k ?, m ?"'
    assert contents.axes(tmp_path) == {"text": said, "seed": "1,2"}
    assert track.sweep_name(tmp_path) == f"text={said} seed=1,2 only=[a,b] out=x"
    params = dict(parent.parameters(tmp_path))
    assert params["seed"] == "1, 2" and params["task.only"] == "a, b", "as all lists of a column"
    config = {"task": {"only": ["a", "b"]}}  # of a point
    assert dict(contents.chosen(config, ["task.only=[a,b]"]))["task.only"] == params["task.only"]
    assert params["text"] == '"let k be 5 .", "what\'s k ?, m ?"', "a text is left as it is"
    client = MlflowClient(f"sqlite:///{tmp_path}/m.db")
    run_id = client.create_run(client.create_experiment("e")).info.run_id
    client.log_param(run_id, "seed", "1,2")  # an older version did, and MLflow takes no other
    assert dict(parent.untold(client, run_id, tmp_path)).keys() == params.keys() - {"seed"}


def test_a_sweep_of_evaluations_has_the_options_of_its_points(tmp_path) -> None:
    def params(*typed: str) -> dict[str, str]:
        task = {"name": "evaluate", "prunes": ["none", "tova"], "budgets": [0.25], "caches": [],
                "quantizers": ["${quantize.name}"]}  # fmt: skip
        told = {"hydra": {"overrides": {"task": list(typed)}}, "task": task}
        (tmp_path / "multirun.yaml").write_text(json.dumps(told))
        return dict(parent.parameters(tmp_path))

    told = params("task.prunes=[keydiff],[snapkv,keydiff]", "seed=1,2", "cache=manual,view")
    assert (told["prune"], told["prune.ratio"]) == ("keydiff, snapkv", "0.25")
    assert told["task.prunes"] == "[keydiff], [snapkv, keydiff]", "as it was typed"
    assert told["cache"] == "manual, view", "no list of the task says another"
    assert "quantize" not in told, "a name of another key is no option"
    assert params("seed=1,2")["prune"] == "none, tova"
    assert "prune.ratio" not in params("task.budgets.0=interval(0.1,0.9)")
    assert "prune" not in params("task=evaluate,experiment"), "each task has its own"


@pytest.mark.parametrize(
    "typed, points",
    [
        (
            ["prune=random,keydiff,expected_attention", "prune.ratio=0.25,0.5", "steps=8"],
            {"prune=random prune.ratio=0.25": "random 0.25",
             "prune=expected_attention prune.ratio=0.5": "expected_attention 0.5"},
        ),
        (["prune=random,keydiff", "prune.ratio=0.25,0.5"], {"prune=keydiff prune.ratio=0.5": "keydiff 0.5"}),
        (["cache=manual,view", "prompt.batch=1,99"], {"cache=manual prompt.batch=99": "manual batch=99"}),
        (["prune=none,random", "quantize=none,int8"], {"prune=none quantize=int8": "prune=none int8",
                                                       "prune=random quantize=none": "random quantize=none"}),
        (["prune.ratio=0.25,0.5"], {"prune.ratio=0.25": "ratio=0.25"}),
        (["prune=none,tova", "prune.ratio=0.25,0.5"], {"prune=none prune.ratio=0.25": "prune=none 0.25",
                                                           "prune=none prune.ratio=0.5": "prune=none 0.5"}),
        (["prune=none,tova", "prune.ratio=0.25"], {"prune=none": "prune=none"}),
        (["seed=1,2", "steps=8,9", "dtype=float32,float64", "prune.ratio=0.25,0.5", "prune=random,tova"],
         {"seed=1 steps=9 dtype=float64 prune.ratio=0.5 prune=tova": "tova 0.5 float64 seed=1 steps=9"}),
        (["seed=1,2", "sampling.seed=3,4"], {"seed=1 sampling.seed=3": "sampling.seed=3 seed=1"}),
        (["prune=random", "prune.seed=3,4"], {"prune.seed=3": "prune.seed=3"}),
        (["compact=true,false"], {"compact=true": "compact=true"}),
        (["model.path=a/b,a/c"], {"model.path=a/b": "b"}),
        (["snapshot=x/a/1,x/b/1"], {"snapshot=x/a/1": "a", "snapshot=x/b/1": "b"}),
    ],
)  # fmt: skip
def test_a_points_name_begins_with_what_tells_it_apart(tmp_path, typed, points):
    """A list cuts a name after some 25 characters: what it is of comes first, seed and steps last."""
    told = {"hydra": {"overrides": {"task": typed}}}
    (tmp_path / "multirun.yaml").write_text(json.dumps(told))
    (tmp_path / "0" / ".hydra").mkdir(parents=True)
    for asked, said in points.items():
        shared = [o for o in typed if "," not in o]
        (tmp_path / "0" / ".hydra" / "overrides.yaml").write_text(
            json.dumps(asked.split() + shared)
        )
        assert names.point(tmp_path / "0") == said


@pytest.mark.parametrize(
    "place, said",
    [
        ("runs/grid/2026-11-23_09-32-31_5f3a/0", "0 in grid/5f3a"),
        ("runs/grid/2026-11-23_09-32-31_5f3a", "grid/5f3a"),
        ("runs/reference/tiny-cloned-none", "tiny-cloned-none in reference"),
        ("runs/mine", "mine"),
        ("0" * 32, "0" * 32),
    ],
)
def test_an_audit_is_named_by_what_it_is_of(tmp_path, place, said):
    (tmp_path / "audit.json").write_text(json.dumps({"run": place, "compared": "bitwise"}))
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "overrides.yaml").write_text(f"- task=audit\n- run={place}\n")
    result = {"task": "audit", "verdict": "diverged", "required": "equivalent", "audit_of": "1f",
              "audit": {"bitwise": True}, "options": {"task": "audit", "prune": "none"}}  # fmt: skip
    assert names.of_run(result, tmp_path, "audit") == f"audit {said}: differs"
    assert (
        names.asked("audit", ["task=audit", f"run={place}"], result["options"]) == f"audit {said}"
    )
    tags = contents.tags(result, tmp_path)
    assert not [k for k in tags if k in ("verdict", "bitwise") or k.startswith("option.")], (
        "nothing was judged"
    )
    own = {"audit.outcome": "differs", "audit.of": "1f", "audit.run": place, "audit.compared": "bitwise"}  # fmt: skip
    assert tags.items() >= own.items() and tags["outcome"] == "differs"
    config = {
        "task": {"name": "audit"},
        "run": place,
        "trusted": [],
        "prune": {"name": "none"},
        "steps": 32,
    }
    told = dict(contents.chosen(config, ["task=audit", "steps=32"]))
    assert told == {"task": "audit", "run": place}
    note = description.note(result, "2e", tmp_path)
    assert f"`python -m harness task=audit run={place}`" in note and "2e" not in note
    differences = [{"what": "metrics.kl_max", "recorded": 0.5, "found": "a|b"}]
    told = {"evidence": {"0": {}}, "tracked": {"runs": 2, "copies": 9}, "differences": differences}
    (tmp_path / "audit.json").write_text(json.dumps({"run": place, **told}))
    note = description.note(result, "2e", tmp_path, links=links.opened("7", "1f") + "\n\n")
    assert "(#/experiments/7/runs/1f?workflowType=machine_learning)" in note
    for row in (("run again", "1", ""), ("copies of files in MLflow", "9", ""),
                ("metrics.kl_max", "recorded 0.5", "found a/b")):  # fmt: skip
        assert f"| {'&emsp; | '.join(row)} |" in note
    same = {"conclusion": "What was compared of 2 runs is reproduced: 19 figures.", "reason": "what was compared is reproduced: 19 figures"}  # fmt: skip
    assert description.note(result | same, "2e", tmp_path).count("19 figures") == 1
    assert {"audit/run_again": 1.0}.items() <= {
        key: value
        for key, value, _ in metrics.metrics({"audit": {"run_again": 1, "bitwise": True}})
    }.items()


def test_a_text_that_is_cut_leaves_no_quotation_mark_open(tmp_path):
    from harness.cli.arguments import literal_text

    said = "let k be 5 . the bird sang in the tree ."
    typed = literal_text([f"text={said}", "prune=snapkv", "cache=view", "save=gzip", "seed=1"])
    name = names.asked("experiment", typed, {})
    assert name.count('"') == 2 and '"let k be 5 . the bi..."' in name
    again = names.asked("audit", ["run=x"], {"task": "audit"}, f"{'x ' * 12}{name}")
    assert again.endswith(' ..."') and again.count('"') == 2, "where the words end inside of it"
    assert names.short("plain words", 9) == "plain..."
    (tmp_path / "multirun.yaml").write_text(
        json.dumps(
            {"hydra": {"overrides": {"task": literal_text(["-m", f'text="{said * 4}","b"'])[1:]}}}
        )
    )
    assert track.sweep_name(tmp_path).endswith('..."')


def test_a_sweep_names_its_task_once_and_that_ones_keys_without_it():
    assert names.brief("task", "evaluate") == "evaluate"
    assert names.brief("task", "save,experiment") == "task=save,experiment"
    many = names.brief("prune", ",".join(["none", *["expected_attention"] * 5]))
    assert many == "prune=none,expected_attention,expected_attention,..."
    grid = names.fitting(
        [many, "cache=manual,view", "dtype=float32,float64", "seed=1"], names.NAMED
    )
    assert grid == f"{many} cache=manual,view ..." and len(grid) <= 80
    assert names.brief("task.prunes", "[snapkv],[keydiff]") == "prunes=[snapkv],[keydiff]"
    assert names.brief("prompt.samples", "3") == "prompt.samples=3"
