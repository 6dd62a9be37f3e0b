"""Records of a model of one's own: what a resume took from its snapshot, and weights that lie elsewhere by now."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from harness.model.build import ASSETS
from harness.snapshot import record
from harness.task.audit import weights


@pytest.fixture
def mine(place) -> Path:
    return Path(shutil.copytree(ASSETS / "tiny", place / "mine"))


@pytest.fixture
def resumed(harness, place, mine):
    """A resume that took model and sampler from the snapshot of a model of one's own."""
    saved = harness(
        "task=save",
        "model=path",
        f"model.path={mine}",
        "text=let k be 5 .",
        "out=a",
        "sampling=sample",
    )
    done = harness("task=resume", "snapshot=a", "text= what is k ?", "steps=3", "out=b")
    assert saved.code == done.code == 0, done.out
    return done.folders[0], saved.folders[0]


def test_a_run_can_be_run_again_by_its_own_configuration_alone(resumed, mine, harness) -> None:
    """Model and sampler that were taken from the snapshot stand in it, and its audit is the same."""
    run, _ = resumed
    told = (run / ".hydra" / "config.yaml").read_text()
    assert f"path: {mine}" in told and "name: sample" in told
    other = ASSETS / "tiny"
    done = harness("task=audit", f"run={run}", "model=path", f"model.path={other}")
    assert done.code == 0 and "SAME" in done.out, done.out
    assert f"model.path={other} is not read: the weights are still where" in done.out, done.out


def test_a_record_that_leaves_out_what_it_took_from_its_snapshot_is_no_forgery(
    resumed, harness
) -> None:
    """Older versions wrote the default there; where a model was typed it is another matter."""
    run, _ = resumed
    place = run / ".hydra" / "config.yaml"
    head, tail = place.read_text().split("\nmodel:\n")
    rest = tail[tail.index("\ntokenizer:") :]
    place.write_text(
        f"{head}\nmodel:\n  name: tiny\n  id: tiny\n  tokenizer: null\n  attention: auto{rest}"
    )
    sealed = record.read(run / record.NAME)
    record.seal(run, record.read(run / "result.json"), sealed["config"], sealed["packages"])
    done = harness("task=audit", f"run={run}")
    assert done.code == 0 and "SAME" in done.out, done.out
    (run / ".hydra" / "overrides.yaml").write_text("- task=resume\n- model=tiny\n")
    record.seal(run, record.read(run / "result.json"), sealed["config"], sealed["packages"])
    done = harness("task=audit", f"run={run}")
    assert done.code == 1 and "config: model.name" in done.out, done.out


@pytest.mark.slow
def test_weights_that_lie_elsewhere_are_named_where_they_are(resumed, mine, harness, place) -> None:
    """Without that it is no accusation; with other weights it is."""
    run, saved = resumed
    moved = mine.rename(place / "elsewhere")
    for point in (run, saved):
        lost = harness("task=audit", f"run={point}")
        assert lost.code == 2 and f"the weights at {mine}, which are not there" in lost.out
        done = harness("task=audit", f"run={point}", "model=path", f"model.path={moved}")
        assert done.code == 0 and "SAME" in done.out, done.out
    tensors = load_file(moved / "model.safetensors")
    name = next(name for name in sorted(tensors) if "q_proj" in name)
    save_file(
        {**tensors, name: tensors[name] * 1.01}, moved / "model.safetensors", {"format": "pt"}
    )
    done = harness("task=audit", f"run={saved}", "model=path", f"model.path={moved}")
    assert done.code == 1 and "model's element 8 attention_weights: recorded" in done.out, done.out
    assert "it was run again with another model" in " ".join(done.out.split()), done.out


@pytest.mark.slow
def test_a_continuation_remembers_where_its_weights_were_loaded_from(
    resumed, mine, harness, place
) -> None:
    moved = mine.rename(place / "elsewhere")
    gone = harness("task=resume", "snapshot=b", "text= ok .", "steps=1", "out=c")
    assert gone.code == 2 and "which are not there any more" in gone.out
    done = harness(
        "task=resume",
        "snapshot=b",
        "text= ok .",
        "steps=1",
        "out=c",
        "model=path",
        f"model.path={moved}",
    )
    assert done.code == 0, done.out
    assert harness("task=resume", "snapshot=c", "text= ok .", "steps=1").code == 0
    assert harness("task=audit", f"run={done.folders[0]}").code == 0


def test_a_model_that_is_one_file_is_there_as_long_as_the_file_is(tmp_path) -> None:
    file = tmp_path / "m.gguf"
    (tmp_path / record.NAME).write_text(
        json.dumps({"config": {"model": {"name": "path", "path": str(file)}}})
    )
    assert weights.missing(tmp_path) == str(file)
    file.write_bytes(b"GGUF")
    assert weights.missing(tmp_path) is None
