"""The diagnosis: where it begins, what it is called, and a picture of it; and nothing where all is well."""

from dataclasses import replace

import pytest
import torch

from harness.compare import diagnosis as documents
from harness.compare.picture import MARGIN
from harness.fault import edit
from harness.model.loaded import Loaded
from harness.pipeline.diagnosis import diagnose, recompute
from harness.pipeline.step import joined
from harness.report.run import diagnosis as drawing
from harness.snapshot.state import State


@pytest.fixture
def healthy(captured) -> tuple:
    session, made = captured("steps=4")
    return session.loaded, made.state


def one(state: State, layer: int, head: int, row: int, add: float) -> State:
    """The state with `add` on one number of one key."""

    def change(key):
        key = key.clone()
        key[0, head, row, 3] += add
        return key

    return edit.layers(state, change, only=layer)


def test_a_healthy_state_is_left_alone(healthy):
    told = diagnose(*healthy)
    assert (told.cause, told.layer, told.token) == ("rounding", None, None)
    assert len(told.picture) == len(healthy[1].layers)
    assert max(max(rows) for rows in told.picture) <= MARGIN


@pytest.mark.parametrize(("layer", "head", "row"), [(0, 0, 0), (1, 1, 7)])
def test_it_says_where_the_error_begins_and_draws_it(healthy, layer, head, row):
    loaded, state = healthy
    heads = state.layers[0].key.shape[1]
    told = diagnose(loaded, one(state, layer, head % heads, row, 0.5))
    assert (told.cause, told.layer, told.head, told.token) == ("block", layer, head % heads, row)
    beyond = [
        (i, t) for i, rows in enumerate(told.picture) for t, e in enumerate(rows) if e > MARGIN
    ]
    assert beyond == [(layer, row)]


def test_a_cursor_that_went_astray_is_told_as_a_number(healthy):
    loaded, state = healthy
    told = diagnose(loaded, replace(state, next_position=state.next_position + 1))
    count = state.tokens
    assert told.evidence == f"the next position is {count + 1} after {count} tokens", told.evidence


def test_where_several_heads_are_off_none_is_called_the_first(healthy):
    loaded, state = healthy
    both = one(one(state, 0, 0, 3, 0.5), 0, 1, 3, 2.0)  # the second is the worse one
    heads = state.layers[0].key.shape[1]
    said = "every head" if heads == 2 else "heads 0, 1"
    told = diagnose(loaded, both)
    assert f"first at layer 0, {said}, token 3: up to" in told.evidence and told.head == 0
    alone = diagnose(loaded, one(state, 0, 1, 3, 2.0))
    assert "first at layer 0, head 1, token 3: " in alone.evidence and alone.head == 1


def test_an_error_within_the_noise_is_not_seen_and_one_above_it_is(healthy):
    loaded, state = healthy
    floor = recompute(loaded, state.token_ids, state.attention_mask).floors[1]["key"]
    assert diagnose(loaded, one(state, 1, 0, 5, floor)).layer is None
    assert diagnose(loaded, one(state, 1, 0, 5, 20 * floor)).layer == 1


def test_two_layers_in_each_others_place_are_exchanged_and_a_copy_is_not(healthy):
    loaded, state = healthy
    first, second, *rest = state.layers
    there, back = replace(second, index=0), replace(first, index=1)
    told = diagnose(loaded, replace(state, layers=(there, back, *rest)))
    said = "layers 0 and 1 are exchanged, each holds the K/V of the other; first at layer 0,"
    assert told.cause == "layer" and told.evidence.startswith(said)
    assert told.evidence.endswith("times the noise of this layer's keys and values")
    told = diagnose(loaded, replace(state, layers=(there, second, *rest)))
    assert told.cause == "layer" and told.evidence.startswith("layer 0 holds the K/V of layer 1; ")


