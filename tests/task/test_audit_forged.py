"""Records made to be believed: resealed, with an environment or a noise floor of their own making, or
with another task in their configuration. None is executed that does not hold, none is the same."""

import shutil
import subprocess
from dataclasses import replace

import pytest
import torch
from audited import store_of

from harness.config import option
from harness.errors import InputProblem, Untrusted
from harness.report.run import page
from harness.save import store
from harness.snapshot import record
from harness.snapshot.result import write_json
from harness.task import audit
from harness.task.audit import rounding, source
from harness.task.audit import sweep as sweeps
from harness.task.audit.difference import changes, compare


def resealed(folder, edit, **config):
    """The record in `folder` with its result edited and its seal renewed to match."""
    result, sealed = record.read(folder / "result.json"), record.read(folder / record.NAME)
    edit(result)
    record.seal(folder, result, {**sealed["config"], **config}, sealed["packages"])


@pytest.fixture
def copy(recorded, tmp_path):
    return shutil.copytree(recorded, tmp_path / recorded.name)


def test_a_floor_of_its_own_making_opens_no_tolerance(recorded):
    """One forged environment key asks for the lenient comparison; its width is the audit's alone."""
    honest = record.read(recorded / "result.json")
    forged = {
        **honest,
        "metrics": {**honest["metrics"], "kl_max": 0.25, "max_abs_diff": 3.0},
        "noise_floor": dict.fromkeys(honest["noise_floor"], 1000000.0),
        "environment": {**honest["environment"], "cpu": "another"},
    }
    changed = changes(forged, honest)
    named = [d.what for d in compare(forged, honest, changed)]
    assert {"metrics.kl_max", "metrics.max_abs_diff"} <= set(named)
    assert list(compare(honest, honest, [])) == []


def test_a_block_that_no_run_writes_is_named(recorded):
    honest = record.read(recorded / "result.json")
    named = [d.what for d in compare({**honest, "certified_by": "us"}, honest, [])]
    assert named == ["certified_by"]


@pytest.mark.parametrize(
    "block, value",
    [
        ("diagnosis", "none"),
        pytest.param("metrics", {"kl_max": {}}, marks=pytest.mark.slow),
        pytest.param("elements", ["a"], marks=pytest.mark.slow),
    ],
)
def test_a_block_of_another_form_is_a_difference_and_no_fault_of_the_audit(
    copy, harness, monkeypatch, block, value
):
    """Also where nothing sees that before it is run again: then all that is shown and counted has met it."""
    resealed(copy, lambda result: result.update({block: value}))
    monkeypatch.setattr(audit, "verified", lambda *_: iter(()))
    done = harness("task=audit", f"run={copy}")
    assert done.code == 1 and "DIFFERS" in done.out and "fault of the harness" not in done.out, (
        done.out
    )


def test_the_task_that_counts_is_the_one_that_would_run(copy):
    """`result.json` says experiment, the seal says ui: it would never end."""
    ui = {"name": "ui", "reads": ["snapshot", "out", "text"]}
    resealed(copy, lambda result: None, task=ui)
    with pytest.raises(InputProblem, match="records task=ui"):
        audit.auditable([copy])


def test_nothing_is_executed_that_does_not_hold(copy, harness, monkeypatch):
    result = record.read(copy / "result.json")
    write_json(copy / "result.json", {**result, "verdict": "diverged"})
    monkeypatch.setattr(audit, "rerun", lambda *a: pytest.fail("it was executed"))
    done = harness("task=audit", f"run={copy}")
    assert done.code == 1 and "verdict" in done.out


def test_a_resealed_record_is_seen_by_the_tracker_and_so_is_a_tracker_that_was_edited(
    recorded, runs, copy
):
    cfg, _ = store_of(runs)
    assert list(source.differences(cfg, recorded)) == []
    resealed(copy, lambda r: r.update(verdict="exact", reason="believe me"))
    assert [d.what for d in source.differences(cfg, copy)] == ["record.json: id"]


def test_only_the_keys_owner_can_seal_a_trusted_record(copy, tmp_path):
    for name in "ab":
        make = f"openssl ecparam -name prime256v1 -genkey -noout -out {name}.pem"
        show = f"openssl ec -in {name}.pem -pubout -out {name}.pub"
        subprocess.run(
            f"{make} && {show}", shell=True, check=True, capture_output=True, cwd=tmp_path
        )
    mine, theirs = [[str(tmp_path / f"{n}.pub")] for n in "ab"]
    with pytest.raises(Untrusted, match="not signed"):
        audit.signed(copy, mine)
    resealed(copy, lambda result: None, sign=str(tmp_path / "a.pem"))
    assert audit.signed(copy, mine) == mine[0]
    with pytest.raises(Untrusted):
        audit.signed(copy, theirs)
    kept = (copy / record.SIGNATURE).read_bytes()
    resealed(copy, lambda result: result.update(verdict="exact", reason="believe me"), sign=None)
    (copy / record.SIGNATURE).write_bytes(kept)
    with pytest.raises(Untrusted, match="changed after it was signed"):
        audit.signed(copy, mine)


