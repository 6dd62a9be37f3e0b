"""A sweep's parent run: one, from its first point to its end, with the latest run of each point below."""

import json
import os
import shutil
import sqlite3
from types import SimpleNamespace

import pytest
from mlflow.tracking import MlflowClient

from harness import track
from harness.cli import lines
from harness.report import summary
from harness.report import sweep as pages
from harness.snapshot.record import read
from harness.snapshot.result import write_json
from harness.task.audit import tracked
from harness.track import contents, description, links, measured, names, parent, place, several
from harness.track.mlflow import PARTS

SETTINGS = SimpleNamespace(name="mlflow", uri=None, experiment="harness", artifact_limit_mb=0.0)


@pytest.fixture
def sweep(swept, tmp_path):
    """A sweep of two points, one of which failed, that no store knows; and a client of its store."""
    folder, runs = tmp_path / "runs" / "s" / "now", tmp_path / "runs"
    folder.mkdir(parents=True)
    shutil.copy(swept / "multirun.yaml", folder)
    for point in ("0", "1"):
        shutil.copytree(swept / point, folder / point, ignore=shutil.ignore_patterns("snapshot"))
        record = json.loads((folder / point / "record.json").read_text())
        record["config"] |= {"runs_dir": str(runs)}
        (folder / point / "record.json").write_text(json.dumps(record))
    return folder, runs, MlflowClient(tracking_uri=f"sqlite:///{runs / 'mlflow.db'}")


def recorded(folder, runs, point) -> str:
    """The run id of a point that was just run."""
    place = folder / point
    result = json.loads((place / "result.json").read_text())
    result |= {"mlflow": None, "folder": str(place)}
    (place / "result.json").write_text(json.dumps(result))  # as `finish` leaves it
    return track.log(SETTINGS, str(runs), place, result, "s")[0]["run_id"]


def concluded(folder) -> dict:
    points = [folder / "0", folder / "1"]
    rows = pages.rows(points)
    block = track.summarise(
        folder, points, rows, (*summary.told(rows, {}), summary.markdown(rows), "0")
    )
    (folder / "sweep.json").write_text(json.dumps({"mlflow": block}))
    return block


def test_the_parent_runs_from_the_first_point_to_the_end_and_is_one(sweep):
    folder, runs, client = sweep
    track.begin_sweep(vars(SETTINGS), str(runs), folder, began=1000.0)
    above = parent.known(folder)["run_id"]
    run = client.get_run(above)
    assert (run.info.status, run.info.start_time, run.info.end_time) == ("RUNNING", 1000000, None)
    assert run.data.tags.items() >= {"task": "experiment", **place.code(place.commit())}.items()
    for point in ("0", "1"):
        child = client.get_run(recorded(folder, runs, point))
        assert child.data.tags["mlflow.parentRunId"] == above  # before the sweep is at its end
    assert concluded(folder)["run_id"] == above
    run = client.get_run(above)
    assert run.info.status == "FAILED" and run.info.end_time
    assert run.data.tags["outcome"] == run.data.tags["verdict"] == "1 exact, 1 failed"
    assert run.info.run_name == track.sweep_name(folder) + ": 1 exact, 1 failed"
    assert run.data.tags["conclusion"] == "1 exact, 1 failed"  # there is no best
    varied = {key: several.spaced(values) for key, values in contents.axes(folder).items()}
    assert varied.items() < run.data.params.items()  # what was varied, and what was not
    assert run.data.params.items() >= {"model": "tiny", "task": "experiment", "steps": "6"}.items()
    note = run.data.tags["mlflow.note.content"]
    assert (
        f"task=audit run={run.info.run_id}" in note
        and "Run it again: `python -m harness -m " in note
    )
    assert "Run it again: `python -m harness " in child.data.tags["mlflow.note.content"]
    parent.abandon()
    assert client.get_run(above).info.status == "FAILED"  # it had ended
    track.begin_sweep(vars(SETTINGS), str(runs), folder, began=2000.0)  # resumed
    (folder / parent.PARENT).unlink(), (folder / "sweep.json").unlink()
    track.begin_sweep(vars(SETTINGS), str(runs), folder, began=3000.0)  # as if it was not kept
    assert parent.known(folder)["run_id"] == above
    points = [folder / "0", folder / "1"]
    track.summarise(folder, points, pages.rows(points), ("", "", "", ""), total=3)
    assert client.get_run(above).info.status == "KILLED"  # stopped before its last point
    track.begin_sweep(vars(SETTINGS), str(runs), folder, began=4000.0)
    parent.abandon()
    assert client.get_run(above).info.status == "KILLED"  # nobody ended it
    asked = "tags.kind = 'sweep summary'"
    assert [r.info.run_id for r in client.search_runs(["1"], asked)] == [above]


