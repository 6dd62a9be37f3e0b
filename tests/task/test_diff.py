"""`task=diff` says `the same state` of nothing that differs in a single bit, wherever that is."""

import re
from dataclasses import replace
from types import MappingProxyType

import pytest
import torch

from harness.config import option
from harness.pipeline.quantize import quantizer_of
from harness.pipeline.reduction import pruned_by
from harness.report.terminal.console import fitted
from harness.save import store
from harness.snapshot.state import State
from harness.task import diff
from harness.task.diff import deviation
from harness.task.diff.deviation import (
    BRIEF,
    Deviation,
    continued,
    continues,
    differences,
    explained,
)
from harness.task.diff.fold import folded


def flipped(tensor: torch.Tensor) -> torch.Tensor:
    """A copy whose very first bit is another."""
    copy = tensor.clone(memory_format=torch.contiguous_format)
    copy.view(-1).view(torch.uint8)[0] ^= 1
    return copy


def edited(state: State, name: str) -> State:
    """`state` with one bit of the tensor `name` flipped."""
    if "." not in name:
        return replace(state, **{name: flipped(getattr(state, name))})
    _, index, *rest = name.split(".")
    layer = state.layers[int(index)]
    if rest[0] == "segment":
        segment = layer.segments[int(rest[1])]
        other = replace(segment, **{rest[2]: flipped(getattr(segment, rest[2]))})
        changed = replace(layer, segments=(other,))
    elif rest[0] == "received":
        changed = replace(layer, received=flipped(layer.received))
    else:
        held = {**layer.recurrent, rest[0]: flipped(layer.recurrent[rest[0]])}
        changed = replace(layer, recurrent=MappingProxyType(held))
    layers = tuple(changed if la is layer else la for la in state.layers)
    return replace(state, layers=layers)


@pytest.mark.parametrize("options", [("prune=heavy_hitter", "prune.ratio=0.5"), ("model=tiny_hybrid",)])  # fmt: skip
def test_every_tensor_of_a_state_is_compared(captured, options) -> None:
    state = captured("prompt=text", "text=let k be 5 . the bird sang .", *options)[1].state
    names = [name for name, _ in state.tensors()]
    assert any(n.endswith("received") for n in names) == ("prune" in options[0])
    assert list(differences(state, state)) == []
    for name in names:
        assert list(differences(state, edited(state, name))), f"a bit of {name} was not seen"


def test_other_codes_of_the_same_numbers_are_another_state(captured) -> None:
    state = captured("prompt=text", "text=let k be 5 .", "quantize=int8")[1].state
    first, *others = quantizer_of(option("quantize", "int8", recent=0)).quantize(state).layers
    (held,) = first.segments
    zeros = replace(held.key, codes=torch.zeros_like(held.key.codes))
    scaled = replace(zeros, scale=2 * zeros.scale)
    one, two = (
        replace(state, layers=(replace(first, segments=(replace(held, key=key),)), *others))
        for key in (zeros, scaled)
    )
    assert torch.equal(one.layers[0].key, two.layers[0].key)
    assert [d.what for d in differences(one, two)] == ["layer.0.segment.0.key_scale"]


@pytest.mark.parametrize("a, b", [({"x": None}, {}), ({"x": 0.0}, {"x": -0.0}), ({"x": 1}, {"x": 1.0})])  # fmt: skip
def test_no_value_no_sign_and_no_kind_of_number_is_lost(captured, a, b) -> None:
    state = captured("prompt=text", "text=let k be 5 .")[1].state
    one, two = (state.document("prompt_meta", more=value) for value in (a, b))
    assert [d.where for d in differences(one, two)] == ["more.x"]


