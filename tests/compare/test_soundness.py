"""The yardstick's own verdict: bounds, and that no later rule can talk over an unsound path."""

import torch

from harness.compare.soundness import (
    PlainPath,
    Soundness,
    carried,
    exact_path,
    float64_bound,
    rounded_path,
)
from harness.compare.verdict import decide, errors
from harness.present.conclusion import conclusion
from harness.snapshot.result import worse


def _logits(seed: int = 0) -> torch.Tensor:
    return torch.randn(1, 3, 40, generator=torch.Generator().manual_seed(seed)).double()


def _decided(soundness: Soundness) -> tuple[str, str]:
    logits = _logits().float()
    figures = {"bitwise_equal": True, "max_abs_diff": 0.0}
    oracle = errors(logits, logits, logits.double())
    return decide(logits, logits, figures, figures, oracle, None, (), soundness)


def test_bit_equal_logits_are_not_exact_where_the_plain_path_is_wrong() -> None:
    sound = Soundness({}, [PlainPath("live", 1e-9, 1e-6)])
    wrong = Soundness({}, [PlainPath("live", 1e-9, 1e-6), PlainPath("chunks", 0.2, 1e-6)])
    assert _decided(sound)[0] == "exact"
    verdict, reason = _decided(wrong)
    assert verdict == "unsound"
    assert (reason["code"], reason["args"]["error"], reason["args"]["bound"]) == (
        "unsound_path",
        0.2,
        1e-6,
    )


def test_no_number_is_never_sound() -> None:
    assert not PlainPath("live", float("nan"), 1.0).sound
    assert not PlainPath("live", 0.1, float("inf")).sound  # a scale that overflowed bounds nothing
    fine, endless = PlainPath("live", 0.1, 0.2), PlainPath("chunks", 3e24, float("inf"))
    for none in (endless, PlainPath("chunks", float("nan"), 1.0)):
        assert Soundness({}, [fine, none]).worst is none
        assert Soundness({}, [fine, none]).reason["code"] == "unsound_numbers"


def test_the_float64_bound_grows_with_depth_and_size_only() -> None:
    assert float64_bound(80, 10.0) == 10 * float64_bound(80, 1.0)
    assert (
        float64_bound(1, 1.0) < float64_bound(80, 1.0) < 1e-3
    )  # a lost state measures 1e-3 and more
    assert float64_bound(1, 1.0) > 3e-6  # a kernel that rounds to float32 is no fault


def test_where_nothing_rounds_to_float32_the_bound_is_float64_s_own() -> None:
    """As far as the model amplifies rounding, which the working dtype shows: carried by the units."""
    assert (
        carried(2.0**-24, 1.0, torch.float32) == carried(2.0**-8, 1.0, torch.bfloat16) == 2.0**-53
    )
    calm, wild = (float64_bound(2, 1.0, carried(e, 1.0, torch.float32)) for e in (1e-9, 1e-3))
    assert calm < 1.1e-14 and 1e-12 < wild < float64_bound(2, 1.0)
    whole = _logits()
    assert exact_path("live", whole + 1e-14, whole, 4, 1e-15).sound
    assert not exact_path("live", whole + 1e-9, whole, 4, 1e-15).sound
    assert exact_path("live", whole + 1e-9, whole, 4, None).sound


def test_an_error_that_has_no_room_to_grow_says_nothing_of_float64() -> None:
    assert carried(0.3, 1.0, torch.bfloat16) is None and carried(0.01, 1.0, torch.bfloat16)
    assert carried(0.0, 1.0, torch.float64) is None


def test_paths_beside_their_bounds() -> None:
    whole = _logits()
    off = whole + 1e-2
    assert exact_path("live", whole + 1e-12, whole, 4).sound
    assert not exact_path("live", off, whole, 4).sound
    assert rounded_path("live", whole + 1e-6, 1e-6, whole, torch.float32).sound
    assert not rounded_path("live", off, 1e-6, whole, torch.float32).sound


def test_unsound_misses_every_requirement_and_unjudged_none() -> None:
    assert worse("unsound", "diverged") and not worse("unjudged", "exact")


