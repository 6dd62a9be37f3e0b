"""What two states are to each other is said before where they begin to differ."""

from dataclasses import replace

import pytest

from harness.task import diff
from harness.task.diff import between
from harness.task.diff.deviation import BRIEF, Deviation, explained
from harness.task.diff.fold import folded

TEXT = "text=let k be 5 . the bird sang ."


def told(a, b) -> str:
    """The reason that `task=diff` gives of two states."""
    own = diff.independent(explained(a, b))
    figures = diff.figured(own, {})
    said = between.models(a, b) + diff._reason(own, {}, "", figures)
    return between.retyped(own, a, b, figures) or said


@pytest.fixture
def one(captured):
    return captured("prompt=text", TEXT)[1].state


def test_the_same_text_in_another_dtype_is_compared_as_numbers(harness, place) -> None:
    for out, dtype in (("a", "float32"), ("b", "bfloat16")):
        assert harness("task=save", TEXT, f"dtype={dtype}", f"out={out}").code == 0
    done = harness("task=diff", "a=a", "b=b")
    far = done.result["diff"]["largest_kv_difference"]
    assert 0 < far < 0.1
    (logits,) = [d["gap"] for d in done.result["differences"] if d["what"] == "logits"]
    assert done.reason == (
        f"the same text in another dtype, float32 against bfloat16: keys and values differ by at most {far:.3g}, "
        f"the stored logits by at most {logits:.3g}"
    )
    assert "layers 0 to 1 key" in done.out and "layer.0.key" not in done.out
    page = (done.folders[0] / "report.html").read_text()
    for said in (page, done.out):  # the next advice would be refused for either of them
        assert "no one model holds both (one is in float32, the other in bfloat16)" in said
        assert "With model=NAME" not in said
    asked = harness("task=diff", "a=a", "b=b", "model=tiny")
    assert asked.code == 2 and "no one model holds both" in asked.out
    assert ">layers 0 to 1</td>" in page and ">key form</td>" in page


def test_another_dtype_and_more_is_no_dtype_alone(captured, one) -> None:
    other = captured("prompt=text", "text=let k be 7 . the bird sang .", "dtype=bfloat16")[1].state
    assert told(one, other).startswith("other texts, which part at token 5 ")
    less = [Deviation("kv_format", "dtype", "float32", "bfloat16"), Deviation("kv_format", "layers[0].kept", "9", "4")]  # fmt: skip
    same = captured("prompt=text", TEXT, "dtype=bfloat16")[1].state
    assert between.retyped(less[:1], one, same, {"largest_kv_difference": 0.1})
    assert between.retyped(less, one, same, {"largest_kv_difference": 0.1}) is None
    assert between.retyped(less[:1], one, same, {"largest_kv_difference": None}) is None


def test_another_model_is_said_first(captured, one) -> None:
    other = captured("prompt=text", TEXT, "model=tiny_gpt2")[1].state
    assert told(one, other).startswith("another model: a 2-layer llama against a 3-layer gpt2; ")
    seeded = captured("prompt=text", TEXT, "model=tiny_gpt2", "model.seed=3")[1].state
    assert told(other, seeded).startswith("another model: other weights of a 3-layer gpt2; ")
    assert between.unheld(one, other) == "they differ in element 6 model_config, config.model_type"
    assert between.unheld(other, seeded).startswith("they differ in element ")
    assert not between.unheld(one, captured("prompt=text", "text=let k be 7 .")[1].state)
    assert not between.models(one, captured("prompt=text", "text=let k be 7 .")[1].state)
    assert not between.models(one, captured("prompt=text", TEXT, "dtype=bfloat16")[1].state)


def test_codes_are_told_in_words_and_layers_share_their_row(harness, place) -> None:
    assert harness("task=save", TEXT, "out=a").code == 0
    assert harness("task=save", TEXT, "quantize=int4", "out=b").code == 0
    done = harness("task=diff", "a=a", "b=b")
    rows = [d for d in done.result["differences"] if d["where"].endswith(".coded")]
    assert [(d["a"], d["b"]) for d in rows] == [("(missing)", "of 4 bits")] * 2
    assert "{'" not in done.out and "kv_format codes of" in done.out


def test_layers_of_one_form_share_a_row_with_the_largest_difference() -> None:
    forms = ("float32 [1, 2]", "bfloat16 [1, 2]")
    rows = [Deviation(f"layer.{i}.key", "form", *forms, "", f"at most 0.{i}", i / 10) for i in range(1, 4)]  # fmt: skip
    alone = Deviation("layer.7.key", "form", "float32 [1, 3]", "float32 [1, 2]")
    kinds = [Deviation("kv_format", f"layers[{i}].kind", "full", "sliding") for i in (0, 2)]
    (one, *rest) = folded([*rows, alone, *kinds])
    assert one.brief() == ["layers 1 to 3 key form", *forms, "at most 0.3"] and len(BRIEF) == 4
    assert [d.brief()[0] for d in rest] == ["layer.7.key form", "kv_format kind of layers 0, 2"]


def test_layers_that_stand_for_each_other_are_named(captured, one) -> None:
    swapped = [replace(layer, index=i) for i, layer in enumerate(one.layers[::-1])]
    assert between.exchanged(one, replace(one, layers=tuple(swapped))) == (
        "layers 0 and 1 are exchanged, each holds the keys and values of the other; "
    )
    twice = tuple(replace(one.layers[0], index=i) for i in range(2))
    said = between.exchanged(replace(one, layers=twice), replace(one, layers=one.layers))
    assert said == "layer 1 of a is layer 0 of b, bit for bit; "
    assert not between.exchanged(one, one)
    assert not between.exchanged(one, captured("prompt=text", "text=let k be 7 .")[1].state)


def test_what_one_more_token_does_is_said_to_be_one_step(harness, place) -> None:
    for name, more in (("a", ()), ("b", ("prune=snapkv", "prune.ratio=0.5"))):
        task = "task=prune" if more else "task=save"
        given = ("snapshot=a", f"out={name}", *more) if more else (TEXT, f"out={name}")
        assert harness(task, *given).code == 0
    done = harness("task=diff", "a=a", "b=b", "model=tiny")
    said = done.reason
    figures = done.result["diff"]
    assert "after one more token" in said and f"{figures['next_step_kl']:.3g}"[:4] in said, said
    alone = harness("task=diff", "a=a", "b=b").reason
    assert "one more token" not in alone
