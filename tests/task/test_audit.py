"""Every way to falsify a record, alone and with a seal renewed to match, is caught and named."""

import json
import os
import shutil
from pathlib import Path

import pytest
import yaml

from harness.snapshot import record
from harness.snapshot.result import write_json
from harness.task import audit
from harness.task.audit import evidence, replay, sweep


def edit(folder: Path, *path: str | int, to) -> None:
    """Change one value of `result.json` (`to` may be a function of the old value)."""
    document = record.read(folder / "result.json")
    node = document
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = to(node[path[-1]]) if callable(to) else to
    write_json(folder / "result.json", document)


def configure(folder: Path, *path: str, to) -> None:
    """Change one value of the recorded configuration."""
    place = folder / ".hydra" / "config.yaml"
    tree = yaml.safe_load(place.read_text())
    node = tree
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = to
    place.write_text(yaml.safe_dump(tree))


def flip(folder: Path) -> None:
    """One bit in the middle of a payload file."""
    path = max((folder / "snapshot").glob("*.safetensors"), key=lambda p: p.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)


def swap(folder: Path) -> None:
    """Another run's result in this run's place."""
    other = next(p for p in (folder.parent.parent / "swept").glob("0/result.json"))
    shutil.copy(other, folder / "result.json")


def token(ids: list[int]) -> list[int]:
    return [ids[0] + 1, *ids[1:]]


# name -> (what is done to the record, what the audit must name)
TAMPERED = {
    "verdict": (lambda f: edit(f, "verdict", to="exact"), "verdict"),
    "metric": (lambda f: edit(f, "metrics", "kl_max", to=1e-3), "metrics.kl_max"),
    "token": (lambda f: edit(f, "text", "token_ids", to=token), "text.token_ids"),
    "config value": (lambda f: configure(f, "steps", to=5), "config: steps"),
    "digest": (lambda f: edit(f, "elements", 0, "digest", to="0" * 64), "element 1 kv_cache"),
    "snapshot byte": (flip, "snapshot"),
    "swapped run": (swap, "snapshot.id"),
    "other seed": (lambda f: configure(f, "seed", to=7), "config: seed"),
    "other dtype": (lambda f: configure(f, "dtype", to="bfloat16"), "config: dtype"),
    "other thread count": (lambda f: edit(f, "environment", "threads", to=7), "environment.threads"),
    "other model revision": (lambda f: edit(f, "model", "revision", to="v2"), "model.revision"),
    "missing file": (lambda f: (f / "report.html").unlink(), "report.html"),
}  # fmt: skip
# which of them a second run alone must catch, after the seal was renewed to match the forgery
RESEALED = ("verdict", "metric", "token", "config value", "digest", "snapshot byte", "other seed",
            "other dtype", "other model revision")  # fmt: skip


def reseal(folder: Path) -> None:
    held = record.read(folder / record.NAME)
    config = yaml.safe_load((folder / ".hydra" / "config.yaml").read_text())
    result = record.read(folder / "result.json")
    merged = {**held["config"], **{k: config[k] for k in ("steps", "seed", "dtype")}}
    merged["sampling"] = held["config"]["sampling"]
    record.seal(folder, result, merged, held["packages"])


@pytest.fixture(scope="module")
def audited(recorded, swept, compose, tmp_path_factory):
    """All records audited in one fresh process: name -> the differences found."""
    place = tmp_path_factory.mktemp("tampered")
    (place / "recorded").mkdir()
    shutil.copytree(swept, place / "swept")
    points = {}
    for name in ("untouched", *TAMPERED, *(f"resealed {n}" for n in RESEALED)):
        points[name] = place / "recorded" / name
        shutil.copytree(recorded, points[name])
        if (way := name.removeprefix("resealed ")) in TAMPERED:
            TAMPERED[way][0](points[name])
        if name.startswith("resealed "):
            reseal(points[name])
    cfg = compose("task=audit", "track=none", f"runs_dir={place}")
    again = replay.rerun(cfg, list(points.values()), place, place)
    found = {}
    for name, point in points.items():
        differences, changed = replay.reproduced(point, again[point])
        assert not [c for c in changed if c["decisive"]] or "thread" in name or "dtype" in name
        found[name] = [*evidence.verified(point, cfg), *differences]
    return found


def test_the_second_run_is_made_by_this_very_package():
    """Whatever else of that name may be installed, and wherever it is called from."""
    assert replay.search_path().split(os.pathsep)[0] == str(Path(audit.__file__).parents[3])


def test_an_untouched_record_is_the_same(audited):
    assert audited["untouched"] == []


@pytest.mark.parametrize("name", TAMPERED)
def test_tampering_is_caught_and_named(audited, name):
    named = [d.what for d in audited[name]]
    assert any(TAMPERED[name][1] in what for what in named), named
    assert all(d.explanation for d in audited[name])


@pytest.mark.parametrize("name", RESEALED)
def test_a_renewed_seal_does_not_help(audited, name):
    assert audited[f"resealed {name}"], name


