"""The worked examples of EXTENDING.md do what they say, from a folder of the user's own."""

import re
import sys

import pytest

from harness import config

from .conftest import EXAMPLES, MINE

PAGE = EXAMPLES.parents[2] / "harness" / "EXTENDING.md"


def forget(name):
    sys.modules.pop(name, None)


def test_tova_from_outside_keeps_what_ours_keeps(harness, examples):
    ours = harness("prune=tova", "prune.ratio=0.5", "prune.per_head=false", "steps=4",
                   "compare=lossy")  # fmt: skip
    mine = harness(*MINE, "prune=my_tova", "compare=lossy")
    assert ours.code == mine.code == 0, mine.out
    kept = [
        [row["digest"] for row in r.result["elements"] if row["number"] == 1] for r in (ours, mine)
    ]
    assert kept[0] == kept[1] and mine.result["size"]["kept_tokens"] < mine.result["size"]["tokens"]


def test_a_format_from_outside_is_read_on_trust_alone(harness, examples):
    made = harness(*MINE, "save=my_zstd", "save.level=19")
    assert made.code == 0 and made.result["verdict"] in ("exact", "equivalent"), made.out
    assert list((made.folders[0] / "snapshot").glob("*.zst"))
    snapshot = f"snapshot={made.folders[0] / 'snapshot'}"
    for task in ("resume", "verify", "inspect"):
        forget("my_zstd")
        refused = harness(f"task={task}", snapshot, "plugins.path=mine")
        assert refused.code == 3 and "plugins.trust=[my_zstd]" in refused.out, refused.out
        assert "my_zstd" not in sys.modules and "Traceback" not in refused.out
        trusted = harness(f"task={task}", snapshot, "plugins.path=mine", "plugins.trust=[my_zstd]")
        assert trusted.code == 0, trusted.out


def test_the_level_of_the_format_is_checked(harness, examples):
    wrong = harness(*MINE, "save=my_zstd", "save.level=23")
    assert wrong.code == 2 and "save.level=23" in wrong.out


def test_the_librarys_quantized_cache_as_a_cache(harness, examples):
    chosen = "cache=my_quantized", "compare=lossy", "compare.require=diverged"
    made = harness(*MINE, *chosen)
    assert made.code == 0, made.out
    assert 0 < made.result["metrics"]["kl_mean"] < 0.5  # coded, and near
    windowed = harness(*MINE, *chosen, "model=tiny_gemma3")
    assert windowed.code == 2 and "full attention" in windowed.out


def test_a_quantizer_keeps_its_levels_and_checks_them(harness, examples):
    errors = []
    for levels in (16, 256):
        made = harness(*MINE, "quantize=my_grid", f"quantize.levels={levels}", "compare=lossy",
                       "compare.require=diverged")  # fmt: skip
        assert made.code == 0, made.out
        errors.append(made.result["quantization"]["layers"][0])
    assert errors[0]["key_error"] > 4 * errors[1]["key_error"]
    assert errors[0]["value_error"] == errors[1]["value_error"]
    wrong = harness(*MINE, "quantize=my_grid", "quantize.levels=1")
    assert wrong.code == 2 and "quantize.levels=1" in wrong.out


@pytest.mark.parametrize(
    "was, now, said",
    [
        ("element = 1", "seed = 1", "does not say what it damages"),
        ("return replace(state", "return state or replace(state", "nothing is damaged"),
    ],
)
def test_a_fault_that_damages_nothing_is_refused(harness, examples, was, now, said):
    code = examples / "mine" / "my_fault.py"
    text = code.read_text("utf-8")
    assert was in text
    code.write_text(text.replace(was, now), "utf-8")
    made = harness(*MINE, "fault=my_fault", "fault.layer=1")
    assert made.code == 2 and said in made.out, made.out


def test_a_fault_from_outside_is_noticed(harness, examples):
    made = harness(*MINE, "fault=my_fault", "fault.layer=1")
    assert made.code == 3 and made.result["verdict"] == "refused" and "proof" in made.out
    wrong = harness(*MINE, "fault=my_fault", "fault.layer=99")
    assert wrong.code == 2 and "fault.layer=99" in wrong.out


def test_a_key_that_the_example_does_not_read_is_an_error(harness, examples):
    wrong = harness(*MINE, "save=my_zstd", "save.codec=lz4")
    assert wrong.code == 2 and "save.codec is not read by save=my_zstd" in wrong.out


@pytest.mark.parametrize("group", ["prune", "save", "cache", "quantize", "fault"])
def test_the_page_shows_the_examples_as_they_are(group):
    shown = re.findall(r"```(?:python|yaml)\n(.*?)```", PAGE.read_text("utf-8"), flags=re.S)
    options = list((EXAMPLES / "conf" / group).glob("*.yaml"))
    assert options
    for yaml in options:
        assert yaml.read_text() in shown, yaml.name
        assert (EXAMPLES / f"{yaml.stem}.py").read_text() in shown, yaml.stem
    assert config.options(group)
