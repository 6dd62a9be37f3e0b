"""task=verify, task=diff and task=save compact=true, as a user runs them."""

import json
import os
import re
import shutil
from dataclasses import replace

import pytest
import torch
from mlflow.tracking import MlflowClient
from store_states import assert_same, grown, make_state, settings

from harness.save import atomic, store
from harness.task.diff.deviation import differences


@pytest.fixture
def saved(place):
    store.save(make_state(), place / "a", settings())
    return place / "a"


def test_verify_a_sound_snapshot(harness, saved):
    done = harness("task=verify", f"snapshot={saved}")
    assert done.code == 0 and done.result["verdict"] == "unjudged" and not done.result["faults"]
    assert done.result["snapshot"]["id"] == store.read_manifest(saved)["id"]
    assert re.search(
        r"^intact: \S*a, every byte of its \d+ files? and of \d+ of its tokenizer matches its digest \(",
        done.out,
        re.M,
    )


def test_verify_shows_every_fault_and_exits_3(harness, saved):
    damaged = sorted(p for p in saved.rglob("*") if p.is_file() and p.name != "manifest.json")
    for path in damaged:
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    done = harness("task=verify", f"snapshot={saved}")
    assert done.code == 3 and done.result["verdict"] == "refused"
    for path in damaged:
        assert any(path.name in fault for fault in done.result["faults"]), path.name
    assert "Faults of" in done.out and "Traceback" not in done.out


def test_verify_nothing_is_bad_input(harness, place):
    done = harness("task=verify", f"snapshot={place}/nope")
    assert done.code == 2 and "no such directory" in done.out
    assert harness("task=verify").code == 2


def test_what_a_killed_save_left_is_named_and_left_alone(harness, saved, place):
    """While its writer lives nothing is said: the directory is not a leftover."""
    left, lock = atomic.locked(place / "a")
    (left / "kv").write_bytes(bytes(3 << 20))
    alive = harness("task=verify", f"snapshot={saved}")
    assert alive.code == 0 and "killed save" not in alive.out
    os.close(lock)
    (place / ".mine.tmp").mkdir()
    for task, name, code in (("verify", "a", 0), ("inspect", "a", 0), ("verify", "b", 2)):
        done = harness(f"task={task}", f"snapshot={place}/{name}")
        assert done.code == code and "what a killed save left, 3 MiB" in done.out, done.out
        assert f"rm -r -- {left}\n" in done.out and ".mine.tmp" not in done.out
    assert (left / "kv").exists()


def test_the_folder_of_a_chat_names_its_newest_turn(harness, saved, place):
    for number in (1, 2, 10):
        shutil.copytree(saved, place / "talk" / f"turn-{number:03d}")
    (place / "talk" / "turn-011").mkdir()
    for task in ("verify", "inspect", "resume"):
        done = harness(f"task={task}", f"snapshot={place}/talk")
        assert done.code == 2 and f"the newest is {place}/talk/turn-010" in " ".join(
            done.out.split()
        )
    shutil.rmtree(place / "talk" / "turn-001")
    assert "turns of a chat" not in harness("task=verify", f"snapshot={place}").out


def test_the_directory_of_a_run_names_what_it_saved_and_is_compared_as_that(harness, saved, place):
    run = place / "of-a-run"
    shutil.copytree(saved, run / "snapshot")
    done = harness(f"snapshot={run}", "task=verify")
    said = " ".join(done.out.split())
    assert done.code == 2 and f"what the run saved is snapshot={run}/snapshot" in said, done.out
    for one, two in ((run, saved), (saved, run)):
        done = harness(f"a={one}", f"b={two}", "task=diff")
        assert done.code == 0 and done.result["verdict"] == "exact", done.out


def test_diff_of_equal_states_in_two_formats(harness, saved, place):
    store.save(make_state(), place / "b", settings("gzip"))
    done = harness("task=diff", f"a={saved}", f"b={place}/b")
    assert done.code == 0 and done.result["verdict"] == "exact"
    assert "MLflow" not in done.out and done.result["mlflow"] is None