def test_command_line_same_then_differs(recorded, runs, harness, tmp_path):
    """The record as it is: exit 0 and bitwise. One metric edited: exit 1, and it is named."""
    same = harness("task=audit", f"run={recorded}", f"runs_dir={runs}", "name=same", "track=mlflow")
    assert same.code == 0, same.out
    (found,) = (runs / "same").iterdir()
    document = record.read(found / "audit.json")
    assert (document["verdict"], document["compared"]) == ("same", "bitwise")
    assert document["differences"] == [] and document["tracked"]["runs"] == 1, "by its folder too"
    page = (found / "report.html").read_text()
    assert "nothing changed since the recording" in page and "metrics.kl max" in page
    copy = tmp_path / recorded.name
    shutil.copytree(recorded, copy)
    edit(copy, "metrics", "kl_max", to=1e-3)
    differs = harness("task=audit", f"run={copy}", f"runs_dir={runs}", "name=differs")
    assert differs.code == 1 and "DIFFERS" in differs.out, differs.out
    (found,) = (runs / "differs").iterdir()
    rows = {d["what"]: d for d in record.read(found / "audit.json")["differences"]}
    row = rows["result.json: metrics.kl_max"]  # an edited seal is never run again
    assert row["recorded"] == 1e-3 and "sealed" in row["explanation"]
    assert "metrics.kl_max" in (found / "report.html").read_text()


def test_other_thread_count_is_compared_within_the_noise(recorded, runs, harness):
    """An honest record on a machine with other threads is still the same."""
    threads = record.read(recorded / "result.json")["environment"]["threads"]
    other = 1 if threads > 1 else 2
    done = harness("task=audit", f"run={recorded}", f"threads={other}", f"runs_dir={runs}",
                   "name=threads")  # fmt: skip
    assert done.code == 0 and "threads" in done.out, done.out
    (found,) = (runs / "threads").iterdir()
    assert record.read(found / "audit.json")["compared"] == audit.WITHIN


def test_sweep_by_mlflow_id_and_edited_table(swept, runs, harness):
    """A sweep is found through its parent run; failed points fail again; its table is checked."""
    run_id = record.read(swept / "sweep.json")["mlflow"]["run_id"]
    done = harness(
        "task=audit", f"run={run_id}", f"runs_dir={runs}/as_swept", "name=whole", "track=mlflow"
    )
    assert done.code == 0, done.out
    (found,) = (runs / "as_swept" / "whole").iterdir()
    assert record.read(found / "result.json")["audit_of"] == run_id, "not its first point"
    assert record.read(found / "audit.json")["tracked"]["runs"] == 6
    points, table = sweep.points(swept, {}), swept / "sweep.csv"
    before = table.read_bytes()
    assert list(sweep.summary(swept, points)) == []
    table.write_bytes(before.replace(b",exact,", b",equivalent,", 1))
    named = [d.what for d in sweep.summary(swept, points)]
    table.write_bytes(before)
    assert named == ["sweep.csv", "sweep.csv: verdict"]


def test_a_chat_is_said_again_turn_by_turn(harness, place):
    """Its record is the same, wherever its pauses are; with one answer edited and the seal renewed, that turn is named."""
    asked = "task.turns=[{ask: 'let k be 5 .'}, {ask: 'what is k ?', expect: '5'}]"
    chat = harness("task=chat", asked, "steps=6", "name=chat", "out=talk").folders[0]
    assert harness("task=audit", f"run={chat}", "name=whole").code == 0
    (again,) = place.glob("runs/whole/*/again/run")
    said = json.loads((chat / "chat.json").read_text())
    said[1]["answer"] += " ."
    write_json(chat / "chat.json", said)
    held = record.read(chat / record.NAME)
    record.seal(chat, record.read(chat / "result.json"), held["config"], held["packages"])
    found, _ = replay.reproduced(chat, again)
    assert [d.what for d in found] == ["turns[1].answer"]


def test_what_kept_nothing_on_disk_is_judged_by_its_second_run(harness, compose):
    run, again = (harness("steps=4", "save=memory", "name=kept").folders[0] for _ in range(2))
    assert (
        not list(evidence.verified(run, compose("task=audit", "track=none")))
        and replay.reproduced(run, again)[0] == []
    )
    edit(run, "snapshot", "id", to="0" * 64)
    found, _ = replay.reproduced(run, again)
    assert [d.what for d in found] == ["snapshot.id"]


def test_measurements_are_refused_by_name(harness):
    run = harness("task=claims", "task.only=[cursor]", "name=claims").folders[0]
    done = harness("task=audit", f"run={run}")
    assert done.code == 2 and "records task=claims" in done.out and "chat, loop" in done.out


def test_what_is_no_record_is_said_plainly(tmp_path, runs, harness):
    for run in (f"run={tmp_path}", "run=nowhere", "run=" + "0" * 32):
        done = harness("task=audit", run, f"runs_dir={runs}", "track=mlflow")
        assert done.code == 2 and "Traceback" not in done.out, done.out


@pytest.mark.parametrize("wrong", ["recorded/pint", "recoded/point", "recoded/pint"])
def test_a_misspelt_run_is_told_its_neighbour(place, harness, wrong):
    (place / "recorded" / "point").mkdir(parents=True)
    done = harness("task=audit", f"run={wrong}")
    near = "recorded" if wrong == "recoded/pint" else "recorded/point"
    assert done.code == 2 and f"Did you mean {near}?" in done.out, done.out


@pytest.mark.parametrize("task", ["verify", "audit"])
def test_trust_in_no_key_is_no_trust(recorded, harness, task):
    where = f"run={recorded}" if task == "audit" else f"snapshot={recorded / 'snapshot'}"
    done = harness(f"task={task}", where, "trusted=[]")
    assert done.code == 2 and "names no key" in done.out, done.out