def test_another_text_explains_all_other_differences_and_is_shown_as_it_reads(captured) -> None:
    text = "let k be 5 . the {} sang ."
    one, two = (captured("prompt=text", f"text={text.format(w)}")[1].state for w in ("bird", "man"))
    assert next(differences(one, two)).what != "token_ids", "in stored order the digests come first"
    first, *rest = explained(one, two)
    assert first.what == "token_ids" and "' bird'" in first.a and "' man'" in first.b
    assert rest[0].what == "layer.0.key" and "at most" not in first.amount
    longer = captured("prompt=text", f"text={text.format('man')} ok .")[1].state
    first, form, *_ = explained(one, longer)
    assert first.place == "token 8 (index 7)" and "' man'" in first.b and form.where == "form"
    assert explained(two, longer)[0].where == "form", "the one begins the other"
    bare = [replace(state, tokenizer_files=MappingProxyType({})) for state in (one, two)]
    assert explained(*bare)[0].a.isdigit()
    assert first.place == "token 8 (index 7)", "counted from 1, as in the sentence"
    assert replace(first, where="[1, 0]").place == "token 1 (index 0) of row 2"
    assert [row[0] for row in diff.read(one, two)] == ["a", "b"] and not diff.read(one, one)
    assert "bird" in diff.read(one, two)[0][1] and "man" in diff.read(one, two)[1][1]
    reason = diff._reason([first, *rest], {}, "", diff.figured([first, *rest], {}))
    own = diff.independent([first, *rest])
    assert {"proof", "prompt_meta"} & {d.what for d in rest} and not {d.what for d in own} & {
        "proof"
    }
    assert reason.startswith("other texts, which part at token 8 (index 7) of what was read: ")
    follow = f"{len(own)} differences, and {1 + len(rest) - len(own)} that follow from them"
    assert reason.endswith(follow)
    assert diff.independent([Deviation("proof", "kv", "1", "2")]), "there is nothing else"


def test_the_differences_are_a_table_on_80_columns(captured) -> None:
    texts = ("let k be 5 .", "let k be 5 . the bird sang .")
    one, two = (captured("prompt=text", f"text={text}")[1].state for text in texts)
    listed = list(explained(one, two))
    assert fitted(BRIEF, [d.brief() for d in listed], 80)
    assert not fitted(diff.COLUMNS, [d.row() for d in listed], 80)  # the twin: with every digit
    near = Deviation("proof", "kv", "1.00000000001", "1.00000000002")
    assert near.brief()[1:3] == [near.a, near.b], "what differs is never shortened to the same"


def test_what_goes_on_from_a_state_is_said_to_and_with_which_numbers(captured, harness) -> None:
    short, more = "let k be 5 .", " the bird sang ."
    one = captured("prompt=text", f"text={short}")[1].state
    for key, text in (("a", short), ("b", short + more)):
        assert harness("task=save", f"text={text}", f"out={key}").code == 0
    done = harness("task=diff", "a=a", "b=b")
    said = done.reason
    assert said.startswith(
        f"state b continues state a: the first {one.tokens} tokens are the same, "
    )
    assert "form" not in done.out.replace("format", "") and "tate b continues state a" in done.out
    page = (done.folders[0] / "report.html").read_text()
    assert "What was read</h2>" in page and f"{short}{more}</td>" in page
    assert "diverged</span>" not in page and not done.result["logits"]
    assert f"Left out: those of a follow its {one.tokens} tokens, " in page
    assert ">of the next token</td>" in page
    assert "not compared: after other tokens" in page and "KL (nats)" not in page
    tokens = [
        text.tokens for text in (one, captured("prompt=text", f"text={short}{more}")[1].state)
    ]
    assert f"{done.result['snapshot']['a'][:16]}...</td>" in page, "no id is broken"
    assert not re.search(">[0-9a-f]{40,}<", page.partition("<summary>")[0])
    assert page.count(">\u2260 differs</td>") == 4  # id, tokens, next position, bytes
    cells = [f">{n}, {n}</td>" for n in tokens]  # what each of the two is, side by side
    assert cells[0] in page and page.index(cells[0]) < page.index(cells[1])
    assert done.result["verdict"] == "unjudged" and done.code == 1, "no continuation was measured"
    listed = [d["where"] for d in done.result["differences"]]
    assert "layers[0].kept" in listed and not [where for where in listed if "segments" in where]
    turned = edited(one, "layer.1.segment.0.value")
    two = captured("prompt=text", f"text={short}{more}")[1].state
    assert "but not their K/V, from layer." in str(continues(turned, two))
    assert str(continues(two, turned)).startswith("state a continues state b")
    assert continued(turned, two) is None, "other K/V are a difference like any other"
    assert continues(one.document("tokenizer", x=1), two) is None
    assert continues(one, one) is None and continues(edited(one, "token_ids"), two) is None


