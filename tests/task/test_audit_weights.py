"""Records of a model of one's own: what a resume took from its snapshot, and weights that lie elsewhere by now."""

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from harness.model.build import ASSETS
from harness.snapshot import record


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


def test_a_run_can_be_run_again_by_its_own_configuration_and_the_places_it_names(
    resumed, mine, harness, place
) -> None:
    """Model and sampler that were taken from the snapshot stand in it. Its audit reads the weights and the snapshot
    where they are typed, wherever that is by now; with other weights it is another matter."""
    run, _ = resumed
    told = (run / ".hydra" / "config.yaml").read_text()
    assert f"path: {mine}" in told and "name: sample" in told
    moved = mine.rename(place / "elsewhere")
    weights = ("model=path", f"model.path={moved}")
    lost = harness("task=audit", f"run={run}", *weights)
    assert lost.code == 2 and "names snapshot=a" in lost.out, lost.out
    lost = harness("task=audit", f"run={run}", "snapshot=a")
    assert lost.code == 2 and f"model=path model.path={mine}" in lost.out.replace("\n", ""), (
        lost.out
    )
    done = harness("task=audit", f"run={run}", "snapshot=a", *weights)
    assert done.code == 0 and "SAME" in done.out, done.out
    other = shutil.copytree(moved, place / "other")
    tensors = load_file(other / "model.safetensors")
    name = next(name for name in sorted(tensors) if "q_proj" in name)
    save_file(
        {**tensors, name: tensors[name] * 1.01}, other / "model.safetensors", {"format": "pt"}
    )
    done = harness("task=audit", f"run={resumed[1]}", "model=path", f"model.path={other}")
    said = " ".join(done.out.split())
    assert done.code == 1 and "lement 8 attention_weights: recorded" in said, done.out
    assert "it was run again with another model" in said, done.out


def test_the_configuration_beside_a_record_is_the_one_that_was_sealed(resumed, harness) -> None:
    run, _ = resumed
    place = run / ".hydra" / "config.yaml"
    head, tail = place.read_text().split("\nmodel:\n")
    rest = tail[tail.index("\ntokenizer:") :]
    place.write_text(
        f"{head}\nmodel:\n  name: tiny\n  id: tiny\n  tokenizer: null\n  attention: auto{rest}"
    )
    sealed = record.read(run / record.NAME)
    record.seal(run, record.read(run / "result.json"), sealed["config"], sealed["packages"])
    words = ("snapshot=a", "model=path", f"model.path={sealed['config']['model']['path']}")
    done = harness("task=audit", f"run={run}", *words)
    assert done.code == 1 and "config: model.name" in done.out, done.out


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
    words = ("snapshot=b", "model=path", f"model.path={moved}")
    assert harness("task=audit", f"run={done.folders[0]}", *words).code == 0