def forged(folder, change):
    """The record in `folder` with its keys changed, another processor claimed, all digests, the page and
    the seal renewed to match."""
    result, sealed = record.read(folder / "result.json"), record.read(folder / record.NAME)
    state, _ = store.load(folder / "snapshot")
    first, *others = state.layers
    (held,) = first.segments
    layer = replace(first, segments=(replace(held, key=change(held.key), origin=None),))
    state = replace(state.with_layers((layer, *others)), parent=None)
    access = store.Access(overwrite=True, map=False)
    manifest = store.save(state, folder / "snapshot", option("save", "safetensors"), access=access)
    result["elements"], result["snapshot"]["id"] = manifest["elements"], manifest["id"]
    result["environment"]["cpu"], result["folder"] = "another", str(folder)
    page.write(folder / "report.html", result)
    record.seal(folder, result, sealed["config"], sealed["packages"])


@pytest.mark.parametrize(
    "what, change, verdict",
    [
        ("forged", lambda key: key * 1.001, "differs"),
        pytest.param("rounded", lambda key: key * (1 + 2**-23), "same", marks=pytest.mark.slow),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_keys_forged_together_with_an_environment_differ(
    copy, harness, place, what, change, verdict
):
    """Digests say nothing on another processor; the rerun does, within the rounding it measures."""
    forged(copy, change)
    assert list(record.broken(copy)) == []
    done = harness("task=audit", f"run={copy}", "name=forged")
    assert done.code in (0, 1), done.out
    (found,) = place.glob("runs/forged/*/audit.json")
    document = record.read(found)
    assert (done.code, document["verdict"]) == (int(verdict == "differs"), verdict), done.out
    if verdict == "differs":
        assert {d["what"] for d in document["differences"]} == {"layer.0.key"}


def test_keys_that_are_no_numbers_are_within_no_rounding(recorded):
    state, _ = store.load(recorded / "snapshot")
    first, *others = state.layers
    (held,) = first.segments
    nothing = replace(held, key=torch.full_like(held.key, float("nan")), origin=None)
    claimed = state.with_layers((replace(first, segments=(nothing,)), *others))
    found, floors = rounding.compare(claimed, state, state)
    assert [f.what for f in found] == ["layer.0.key"] == list(floors)
    assert rounding.compare(state, state, state) == ([], {})


def test_an_encrypted_record_is_audited_with_its_key_only(harness, place):
    """Its id is salted, so it is compared element by element; nothing is written in clear."""
    (place / "key").write_bytes(b"k" * 32)
    made = harness("steps=4", "prompt=text", "text=let zebra be 5 .", "encrypt=key", "name=closed")
    (run,) = made.folders
    without = harness("task=audit", f"run={run}")
    assert without.code == 3 and "decrypt=" in without.out and "Traceback" not in without.out
    done = harness("task=audit", f"run={run}", "decrypt=key", "name=opened")
    assert done.code == 0, done.out
    again = [p for p in place.glob("runs/opened/*/again/run/snapshot/**/*") if p.is_file()]
    assert again and not [p for p in again if b"zebra" in p.read_bytes()]
    result, sealed = record.read(run / "result.json"), record.read(run / record.NAME)
    result["elements"][0]["digest"] = "0" * 64
    record.seal(run, result, sealed["config"], sealed["packages"])
    done = harness("task=audit", f"run={run}", "decrypt=key")
    assert done.code == 1 and "kv_cache" in done.out


def test_a_sweep_is_signed_whole(harness, place):
    """Table and records: a point left out, put in or exchanged is refused, and so is an edited seal."""
    make = "openssl ecparam -name prime256v1 -genkey -noout -out a.pem"
    subprocess.run(f"{make} && openssl ec -in a.pem -pubout -out a.pub", shell=True, check=True, capture_output=True)  # fmt: skip
    done = harness("-m", "steps=2,3", "sign=a.pem", "name=signed")
    sweep = done.folders[0].parent
    key = [str(place / "a.pub")]
    points = sweeps.points(sweep, {})
    assert audit.signed(sweep, key, "sweep.json") == key[0]
    assert [audit.signed(point, key) for point in points] == key * 2
    assert list(sweeps.summary(sweep, points)) == []
    page = (sweep / "sweep.html").read_text()
    (sweep / "sweep.html").write_text(page.replace("equivalent", "exact"))
    assert [d.what for d in sweeps.summary(sweep, points)] == ["sweep.html"]
    (sweep / "sweep.html").write_text(page)
    told = record.read(sweep / "sweep.json")
    elsewhere = sweep.rename(place / "elsewhere")
    elsewhere.rename(sweep)
    table = (sweep / "sweep.csv").read_bytes()
    (sweep / "sweep.csv").write_bytes(table.replace(b"signed", b"sighed"))
    assert "sweep.csv" in [d.what for d in sweeps.summary(sweep, points)]
    (sweep / "sweep.csv").write_bytes(table)
    told = record.read(sweep / "sweep.json")
    told["sealed"]["records"].pop(points[0].name)
    write_json(sweep / "sweep.json", told)
    assert [d.what for d in sweeps.summary(sweep, points)] == ["sweep.json: records"]
    with pytest.raises(Untrusted, match="changed after it was signed"):
        audit.signed(sweep, key, "sweep.json")


def test_a_run_without_a_sound_configuration_says_again_why():
    said = {"verdict": "failed", "exit_code": 2, "reason": "prune.ratio=1.5 is not possible"}
    recorded = {**said, "task": "experiment", "options": {"prune": "knorm"}}
    assert list(compare(recorded, said, [])) == []
    assert list(compare({**recorded, "verdict": "exact"}, said, []))
