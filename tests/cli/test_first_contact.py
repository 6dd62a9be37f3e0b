"""What a newcomer types first: names as papers and hubs have them, a wrong file, no text."""

import os
from pathlib import Path

import pytest

from harness.config.synonyms import SYNONYMS
from harness.variants import options


@pytest.mark.parametrize(
    "typed, said",
    [
        ("prune=h2o", "Did you mean 'heavy_hitter'?"),
        ("prune=streaming_llm", "Did you mean 'sink_window'?"),
        ("prune=Snap-KV", "Did you mean 'snapkv'?"),
        ("quantize=fp8", "Did you mean 'fp8_e4m3'?"),
        ("model=Qwen/Qwen3-0.6B", "othing is downloaded"),
        ("model=./mine", "Did you mean model=path model.path=./mine?"),
        ("text=", "text= is empty"),
    ],
)
def test_what_is_called_otherwise_elsewhere_is_told_by_its_name_here(harness, typed, said) -> None:
    done = harness(*typed.split())
    assert done.code == 2 and said in " ".join(done.out.split()), done.out


def test_a_file_that_is_no_model_is_told_before_anything_is_loaded(
    harness, place, monkeypatch
) -> None:
    (place / "README.md").write_text("# no model")
    monkeypatch.setattr("harness.pipeline.session.Session.open", None)
    done = harness("model=path", "model.path=README.md")
    assert done.code == 2 and "is a file, and no GGUF file" in done.out, done.out


def test_every_name_from_elsewhere_leads_to_an_option_that_there_is() -> None:
    for group, names in SYNONYMS.items():
        assert {meant.split()[0] for meant in names.values()} <= set(options(group))
        assert not set(names) & set(options(group))


LIGHT = """
import sys
from harness.__main__ import main
code = main()
heavy = {"torch", "transformers", "mlflow", "numpy", "pandas", "numba"} & set(sys.modules)
sys.exit(f"imported: {heavy}" if heavy else code)
"""


def test_a_folder_that_is_not_ours_is_told_before_anything_is_loaded(
    harness, place, monkeypatch
) -> None:
    real = os.access
    monkeypatch.setattr(os, "access", lambda p, mode: (mode == os.F_OK or Path(p) != place / "closed") and real(p, mode))  # fmt: skip
    monkeypatch.setattr("harness.pipeline.session.Session.open", None)
    (place / "closed").mkdir()
    done = harness("task=save", "text=let k be 5 .", "out=closed/deeper/still")
    assert done.code == 2 and "cannot be written to: " in done.out, done.out
