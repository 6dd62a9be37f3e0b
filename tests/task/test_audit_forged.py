"""Records made to be believed: resealed, with an environment or a noise floor of their own making, or
with another task in their configuration. None is executed that does not hold, none is the same."""

import shutil
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from mlflow.tracking import MlflowClient

from harness.config import option
from harness.errors import InputProblem, Untrusted
from harness.report.audit import page as audit_page
from harness.report.run import page
from harness.save import store
from harness.snapshot import record
from harness.snapshot.digest import digest_bytes
from harness.snapshot.result import write_json
from harness.task import audit
from harness.task.audit import derivation, evidence, rounding, server, source
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
    changed = changes(forged["environment"], honest["environment"])
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


def test_a_resealed_record_is_found_by_its_folder_and_a_tracker_that_was_edited_is_seen(
    recorded, runs, copy
):
    track = SimpleNamespace(name="mlflow", uri=None, experiment="harness")
    cfg = SimpleNamespace(track=track, runs_dir=str(runs))
    result, sealed = record.read(recorded / "result.json"), record.read(recorded / record.NAME)
    assert list(server.point(cfg, recorded, result, sealed)) == []
    edited = {**result, "metrics": {**result["metrics"], "kl_max": 0.5}, "verdict": "drifted"}
    named = [d.what for d in server.point(cfg, recorded, edited, sealed)]
    told = ("verdict", "outcome", "exit_code", "logits/kl_max", "status", "name", "description")
    assert named == [f"mlflow: {what}" for what in told]  # as if the store were edited
    resealed(copy, lambda r: r.update(mlflow=None, verdict="exact", reason="believe me"))
    forged = record.read(copy / record.NAME)
    named = [d.what for d in server.point(cfg, copy, edited, forged)]
    assert named == ["record.json: id"]


def test_a_deleted_run_is_told_of_and_contradicts_nothing(harness, place):
    """Another seal under the run's id does, deleted or not."""
    (run,) = harness("steps=2", "name=kept", track="mlflow").folders
    run_id = record.read(run / "result.json")["mlflow"]["run_id"]
    client = MlflowClient(tracking_uri=f"sqlite:///{place / 'runs' / 'mlflow.db'}")
    client.delete_run(run_id)
    done = harness("task=audit", f"run={run_id}", "name=checked", "track=mlflow")
    assert done.code == 0, done.out
    (told,) = place.glob("runs/checked/*/audit.json")
    assert [s for s in record.read(told)["unknown"] if "its run in MLflow was deleted" in s]
    assert "deleted in MLflow, and compared all the same: the run of " in " ".join(done.out.split())
    client.restore_run(run_id)
    client.set_tag(run_id, "record", "another seal")
    client.delete_run(run_id)
    done = harness("task=audit", f"run={run}", "track=mlflow")
    assert done.code == 1 and "another seal" in done.out, done.out
    client.restore_run(run_id)
    done = harness("task=audit", f"run={run}", "track=mlflow")
    assert done.code == 1 and "another seal" in done.out, done.out
    assert "deleted in MLflow" not in done.out