def test_a_sweep_that_was_stopped_says_what_is_missing_and_how_to_go_on(sweep):
    """Until nothing is missing any more; however late it is uploaded, it lasted as long as its points."""
    folder, _, client = sweep
    points = [folder / "0", folder / "1"]
    for point, end in zip(points, (2000, 3000), strict=True):
        os.utime(point / ".hydra" / "config.yaml", (end - 500, end - 500))
        os.utime(point / "record.json", (end, end))
    rows = pages.rows(points)
    table, again = summary.markdown(rows), "python -m harness -m resume=x"
    ran = {}
    for total in (12, 2):
        told = (*summary.said(rows, {}, total)[:2], table, "0")
        block = track.summarise(folder, points, rows, told, total=total, again=again)
        ran[total] = client.get_run(block["run_id"])
        parent.keep(folder, block)
    stopped, whole = (run.data.tags for run in ran.values())
    assert ran[12].info.run_id == ran[2].info.run_id
    assert ran[12].info.run_name.endswith(": 2 of 12 points: 1 exact, 1 failed")
    assert stopped["conclusion"].startswith("Stopped after 2 of 12 points")
    assert "exit_code" not in stopped and whole["exit_code"] == "2"
    assert [ran[n].data.metrics["sweep/seconds"] for n in (12, 2)] == [1000.0, 1000.0], (
        "and 500 between"
    )
    assert stopped["reason"] == f"stopped after 2 of 12 points; go on with `{again}`"
    assert f"Go on with `{again}`" in stopped["mlflow.note.content"], "how far it came is said once"
    assert stopped["mlflow.note.content"].lower().count("stopped after") == 1
    assert "reason" not in whole and "12" not in whole["conclusion"] + whole["outcome"]
    assert {(r.info.start_time, r.info.end_time) for r in ran.values()} == {(1500000, 3000000)}


def test_a_point_that_is_run_again_has_one_run_and_knows_the_earlier_one(sweep):
    folder, runs, client = sweep
    first = {point: recorded(folder, runs, point) for point in ("0", "1")}
    above = concluded(folder)["run_id"]
    again = recorded(folder, runs, "1")
    elsewhere = client.create_run("1", tags={"mlflow.parentRunId": above, "folder": "/copied/1"})
    assert again != first["1"] and concluded(folder)["run_id"] == above
    old = client.get_run(first["1"])
    assert (old.info.lifecycle_stage, old.data.tags["superseded"]) == ("deleted", again)
    below = client.search_runs(["1"], f"tags.`mlflow.parentRunId` = '{above}'")
    assert {r.info.run_id for r in below} == {first["0"], again, elsewhere.info.run_id}
    blocks = [json.loads((folder / p / "result.json").read_text())["mlflow"] for p in ("0", "1")]
    assert [b.get("superseded") for b in blocks] == [None, [first["1"]]]


@pytest.mark.parametrize(
    "changes, status",
    [
        ({"verdict": "diverged", "required": "drifted"}, "FAILED"),
        ({"verdict": "diverged", "required": "diverged"}, "FINISHED"),
        ({"verdict": "refused", "exit_code": 3}, "FAILED"),
        ({"verdict": "unjudged", "required": "exact"}, "FINISHED"),
    ],
)
def test_what_missed_what_was_required_shows_no_green_tick(sweep, changes, status):
    folder, runs, client = sweep
    result = json.loads((folder / "0" / "result.json").read_text())
    (folder / "0" / "result.json").write_text(json.dumps({**result, **changes}))
    assert client.get_run(recorded(folder, runs, "0")).info.status == status


def test_a_run_above_others_has_the_figures_of_the_marked_ones_alone(swept, tmp_path):
    """What was left below it by a try that was cut off comes there once."""
    runs, settings = tmp_path / "runs", SETTINGS
    rows = [{"name": n, "tags": {}, "metrics": {"answers/kl": v}} for n, v in (("a", 1.0), ("b", 0.5))]  # fmt: skip
    rows[0]["as"] = "best"
    place = shutil.copytree(swept / "0", tmp_path / "run")
    result, waiting = read(place / "result.json"), {"reason": "x", "children": rows}
    for _ in range(2):
        write_json(place / "pending.json", waiting)
        block, problem = track.log(settings, str(runs), place, result | {"mlflow": None}, "x")
        assert not problem and not (place / "pending.json").exists()
        waiting |= {"run_id": block["run_id"]}
    base = sqlite3.connect(runs / "mlflow.db")
    asked = "select distinct value from metrics where run_uuid=? and key='best/kl'"
    mine = "select count(*) from metrics where run_uuid=? and key='answers/kl'"
    assert base.execute(asked, (block["run_id"],)).fetchall() == [(1.0,)]
    assert base.execute(mine, (block["run_id"],)).fetchone() == (0,), (
        "the last one's is not its own"
    )
    below = (
        "select r.name from runs r join tags t using (run_uuid) where r.lifecycle_stage='active'"
        " and t.key='mlflow.parentRunId' and t.value=? order by r.name"
    )
    assert base.execute(below, (block["run_id"],)).fetchall() == [("a",), ("b",)]
    many = [rows[0], *([rows[1]] * PARTS)]
    write_json(place / "pending.json", {"reason": "x", "children": many})
    block, _ = track.log(settings, str(runs), place, result | {"mlflow": None}, "x")
    assert base.execute(asked, (block["run_id"],)).fetchall() == [(1.0,)]
    assert base.execute(below, (block["run_id"],)).fetchall() == [], (
        "they would fill the first page"
    )


