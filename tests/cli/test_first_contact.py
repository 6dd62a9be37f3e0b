"""What a newcomer types first: names as papers and hubs have them, a wrong file, no text."""

import os
import subprocess
import sys
from pathlib import Path

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
        ("out = x", "out = x has blanks around its equals sign. Without them: out=x"),
        ("out =x seed=1", "out =x has blanks around its equals sign. Without them: out=x"),
        ("out= x", "out= x has blanks around its equals sign. Without them: out=x"),
        ("text = a b seed=1", "Without them: 'text=a b'"),
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
    for group, names in CALLED.items():
        assert {meant.split()[0] for meant in names.values()} <= set(options(group))
        assert not set(names) & set(options(group))


LIGHT = """
import sys
from harness.__main__ import main
code = main()
heavy = {"torch", "transformers", "mlflow", "numpy", "pandas", "numba"} & set(sys.modules)
sys.exit(f"imported: {heavy}" if heavy else code)
"""


@pytest.mark.parametrize(
    "typed, said",
    [
        (["steps=100000"], "this model has 4096 positions"),
        (["steps=1024", "model=tiny_gpt2"], "this model has 1024 positions"),
        (["steps=70", "model=path", "model.path=mine"], "this model has 64 positions"),
        (["model=path", "model.path=config.json"], "is a file, and no GGUF file"),
        (["task=save", "out=/proc/foo"], "out=/proc/foo cannot be written to: /proc"),
        (["task=chat", "out=/proc/foo"], "out=/proc/foo cannot be written to: /proc"),
    ],
)
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc, which is no disk")
def test_what_cannot_be_is_refused_before_anything_heavy_is_imported(place, typed, said) -> None:
    (place / "mine").mkdir()
    (place / "mine" / "config.json").write_text('{"text_config": {"max_position_embeddings": 64}}')
    (place / "config.json").write_text("{}")
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, *typed], cwd=place, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    told = " ".join(done.stderr.split())
    assert done.returncode == 2 and said in told and "imported" not in told, told
    assert not list(place.glob("runs/*/*"))


def test_a_folder_that_is_not_ours_is_told_before_anything_is_loaded(
    harness, place, monkeypatch
) -> None:
    real = os.access
    monkeypatch.setattr(os, "access", lambda p, mode: (mode == os.F_OK or Path(p) != place / "closed") and real(p, mode))  # fmt: skip
    monkeypatch.setattr("harness.pipeline.session.Session.open", None)
    (place / "closed").mkdir()
    done = harness("task=save", "text=let k be 5 .", "out=closed/deeper/still")
    assert done.code == 2 and "cannot be written to: " in done.out, done.out


def test_as_many_steps_as_there_are_positions_are_one_too_many(harness) -> None:
    """The twin: one step fewer leaves room for one token, so only the tokens of the prompt can tell."""
    assert "and what is read before them" in harness("steps=1024", "model=tiny_gpt2").out
    done = harness("steps=1023", "model=tiny_gpt2")
    assert done.code == 2 and "the prompt has" in done.out, done.out