@pytest.mark.parametrize("whole", [True, False], ids=["with-positions", "numbers-alone"])
def test_layers_that_kept_other_tokens_are_seen_to_be_exchanged(captured, whole):
    """Pruned per head each layer has positions of its own, which may have come along or stayed."""
    from harness.prune.registry import policy

    session, made = captured("prune=snapkv", "prune.ratio=0.5")
    state = policy(session.cfg.prune).prune(made.state)
    first, second, *rest = state.layers
    assert not torch.equal(first.positions, second.positions)
    here, there = (second, first) if whole else (
        replace(first, segments=second.segments), replace(second, segments=first.segments)
    )  # fmt: skip
    swapped = (replace(here, index=0), replace(there, index=1), *rest)
    told = diagnose(session.loaded, replace(state, layers=swapped))
    assert told.evidence.startswith("layers 0 and 1 are exchanged, each holds the K/V of the other")


def test_a_wrong_scale_says_by_how_much(healthy):
    loaded, state = healthy
    told = diagnose(loaded, edit.layers(state, lambda k: k * 2, lambda v: v * 2, only=1))
    assert told.cause == "scale"
    assert "2 times" in told.evidence
    heads = torch.ones(state.layers[0].key.shape[1], 1, 1)
    heads[-1] = 0.25
    told = diagnose(loaded, edit.layers(state, lambda k: k, lambda v: v * heads))
    assert told.cause == "scale"
    assert "0.25 times" in told.evidence


@pytest.mark.parametrize("option", ["int8", "int4", "fp8_e4m3", "fp8_e5m2", "kivi"])
def test_codes_may_be_a_step_away_and_no_more(captured, option):
    from harness.quantize.registry import quantizer

    session, made = captured(f"quantize={option}", "quantize.recent=0")
    small = quantizer(session.cfg.quantize).quantize(made.state)
    told = diagnose(session.loaded, small)
    assert (told.cause, told.layer) == ("rounding", None), told.evidence
    told = diagnose(session.loaded, edit.scales(small, lambda s: s * 1.7))
    assert told.cause == "scale"
    if option != "int4":  # of 15 steps and an offset too little is left to fit a factor to
        assert diagnose(session.loaded, edit.scales(small, torch.ones_like)).cause == "scale"


def test_codes_on_few_levels_are_rounding_and_turned_keys_are_not(captured):
    """A quantizer of one's own may round codes of eight bits to sixteen levels: a whole row stays about as long."""
    from harness.quantize.registry import quantizer

    session, made = captured("quantize=int8", "quantize.recent=0")
    quantize = quantizer(session.cfg.quantize).quantize
    level = made.state.layers[0].key.abs().max() / 16
    coarse = edit.layers(made.state, lambda k: (k / level).round() * level, lambda v: v)
    told = diagnose(session.loaded, quantize(coarse))
    assert told.cause == "rounding", told.evidence

    def turn(k):
        one, other = k.double().chunk(2, -1)
        angle = torch.logspace(0, -4, one.shape[-1], dtype=torch.float64)
        both = (one * angle.cos() - other * angle.sin(), other * angle.cos() + one * angle.sin())
        return torch.cat(both, -1).to(k.dtype)

    told = diagnose(session.loaded, quantize(edit.layers(made.state, turn, lambda v: v)))
    assert (told.cause, told.layer) == ("position", 0), told.evidence


def test_an_unsound_library_is_the_cause_whatever_the_state_says(healthy):
    loaded, state = healthy
    told = diagnose(loaded, one(state, 0, 0, 0, 1.0), unsound="prefill in chunks leaves its bound")
    assert (told.cause, told.evidence) == ("library", "prefill in chunks leaves its bound")


def test_rows_of_a_padded_batch_are_laid_beside_runs_of_their_own(captured):
    session, made = captured("steps=4", "prompt.batch=3")
    told = diagnose(session.loaded, made.state)
    assert (told.cause, told.layer) == ("rounding", None)