def test_what_pruning_left_is_said_before_what_differs(captured) -> None:
    one = captured("prompt=text", "text=let k be 5 .")[1].state
    small = pruned_by(None, one, "keep_last", {"tokens": 2})  # type: ignore[arg-type]
    said = f"snapshot a is pruned by keep_last: it holds 2 of {one.tokens} tokens; "
    assert diff._lossy(small, one) == said
    rows = [deviation.row() for deviation in differences(small, one)]
    assert not any(row[4] for row in rows) and "bits" not in diff._filled(rows)[0]
    assert diff._lossy(one, one) == diff._lossy(small, small) == ""


def test_a_table_has_the_columns_that_say_something_and_all_where_it_is_empty() -> None:
    row = ["element", "kv_cache", "1", "2", "", ""]
    assert diff._filled([row]) == (diff.COLUMNS[:4], [row[:4]])
    assert diff._filled([]) == (diff.COLUMNS, [])  # the page says "None." below it


def test_logits_stored_at_capture_are_said_to_be() -> None:
    """Whatever was done to the K/V of one text since, the stored logits are the same: that is no word on what it
    does."""
    measured = {"stored": diff.compared(torch.ones(1, 4), torch.ones(1, 4))}
    (row,), told = diff.in_logits(measured, other=True)
    assert row == ["stored at capture", 0.0, 0.0, True]
    assert "does not change them" in told and "No continuation was measured" in told
    both = {**measured, "next step": measured["stored"]}
    assert "No continuation" not in diff.in_logits(both, other=True)[1]
    assert diff.in_logits(measured, other=False) == ([["stored", 0.0, 0.0, True]], "")
    (found,) = [Deviation("layer.0.key", "[0, 0, 0, 0]", "1.0", "2.0")]
    assert diff.judged([found], measured) == "unjudged" and diff.judged([found], both) == "drifted"
    far = {**both, "next step": {"same_token": False}}
    assert diff.judged([found], far) == "diverged" and diff.judged([], {}) == "exact"


def test_the_numbers_of_every_layer_are_compared_with_those_that_are_kept_as_codes(harness) -> None:
    for out, *more in (
        ("full",),
        ("coded", "quantize=int4"),
        ("half", "quantize=int4", "dtype=bfloat16"),
    ):
        asked = ("text=let k be 5 . the bird sang .", f"out={out}", *more)
        assert harness("task=save", *asked).code == 0
    both = harness("task=diff", "a=full", "b=half").reason
    assert both.startswith("another dtype, float32 against bfloat16; snapshot b is quantized by ")
    assert "the stored logits, which that does not change, differ by at most 0." in both
    done = harness("task=diff", "a=full", "b=coded")
    listed = [d["what"] for d in done.result["differences"]]
    for layer in range(2):
        assert {f"layer.{layer}.key", f"layer.{layer}.value"} <= set(listed)
        alone = [
            d for d in done.result["differences"] if d["what"].startswith(f"layer.{layer}.seg")
        ]
        assert alone and all((d["where"], d["a"]) == ("one side only", "(missing)") for d in alone)
    assert listed.index("layer.1.value") < listed.index("layer.0.segment.0.key_codes")
    said = done.reason
    worst = done.result["diff"]["largest_kv_difference"]
    words = f"keys and values differ by at most {worst:.3g}, the stored logits are the same"
    assert said == f"snapshot b is quantized by int4; {words}"
    page = (done.folders[0] / "report.html").read_text()
    assert "stored at capture" in page and "No continuation was measured" in page
    again = harness("task=diff", "a=coded", "b=coded")
    assert (again.code, again.result["verdict"]) == (0, "exact")
    held, page = again.result["compared"], (again.folders[-1] / "report.html").read_text()
    assert f"bit for bit: {held['tensors']} tensors of {held['numbers']:,} numbers" in page
    assert held["bytes"] > held["numbers"] > held["tensors"] > 8, "codes and scales, too"
    assert 'href="result.json"' in page and 'href="record.json"' in page


def test_a_page_of_two_is_called_by_what_tells_them_apart_and_has_their_whole_paths(
    harness,
) -> None:
    for key, text in (("one", "the bird sang ."), ("two", "the man sang .")):
        assert harness("task=save", f"text={text}", f"out={key}/1").code == 0
    done = harness("task=diff", "a=one/1", "b=two/1")
    page = (done.folders[0] / "report.html").read_text()
    assert "<h1>diff a = one, b = two</h1>" in page and ">manifest of a</a>" in page
    where = page.partition("Where they are</summary>")[2]
    assert "a=one/1\nb=two/1" in where
    shared, both = page.partition("What both are</summary>")[::2]
    assert ">float32</td>" in both and "needs dtype" not in shared, "once, and folded"


