"""What a folder says of sampling, where it says nothing or nothing that can be read: the library passes over both."""

import pytest

from harness.errors import ConfigProblem, InputProblem
from harness.model.build import ASSETS
from harness.model.generation import absent, declared
from harness.model.loaded import load


@pytest.fixture
def file(place):
    """generation_config.json of a folder that is the shipped model's otherwise."""
    (place / "mine").mkdir()
    for file in (ASSETS / "tiny").iterdir():
        if file.name != "generation_config.json":
            (place / "mine" / file.name).symlink_to(file)
    return place / "mine" / "generation_config.json"


def test_none_is_said_and_one_that_cannot_be_read_is_refused(harness, file) -> None:
    words = ("task=save", "model=path", "model.path=mine", "text=let k be 5 .", "sampling=generation_config")  # fmt: skip
    done = harness(*words, "out=s")
    assert done.code == 0 and "sampler: there is no generation_config.json (greedy)" in done.out
    file.write_text('{"do_sample": true')
    done = harness(*words, "out=t")
    assert done.code == 2 and "as generation_config.json says" not in done.out
    assert "mine/generation_config.json cannot be read: Expecting" in done.out
    assert "Correct it, or give sampling=greedy or sampling=sample." in done.out


def test_what_is_no_object_and_beams_that_are_no_number_are_told(compose, file) -> None:
    cfg = compose("model=path", "model.path=mine", "sampling=generation_config")
    file.write_text("[1]")
    with pytest.raises(InputProblem, match=r"generation_config\.json holds no object"):
        load(cfg.model, "float32", "cpu")
    file.write_text('{"num_beams": "x"}')
    loaded = load(cfg.model, "float32", "cpu")
    assert not absent(loaded)
    with pytest.raises(ConfigProblem, match="asks for num_beams=x"):
        declared(loaded, cfg.sampling)