def test_a_mask_that_was_never_sent_is_called_one(captured, monkeypatch):
    """A twin: the batch was captured by a forward that drops the mask; documents know nothing of it."""
    from harness.model.sampler import Sampler

    session, _ = captured("steps=4", "prompt.batch=3")
    honest = type(session.loaded).once
    monkeypatch.setattr(
        type(session.loaded), "once",
        lambda self, ids, positions, mask=None, cache=None, keep=0: honest(self, ids, positions, None, cache, keep),
    )  # fmt: skip
    blind = session.capture(session.encoded(), Sampler(session.cfg.sampling)).state
    monkeypatch.undo()
    told = diagnose(session.loaded, blind)
    assert told.cause == "mask"
    assert told.layer >= 1


def test_a_pruned_state_is_said_to_be_pruned(captured):
    from harness.prune.registry import policy

    session, made = captured("prune=keep_last", "prune.tokens=8")
    told = diagnose(session.loaded, policy(session.cfg.prune).prune(made.state))
    assert (told.cause, told.layer) == ("block", None)
    assert "pruned on purpose: 8 of" in told.evidence


def test_what_was_read_over_a_pruned_past_is_no_damage_and_damage_is_seen_all_the_same(captured):
    from harness import resume
    from harness.prune.registry import policy

    session, made = captured("prune=sink_window", "prune.tokens=8")
    small = policy(session.cfg.prune).prune(made.state)
    run = resume(session.loaded, small, " what is k ?", steps=4)
    list(run)
    grown = run.state.with_layers(tuple(map(joined, run.state.layers)))
    told = diagnose(session.loaded, grown)
    assert (told.cause, told.layer) == ("block", None)
    assert (
        f"pruned on purpose: {grown.kept_tokens} of" in told.evidence
        and "saw only what was left" in told.evidence
    )
    last = grown.kept_tokens - 1
    assert (
        diagnose(session.loaded, one(grown, 1, 0, 3, 9.0)).token == 3
    )  # read before it was pruned
    assert diagnose(session.loaded, one(grown, 0, 0, last, 9.0)).token == last  # knows no past
    history = made.state.documents["kv_format"] | {"pruned": None}
    blind = replace(grown, documents={**grown.documents, "kv_format": history})
    assert "pruned on purpose" not in diagnose(session.loaded, blind).evidence


def test_windows_that_held_fewer_tokens_than_were_read_are_not_said_to_have_been_read_on(captured):
    from harness.prune.registry import policy

    session, made = captured("prune=keep_last", "prune.tokens=8")
    narrow = [replace(la, window=40) for la in made.state.layers]
    cut = [replace(la, segments=(la.segments[0].cut(la.kept - 39, la.kept),)) for la in narrow]
    small = policy(session.cfg.prune).prune(made.state.with_layers(tuple(cut)))
    assert documents.dropped(small) == f"pruned on purpose: 8 of {small.tokens} tokens are kept"


def test_what_is_wrong_with_one_row_is_said_in_grammar(healthy):
    loaded, state = healthy
    told = diagnose(loaded, one(state, 0, 0, 3, 0.5))
    assert told.evidence.startswith("only the keys of cache row 3 are off; ")

    def blank(t):
        return t * (torch.arange(t.shape[2]) != 3)[:, None].to(t)

    assert diagnose(loaded, edit.layers(state, blank, blank)).evidence.startswith(
        "cache row 3 holds zeros; "
    )


def test_what_was_lost_or_kept_coarser_is_no_other_model(healthy):
    loaded, state = healthy
    lost = edit.layers(state, torch.zeros_like, torch.zeros_like)
    told = diagnose(loaded, lost)
    assert (
        told.cause == "block" and f"cache rows 0 to {state.tokens - 1} hold zeros" in told.evidence
    )
    told = diagnose(loaded, edit.layers(state, torch.zeros_like, only=0))
    assert told.cause == "block" and told.evidence.startswith("the keys of cache rows 0 to ")
    told = diagnose(loaded, edit.layers(state, lambda t: t.bfloat16().float(), only=0))
    assert told.cause == "rounding" and "only the keys are off: all of them are bf" in told.evidence
    told = diagnose(loaded, edit.layers(state, torch.ones_like, only=0))
    assert told.cause == "identity", "numbers that any type can hold are no rounding of these"