def test_each_verdict_has_a_sentence() -> None:
    base = {"reason": "because", "metrics": {"max_abs_diff": 0.5, "first_divergence": 3},
            "noise_floor": {"max_abs_diff": 0.1}, "oracle": {"ratio": 0.5},
            "size": {"tokens": 9, "kept_tokens": 9, "stored_bytes": 2048},
            "time_s": {"recompute": 2.0, "load": 0.5, "restore": 0.5}}  # fmt: skip
    said = {v: conclusion({**base, "verdict": v}) for v in (
        "exact", "equivalent", "drifted", "diverged", "unsound", "refused", "unjudged", "failed")}  # fmt: skip
    assert len(set(said.values())) == len(said) and all(s.endswith(".") for s in said.values())
    assert said["exact"].startswith("Same thought") and "2.0 times faster" in said["exact"]
    assert "2 KiB" in said["exact"] and "step 4" in said["diverged"]  # counted from 1
    moment = {"recompute": 0.004, "load": 0.01, "restore": 0.002}  # of a toy: noise, no speed
    assert "recomputing" not in conclusion({**base, "verdict": "exact", "time_s": moment})
    disturbed = {"recompute": 0.004, "load": 0.114, "verify": 0.07, "restore": 0.002}
    assert "recomputing" not in conclusion({**base, "verdict": "exact", "time_s": disturbed})
    waited = {**disturbed, "load": 1.1}
    assert "slower than recomputing" in conclusion({**base, "verdict": "exact", "time_s": waited})
    slow = {
        "prefill": 3.84,
        "recompute": 11.6,
        "load": 0.09,
        "restore": 0.005,
    }  # the same tokens twice
    said = conclusion({**base, "verdict": "exact", "time_s": slow})
    assert (
        ", 40 times faster than recomputing (0.095 s to load, verify and restore, timed once; 3.8 s for the faster of two prefills of the same tokens), "
        in said
    ), said
    alone = {key: value for key, value in slow.items() if key != "prefill"}
    said = conclusion({**base, "verdict": "exact", "time_s": alone})
    assert ", 120 times faster" in said and "12 s to prefill, each timed once" in said
    proven = {**slow, "verify": 7.6}  # whoever waits for a restore waits for its proof
    assert ", 2.0 times slower" in conclusion({**base, "verdict": "exact", "time_s": proven})
    waived = {**base, "verdict": "drifted", "time_s": proven, "waived": [{"element": "logits"}]}
    assert "recomputing" not in conclusion(waived), "that proof failed"
    inside = {**base, "reason": "the stored logits are off", "noise_floor": {"max_abs_diff": 0.6}}
    for verdict in ("drifted", "diverged"):  # what is within the noise is not why
        assert "the stored logits are off" in conclusion({**inside, "verdict": verdict})
        off = {**base, "verdict": verdict, "oracle": {"ratio": 3.0}}  # more than rounding may be
        assert "times the noise floor of the logits" in conclusion(off)
    itself = conclusion({**base, "verdict": "exact", "against": "itself"})
    assert "never interrupted" not in itself


def test_the_worst_layer_and_head_of_the_codes_are_said() -> None:
    layers = [
        {"layer": i, "head": j, "key_error": 0.01 + i / 100, "value_error": 0.02 + j / 100}
        for i in range(2)
        for j in range(2)
    ]
    codes = {"quantizer": "int8", "kv_bytes": 26, "plain_bytes": 100, "layers": layers}
    said = conclusion({"verdict": "drifted", "quantization": codes})
    assert "int8 keeps 26% of the K/V bytes; the" in said
    fewer = {"pruned": True, "size": {"tokens": 97, "kept_tokens": 48}, "quantization": codes}
    assert "int8 keeps 26% of the K/V bytes of the kept tokens; the" in conclusion({"verdict": "drifted", **fewer})  # fmt: skip
    assert (
        "the root mean square of its errors, in the head where it is largest: 2.00% of keys" in said
    )
    assert "2.00% of keys (layer 1, head 0), 3.00% of values (layer 0, head 1)." in said
    assert "keeps" not in conclusion({"verdict": "drifted"})