def test_a_sweep_of_what_is_not_tracked_leaves_no_run(harness, swept, tmp_path):
    """It would say KILLED for ever."""
    done = harness("-m", "task=verify", f"snapshot={swept / '0' / 'snapshot'}", "seed=1,2",
                   f"runs_dir={tmp_path}", track="mlflow")  # fmt: skip
    assert done.code == 0 and not (tmp_path / "mlflow.db").exists(), done.out


def test_a_sweep_whose_process_was_killed_with_all_that_could_say_so_is_marked_by_the_next(sweep):
    folder, runs, client = sweep
    track.begin_sweep(vars(SETTINGS), str(runs), folder, began=1000.0)
    run_id = parent.known(folder)["run_id"]
    parent._open.clear()  # nobody is left
    store = track.tracker(SETTINGS, str(runs))
    store.opened({})
    assert client.get_run(run_id).info.status == "RUNNING", "its process is this one"
    host, boot, pid, start = client.get_run(run_id).data.tags["process"].split()
    assert int(pid) == os.getpid()
    elsewhere = f"{host}x {boot} {pid} 1"
    for process in ("", elsewhere, f"{host} {boot} {pid} {start}"):
        client.set_tag(run_id, "process", process)
        store.opened({})
        assert client.get_run(run_id).info.status == "RUNNING", process
    for process in (
        f"{host} {boot} {pid} 1",
        f"{host} x {pid} {start}",
        f"{host} {boot} {2**30} 7",
    ):
        client.set_tag(run_id, "process", process)
        store.opened({})
        assert client.get_run(run_id).info.status == "KILLED", process
        client.update_run(run_id, status="RUNNING")


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
    some = ["task.prunes=[none,keydiff]", "task.quantizers=[none]"]
    assert names.asked("evaluate", some, {}) == "keydiff evaluate"
    assert names.asked("experiment", ["text=" + "word " * 30], {}).endswith("...")
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
    assert track.sweep_name(tmp_path) == f"text={said} seed=1,2 task.only=[a,b] out=x"
    params = dict(parent.parameters(tmp_path))
    assert params["seed"] == "1, 2" and params["task.only"] == "[a, b]", "as all lists of a column"
    assert params["text"] == '"let k be 5 .", "what\'s k ?, m ?"', "a text is left as it is"
    client = MlflowClient(f"sqlite:///{tmp_path}/m.db")
    run_id = client.create_run(client.create_experiment("e")).info.run_id
    client.log_param(run_id, "seed", "1,2")  # an older version did, and MLflow takes no other
    assert dict(parent.untold(client, run_id, tmp_path)).keys() == params.keys() - {"seed"}


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
        (["prune=none,tova", "prune.ratio=0.25,0.5"], {"prune=none prune.ratio=0.25": "prune=none"}),
        (["seed=1,2", "steps=8,9", "dtype=float32,float64", "prune.ratio=0.25,0.5", "prune=random,tova"],
         {"seed=1 steps=9 dtype=float64 prune.ratio=0.5 prune=tova": "tova 0.5 float64 seed=1 steps=9"}),
        (["seed=1,2", "sampling.seed=3,4"], {"seed=1 sampling.seed=3": "sampling.seed=3 seed=1"}),
        (["compact=true,false"], {"compact=true": "compact=true"}),
        (["model.path=a/b,a/c"], {"model.path=a/b": "b"}),
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
    assert tracked._same(note, description.note(result, "2e", tmp_path)), "derived without a link"
    assert {"audit/run_again": 1.0}.items() <= {
        key: value
        for key, value, _ in measured.metrics({"audit": {"run_again": 1, "bitwise": True}})
    }.items()


def test_a_point_that_somebody_deleted_does_not_keep_its_sweep_from_ending(sweep):
    folder, runs, client = sweep
    ids = [recorded(folder, runs, point) for point in ("0", "1")]
    client.delete_run(ids[0])
    assert concluded(folder)["deleted"] == [ids[0]] and "1 point's run was" in lines.deleted(1)
    assert read(folder / parent.PARENT)["experiment"] == "harness"  # made at its end
    above = client.create_run(client.get_run(ids[1]).info.experiment_id).info.run_id
    assert parent.adopt(client, above, {"0": ids[0], "1": ids[1]}) == ({"1": ids[1]}, [ids[0]])
    assert client.get_run(ids[1]).data.tags["mlflow.parentRunId"] == above