def test_a_tracker_has_no_verdict_of_what_was_not_judged(harness, place):
    """So its silence is no other verdict; beside a record that claims one it is."""
    (run,) = harness("task=save", "name=saved", track="mlflow").folders
    track = SimpleNamespace(name="mlflow", uri=None, experiment="harness")
    cfg = SimpleNamespace(track=track, runs_dir=str(place / "runs"))
    result, sealed = record.read(run / "result.json"), record.read(run / record.NAME)
    assert result["verdict"] == "unjudged" and source.search(cfg, "record", sealed["id"])
    assert list(server.point(cfg, run, result, sealed)) == []
    claimed = {**result, "verdict": "exact"}
    assert "mlflow: verdict" in [d.what for d in server.point(cfg, run, claimed, sealed)]


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
    points = audit._points(sweep)
    assert audit.signed(sweep, key, "sweep.json") == key[0]
    assert [audit.signed(point, key) for point in points] == key * 2
    assert list(evidence.summary(sweep, points)) == []
    page = (sweep / "sweep.html").read_text()
    (sweep / "sweep.html").write_text(page.replace("equivalent", "exact"))
    assert [d.what for d in evidence.summary(sweep, points)] == ["sweep.html"]
    (sweep / "sweep.html").write_text(page)
    told = record.read(sweep / "sweep.json")
    elsewhere = sweep.rename(place / "elsewhere")
    elsewhere.rename(sweep)
    table = (sweep / "sweep.csv").read_bytes()
    (sweep / "sweep.csv").write_bytes(table.replace(b"signed", b"sighed"))
    assert "sweep.csv" in [d.what for d in evidence.summary(sweep, points)]
    (sweep / "sweep.csv").write_bytes(table)
    told = record.read(sweep / "sweep.json")
    told["sealed"]["records"].pop(points[0].name)
    write_json(sweep / "sweep.json", told)
    assert [d.what for d in evidence.summary(sweep, points)] == ["sweep.json: records"]
    with pytest.raises(Untrusted, match="changed after it was signed"):
        audit.signed(sweep, key, "sweep.json")


def test_a_run_without_a_sound_configuration_says_again_why():
    said = {"verdict": "failed", "exit_code": 2, "reason": "prune.ratio=1.5 is not possible"}
    recorded = {**said, "task": "experiment", "options": {"prune": "knorm"}}
    assert list(compare(recorded, said, [])) == []
    (finding,) = compare({**recorded, "reason": "another"}, said, [])
    assert finding.what == "reason"
    assert list(compare({**recorded, "verdict": "exact"}, said, []))


def test_an_edited_figure_stands_as_recorded_and_its_seal_in_the_explanation(copy, harness):
    """One meaning for each column: what the record says now, and what the audit found."""
    result, seal = record.read(copy / "result.json"), record.read(copy / record.NAME)["result"]
    assert result["metrics"]["top1_agreement"] == 1.0
    result["metrics"]["top1_agreement"] = 0.5
    write_json(copy / "result.json", result)
    (copy / "added.txt").write_text("a note")
    (copy / "divergence.svg").write_text("<svg/>")
    done = harness("task=audit", f"run={copy}", "name=edited")
    (folder,) = done.folders
    rows = {row["what"]: row for row in record.read(folder / "audit.json")["differences"]}
    forged = rows["result.json: metrics.top1_agreement"]
    assert (forged["recorded"], forged["found"]) == (0.5, "another value was sealed")
    said = "1 figure was edited after the record was sealed: metrics.top1_agreement"
    assert audit_page._differing([forged]) == f"{said} is 0.5, another value was sealed"
    again = {"what": "metrics.top1_agreement", "found": 1.0}
    told = audit_page._differing([forged, again])
    follow = "1 more difference follows from that"
    assert told == f"{said} 1 -> 0.5 (run again it is the original); {follow}"
    other = again | {"found": 0.75}  # not what was sealed, whatever it is
    assert audit_page._differing([forged, other]) == f"{audit_page._differing([forged])}; {follow}"
    assert f"sealed digest {seal['metrics.top1_agreement']}" in forged["explanation"]
    (own,) = derivation.figures(result)
    assert (own.recorded, own.found) == (None, "a step") and "0.5" in own.explanation
    picture = rows["divergence.svg"]
    assert (
        picture["recorded"] == digest_bytes(b"<svg/>") and "sealed digest" in picture["explanation"]
    )
    said = (folder / "report.html").read_text()
    day = record.read(folder / "result.json")["environment"]["date"].partition("T")[0]
    assert f", {day} " in said and "<h2>Run it again</h2><pre>" in said
    rest = sum(not what.startswith("result.json: ") for what in rows)
    more = "and 1 more difference" if rest == 1 else f"and {rest} more differences"
    assert f"{more}. Compared: only the seal, and the record" in said
    first = record.read(folder / "result.json")["reason"]["args"]["message"]
    assert first.endswith(more) and "edited after" in first.partition(more)[0], (
        "it says what differs"
    )