def test_a_router_that_meets_a_tie_is_named():
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2, head_dim=16,
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2,
        experts_implementation="eager",
    )  # fmt: skip
    torch.manual_seed(0)
    loaded = Loaded(MixtralForCausalLM(config).eval(), None, {}, 0.0)
    ids = torch.arange(5, 25)[None]
    mask = torch.ones_like(ids)
    assert recompute(loaded, ids, mask).ties == ()
    for module in loaded.model.modules():
        if type(module).__name__.endswith("Router"):
            with torch.no_grad():
                module.weight[1:] = module.weight[:1]  # experts that score alike
    assert recompute(loaded, ids, mask).ties[0] == (0, 0)


def test_what_a_refusal_says_is_a_diagnosis():
    said = documents.refusal((), ["layer.2.segment.0.key: does not match its digest"])
    assert (said.cause, said.element) == ("block", "kv_cache")
    moved = documents.refusal((), ["tensor 'layer.0.segment.0.key' has layer_type full_attention"])
    assert moved.cause == "layer"
    assert documents.refusal((), ["something else"]) is None


def test_numbers_that_are_not_finite_are_seen(healthy):
    loaded, state = healthy
    told = diagnose(loaded, one(state, 1, 0, 4, float("nan")))
    assert (told.cause, told.layer, told.token) == ("block", 1, 4)


def test_the_state_is_only_read(healthy):
    loaded, state = healthy
    before = [t.clone() for _, t in state.tensors()]
    diagnose(loaded, replace(state))
    assert all(torch.equal(a, t) for a, (_, t) in zip(before, state.tensors(), strict=True))


def test_the_main_line_says_why_and_draws_it(harness):
    done = harness("fault=block_overwritten", "restore.strict=false", "steps=4")
    assert done.code == 1, done.out
    said = done.result["diagnosis"]
    assert (said["cause"], said["layer"]) == ("block", 0)
    assert "cache rows hold what belongs in others: cache row " in said["evidence"]
    assert f"diagnosis:    BLOCK: {said['evidence']}" in done.out
    page = (done.folders[0] / "report.html").read_text()
    assert "Diagnosis" in page
    assert page.count("noise floors</title>") == sum(map(len, said["picture"]))
    assert drawing.STEP == MARGIN  # floors of codes that are one of their steps
    (coded,) = drawing.sections(said, coded=True)
    assert (
        "in steps of the codes" in coded["text"]
        and "noise floors</title>" not in coded["panels"][0]
    )
    assert coded["panels"][0].count("steps of the codes</title>") == sum(map(len, said["picture"]))
    near = {**said, "evidence": "quantized on purpose", "picture": [[3.4, 0.8]]}
    (block,) = drawing.sections(near)
    assert (
        "within 0.42 of a step of what the token buffer gives" in block["text"]
        and "panels" not in block
    )


def test_a_run_that_is_well_has_no_diagnosis(harness):
    done = harness("steps=4")
    assert done.result["diagnosis"] is None
    assert "diagnosis" not in done.out


def test_a_refusal_says_why(harness):
    done = harness("fault=block_overwritten", "steps=4")
    assert done.code == 3
    assert done.result["diagnosis"]["cause"] == "block"
    done = harness("fault=query_tuned", "steps=4")
    assert done.code == 3
    assert done.result["diagnosis"]["cause"] == "identity"
    assert done.result["diagnosis"]["element"] == "attention_weights"
    done = harness("fault=zero_page", "steps=4")
    assert done.code == 3
    assert done.result["diagnosis"]["cause"] == "block"
