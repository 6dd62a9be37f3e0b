"""What a newcomer types first: names as papers and hubs have them, a wrong file, no text."""

import pytest

from harness.config.literature import CALLED
from harness.variants import options


@pytest.mark.parametrize(
    "typed, said",
    [
        ("prune=h2o", "Did you mean 'heavy_hitter'?"),
        ("prune=streaming_llm", "Did you mean 'sink_window'?"),
        ("prune=Snap-KV", "Did you mean 'snapkv'?"),
        ("quantize=fp8", "Did you mean 'fp8_e4m3'?"),
        ("model=Qwen/Qwen3-0.6B", "downloads nothing, and there is no such folder"),
        ("model=./mine", "Did you mean model=path model.path=./mine?"),
        ("text=", "text= is empty"),
    ],
)
def test_what_is_called_otherwise_elsewhere_is_told_by_its_name_here(harness, typed, said) -> None:
    done = harness(typed)
    assert done.code == 2 and said in " ".join(done.out.split()), done.out


def test_a_file_that_is_no_model_is_told_before_anything_is_loaded(
    harness, place, monkeypatch
) -> None:
    (place / "README.md").write_text("# no model")
    monkeypatch.setattr("harness.pipeline.session.Session.open", None)
    done = harness("model=path", "model.path=README.md")
    assert done.code == 2 and "is a file, and no GGUF file" in done.out, done.out


def test_every_name_from_elsewhere_leads_to_an_option_that_there_is() -> None:
    for group, names in CALLED.items():
        assert {meant.split()[0] for meant in names.values()} <= set(options(group))
        assert not set(names) & set(options(group))