def test_what_continues_a_state_bit_for_bit_is_no_fault(harness) -> None:
    """Its badge is neutral; the exit code stays that of two states that are not the same."""
    assert harness("task=save", "text=let k be 5 .", "out=a").code == 0
    assert harness("task=resume", "snapshot=a", "text= what is k ?", "steps=2", "out=b").code == 0
    for sides, words in ((("a", "b"), "b continues a"), (("b", "a"), "a continues b")):
        done = harness("task=diff", *(f"{k}={v}" for k, v in zip("ab", sides, strict=True)))
        page = (done.folders[-1] / "report.html").read_text()
        assert f'<span class="verdict soft">{words}</span>' in page and "differs</span>" not in page
        assert done.code == 1 and done.out.startswith("State ") and "differs: " not in done.out
        longer, shorter = words.split(" continues ")
        assert done.result["continues"] == {"longer": longer, "shorter": shorter}
        assert ", from bit " not in page, "whole numbers have no bits"
    one, two = store.load("a")[0], store.load("b")[0]
    assert continued(one, two) and continued(one, one) is None
    assert continued(edited(one, "attention_mask"), two) is None
    assert continued(edited(one, "layer.1.segment.0.value"), two) is None


def test_where_an_answer_begins_is_said_in_words_and_logits_after_other_tokens_are_no_measure(
    harness,
) -> None:
    assert harness("task=save", "text=let k be 5 .", "out=a").code == 0
    done = harness("task=resume", "snapshot=a", "text= what is k ?", "steps=2", "out=b")
    assert done.code == 0
    done = harness("task=diff", "a=a", "b=b", "model=tiny")
    rows = {(d["what"], d["where"]): d for d in done.result["differences"]}
    begun = rows["generation", "begun"]
    assert (begun["a"], begun["b"].partition(" token ")[0]) == ("nothing generated", "behind")
    assert rows["next_position", "[0]"]["bits"] == rows["next_position", "[0]"]["amount"] == ""
    page = (done.folders[0] / "report.html").read_text()
    assert (
        ">where what was generated begins</td>" in page
        and ">tokens seen by layers 0 to 1</td>" in page
    )
    logits = next(d for d in done.result["differences"] if d["what"] == "logits")
    assert logits["gap"] is None and done.result["verdict"] == "unjudged"
    assert not done.result["logits"], "no next step is taken after other tokens"


def test_layers_that_kept_as_many_other_tokens_share_a_row() -> None:
    """One that kept another number, and what is no count of tokens, have their own."""
    rows = [
        deviation.Deviation("kv_format", f"layers[{i}].{part}", "97", "103")
        for i in range(28)
        for part in ("kept", "seen")
    ]
    other = deviation.Deviation("kv_format", "layers[28].kept", "97", "99")
    logits = deviation.Deviation("logits", "[0, 0]", "1", "2")
    told = [d.place for d in folded([*rows, other, logits])]
    first = ["tokens kept by layers 0 to 27", "tokens seen by layers 0 to 27"]
    assert told == [*first, "tokens kept by layer 28", logits.place]


def test_two_seeds_are_told_as_other_random_numbers(harness, place) -> None:
    text = "text=let k be 5 . the bird sang . k is"
    for seed in (1, 2):
        assert harness("task=save", text, f"seed={seed}", f"out=s{seed}").code == 0
    done = harness("task=diff", "a=s1", "b=s2")
    assert done.code == 1 and done.reason == diff.DRAWS and diff.DRAWS[:40] in done.out
    assert harness("task=diff", "a=s1", "b=s1").code == 0


def test_the_folder_of_a_run_stands_for_what_it_saved(tmp_path) -> None:
    """The twins: a snapshot, and a folder that holds none."""
    run = tmp_path / "run"
    (run / "snapshot").mkdir(parents=True)
    assert diff._saved(str(run)) == str(run)
    (run / "snapshot" / "manifest.json").touch()
    assert diff._saved(f"{run}/") == diff._saved(str(run)) == str(run / "snapshot")
    assert diff._saved(str(run / "snapshot")) == str(run / "snapshot")