def test_a_comparison_has_a_run_with_both_its_sides(harness, saved, place):
    """Its figures and its page; its parameters are what it reads."""
    state = make_state()
    first, *others = state.layers
    changed = replace(first, segments=tuple(
        replace(s, value=s.value + 0.5) for s in first.segments
    ))  # fmt: skip
    store.save(replace(state, layers=(changed, *others)), place / "b", settings())
    done = harness("task=diff", f"a={saved}", f"b={place}/b", "track=mlflow")
    assert done.code == 1 and "dashboard:" in done.out, done.out
    there = MlflowClient(tracking_uri=f"sqlite:///{place}/runs/mlflow.db")
    run = there.get_run(done.result["mlflow"]["run_id"])
    assert run.info.run_name.endswith(": differs") and run.info.status == "FINISHED"
    assert run.data.tags["exit_code"] == "1", "differing is what it was asked"
    assert run.data.params.keys() >= {"task", "a", "b"}
    assert not {"prune", "cache", "steps"} & run.data.params.keys() - {"cache"}
    figures = run.data.metrics
    assert figures["diff/tensors"] == 1 and figures["diff/differences"] >= 1
    assert abs(figures["diff/largest_kv_difference"] - 0.5) < 1e-6
    assert figures["diff/stored_kl"] == 0 and "diff/next_step_kl" not in figures
    files = {f.path for f in there.list_artifacts(run.info.run_id)}
    assert files >= {"report.html", "result.json", "record.json"}
    assert run.data.tags["task"] == "diff" and run.data.tags["git_commit"]
    again = harness("task=diff", f"a={saved}", f"b={place}/b", "track=none")
    assert again.result["mlflow"] is None and "dashboard:" not in again.out


def test_diff_names_the_first_differing_bit(harness, saved, place):
    state = make_state()
    layer = state.layers[0]
    value = layer.segments[0].value.clone()
    value.view(torch.int32)[0, 1, 3, 2] ^= 1 << 9
    segment = replace(layer.segments[0], value=value)
    changed = replace(state, layers=(replace(layer, segments=(segment,)), *state.layers[1:]))
    store.save(changed, place / "b", settings())
    done = harness("task=diff", f"a={saved}", f"b={place}/b")
    assert done.code == 1
    (found,) = done.result["differences"]
    assert (found["what"], found["where"]) == ("layer.0.value", "[0, 1, 3, 2]")
    assert ", by 1 bit, bit 9" in done.out
    assert ">1 bit, bit 9</td>" in (done.folders[0] / "report.html").read_text()
    assert found["bits"] == "1 bit, bit 9"
    assert json.loads((done.folders[0] / "result.json").read_text())["logits"]["stored"][
        "same_token"
    ]


def test_diff_does_not_mind_how_segments_are_cut(place):
    store.save(make_state(), place / "a", settings())
    back, _ = store.load(place / "a")
    whole = make_state()
    assert not list(differences(whole, back))
    more = grown(back, 3, 7)
    store.save(more, place / "b", settings())
    store.save(more, place / "c", settings(compact=True))
    assert not list(differences(store.load(place / "b")[0], store.load(place / "c")[0]))


def test_diff_refuses_damage(harness, saved, place):
    shutil.copytree(saved, place / "b")
    next((place / "b").glob("kv-*")).unlink()
    assert harness("task=diff", f"a={saved}", f"b={place}/b").code == 3
    assert harness("task=diff", f"a={saved}").code == 2


def test_compact_makes_a_snapshot_self_contained(harness, saved, place):
    back, _ = store.load(saved)
    child = grown(back, 3, 7)
    store.save(child, place / "b", settings())
    done = harness("task=save", "compact=true", f"snapshot={place}/b", f"out={place}/c")
    assert done.code == 0, done.out
    shutil.rmtree(saved)
    assert harness("task=verify", f"snapshot={place}/b").code == 3
    assert harness("task=verify", f"snapshot={place}/c").code == 0
    assert_same(child, store.load(place / "c")[0])
    assert harness("task=save", "compact=true").code == 2


@pytest.mark.parametrize("form", ["safetensors", "blosc2"])
def test_a_real_model_takes_the_same_next_step(harness, place, form):
    """The whole line with this format: the next steps of both sides are compared, verdict and all."""
    done = harness("save=" + form, "prompt=text", "text=let k be 5 .", "steps=4")
    assert done.code == 0 and done.result["verdict"] in ("exact", "equivalent")
    assert done.result["snapshot"]["format"] == form
