"""A plain path that computes something else is named, whatever is bit-equal to what."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from harness.capture import capture
from harness.config import CompareConfig, ModelConfig
from harness.model import pace
from harness.model.loaded import Loaded, load
from harness.model.sampler import Sampler
from harness.pipeline import drive, yardstick
from harness.pipeline import judge as judging
from harness.pipeline.judge import judge
from harness.present.messages import worded
from harness.report import html
from harness.task.architectures.families import COMMON, FAMILIES

BASE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "vocab_size": 300,
        "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.12}  # fmt: skip
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "factor": 32.0,
    "original_max_position_embeddings": 24,
    "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [2.0, 3.0, 4.0, 5.0],
}  # fmt: skip
HEALTHY = {
    "llama": {},
    "gemma3_text": {"head_dim": 8, "sliding_window": 8},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "lfm2": {"full_attn_idxs": [1]},
}
CROSSING = {"head_dim": 8, "rope_parameters": LONGROPE, "original_max_position_embeddings": 24,
            "max_position_embeddings": 512}  # fmt: skip


def _model(architecture: str, values: dict[str, Any], dtype: str = "float32") -> Loaded:
    settings = ModelConfig("shape", architecture=architecture, config={**BASE, **values})
    return load(settings, dtype, "cpu")


def _judged(
    loaded: Loaded,
    batch: int = 1,
    tokens: int = 18,
    steps: int = 10,
    away: float | None = None,
    oracle: bool = True,
) -> Any:
    ids = torch.randint(3, 300, (batch, tokens), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    for row in range(1, batch):
        mask[row, : 3 * row] = 0
    captured = capture(loaded, ids, mask, {})
    live = drive.Uninterrupted(loaded, captured.live, captured.state)
    given = torch.randint(3, 300, (batch, 5), generator=torch.Generator().manual_seed(2))
    greedy = Sampler(_greedy())
    path = drive.drive(live, greedy, steps, given)
    restored = path if away is None else replace(path, logits=path.logits * (1 + away))
    settings = CompareConfig("lossless", noise_chunk=7, oracle=oracle)
    return judge(loaded, captured.state, path, restored, settings)


GPT2 = {"n_embd": 48, "n_head": 4, "n_layer": 2, "vocab_size": 300}


def test_what_decode_steps_round_to_without_a_cache_is_no_drift(monkeypatch) -> None:
    """A product of one row may be summed worse than one of many. The twin, without that run: drifted."""
    loaded, asked, whole = _model("gpt2", GPT2), [], yardstick.alone

    def blocks(model: Any, *args: Any, singly: bool = False, **more: Any) -> Any:
        """As if products of many rows were summed far better."""
        asked.append(singly)
        logits = whole(model, *args, singly=singly, **more)
        if model is not loaded or singly:
            return logits
        exact = whole(loaded.oracle, *args, **more)
        return (exact + (logits.double() - exact) / 8).float()

    monkeypatch.setattr(yardstick, "alone", blocks)
    judged = _judged(loaded, away=1e-7)
    assert judged.verdict == "equivalent" and asked.count(True) == 1
    monkeypatch.setattr(judging, "COMPOSED", 0.0)
    assert _judged(loaded, away=1e-7).verdict == "drifted"


def test_damage_beyond_any_order_of_sums_asks_for_no_further_run(monkeypatch) -> None:
    loaded, asked, whole = _model("gpt2", GPT2), [], yardstick.alone

    def noted(*args: Any, singly: bool = False, **more: Any) -> Any:
        asked.append(singly)
        return whole(*args, **more)

    monkeypatch.setattr(yardstick, "alone", noted)
    loaded.__dict__.pop("_yardsticks", None)
    assert _judged(loaded, away=1e-2).verdict == "drifted" and asked and True not in asked


def _greedy() -> Any:
    from harness.config import SamplingConfig

    return SamplingConfig(name="greedy")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", HEALTHY)
def test_healthy_families_are_sound(family: str, dtype: str) -> None:
    judged = _judged(_model(family, HEALTHY[family], dtype))
    assert judged.verdict == "exact", judged.reason
    for row in judged.soundness["paths"]:
        if "float64" in row["path"]:
            assert row["error"] < row["bound"], row


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rope_factors_that_switch_under_a_cache_are_unsound(
    monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    """Phi-3 longrope: the library's `generate` drops its cache at the switch, and so does a plain run
    here; one that keeps the keys of the old factors is bit-equal to itself, and wrong."""
    assert _judged(_model("phi3", CROSSING, dtype)).verdict == "exact"
    monkeypatch.setattr(Loaded, "switch", None)
    judged = _judged(_model("phi3", CROSSING, dtype))
    assert judged.metrics["bitwise_equal"] and judged.verdict == "unsound"
    assert "uninterrupted run" in worded(judged.reason)


def test_a_mask_that_is_never_sent_is_unsound(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = _model("llama", {})
    assert _judged(loaded, batch=3).verdict == "exact"
    once = Loaded.once

    def without(
        self: Any, ids: Any, positions: Any, mask: Any = None, *rest: Any, **named: Any
    ) -> Any:
        return once(self, ids, positions, None, *rest, **named)

    monkeypatch.setattr(Loaded, "once", without)
    judged = _judged(loaded, batch=3)
    assert judged.verdict == "unsound"


@pytest.mark.parametrize("wrong", ["positions", "tail"])
def test_a_plain_run_with_a_planted_fault_is_unsound(
    monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    loaded = _model("llama", {})
    step = drive.Uninterrupted.step

    def faulty(self: Any, ids: Any) -> Any:
        if wrong == "positions":
            self._position = self._position + (ids.shape[1] == 1)
        logits = step(self, ids)
        if wrong == "tail":
            for layer in self._cache.layers:
                layer.keys[:, :, -1] *= 1.01
        return logits

    monkeypatch.setattr(drive.Uninterrupted, "step", faulty)
    assert _judged(loaded).verdict == "unsound"


def test_a_window_the_model_ignores_is_unsound() -> None:
    """The config names a window, so the library's cache lets tokens go; OPT's attention looks on."""
    values = {"ffn_dim": 64, "word_embed_proj_dim": 32, "sliding_window": 8}
    loaded = _model("opt", values)
    judged = _judged(loaded)
    assert judged.verdict == "unsound", judged.soundness


@pytest.mark.parametrize("oracle", [True, False])
@pytest.mark.parametrize("least, verdict", [(1e-3, "unsound"), (1e-12, "exact")])
def test_a_clamp_that_one_form_of_a_recurrence_has_is_unsound(
    least: float, verdict: str, oracle: bool
) -> None:
    """The library's Nemotron-H clamps time steps where it scans a prompt and not where it decodes: 1e-5,
    no more than float32 rounds to, and another function. Its twin has nothing to clamp."""
    kind, values = FAMILIES["nemotron_h"]
    judged = _judged(_model(kind, {**COMMON, **values, "time_step_min": least}), oracle=oracle)
    assert judged.verdict == verdict, judged.reason
    worst = max(row["error"] / row["bound"] for row in judged.soundness["paths"])
    assert worst > 1e5 if verdict == "unsound" else worst < 1, worst


def test_a_kernel_that_rounds_to_float32_is_judged_by_float32(monkeypatch) -> None:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    def bounds() -> list[float]:
        judged = _judged(_model("llama", {"rms_norm_eps": 1e-5}))
        assert judged.verdict == "exact", judged.reason
        rows = [row for row in judged.soundness["paths"] if "float64" in row["path"]]
        assert len({row.get("narrow") for row in rows}) == 1
        marked = "Marked *" in html.soundness(judged.soundness)["text"]
        assert marked is bool(rows[0].get("narrow"))
        return [row["bound"] for row in rows]

    assert max(bounds()) < 1e-12
    norm = LlamaRMSNorm.forward

    def rounded(self: Any, x: Any) -> Any:
        return torch.view_as_real(norm(self, x).to(torch.complex64))[..., 0]

    monkeypatch.setattr(LlamaRMSNorm, "forward", rounded)
    _model("llama", {})  # another one, so that nothing is remembered
    assert min(bounds()) > 1e-6


def test_the_twin_finds_what_the_whole_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yardstick, "WORK", 0)
    monkeypatch.setattr(Loaded, "switch", None)
    kinds = _model("llama", {}), _model("phi3", CROSSING)
    healthy, broken = (_judged(kind, oracle=False) for kind in kinds)
    assert healthy.verdict == "exact" and broken.verdict == "unsound"
    for judged in (healthy, broken):
        assert all("twin" in r["path"] for r in judged.soundness["paths"] if "float64" in r["path"])


def test_without_an_oracle_the_working_dtype_and_the_twin_judge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Loaded, "switch", None)
    loaded = _model("phi3", CROSSING)
    ids = torch.arange(3, 21)[None]
    captured = capture(loaded, ids, torch.ones_like(ids), {})
    path = drive.drive(
        drive.Uninterrupted(loaded, captured.live, captured.state), Sampler(_greedy()), 10
    )
    settings = CompareConfig("lossless", oracle=False)
    judged = judge(loaded, captured.state, path, path, settings)
    assert judged.verdict == "unsound" and judged.oracle["restored"] is None


def test_the_same_run_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = _model("llama", {})
    first = _judged(loaded)
    monkeypatch.setattr(yardstick, "_measured", lambda *a: 1 / 0)
    assert _judged(loaded).soundness == first.soundness
    with pytest.raises(ZeroDivisionError):
        _judged(loaded, tokens=17)


def test_where_experts_are_chosen_only_float64_is_asked() -> None:
    """A tie in the router falls either way, in bfloat16 by more than any bound on rounding (measured
    over the families: 2 times it); another function still shows in float64."""
    judged = _judged(_model("mixtral", HEALTHY["mixtral"], "bfloat16"))
    assert judged.verdict == "exact"
    assert all("float64" in row["path"] for row in judged.soundness["paths"])
    assert not yardstick.routed(_model("llama", {}))


def test_what_a_verdict_takes_is_reckoned_from_the_last_pass() -> None:
    """By the speed of this model on this machine: ten times slower, ten times as long."""
    loaded = _model("llama", {"max_position_embeddings": 4096})
    ids = torch.randint(3, 90, (1, 96))
    loaded.once(ids, torch.arange(96)[None])
    assert loaded.pace.rate is None  # the first pass warms up, and tells nothing
    loaded.once(ids, torch.arange(96)[None])
    timed = loaded.pace.rate
    loaded.pace.rate = (
        pace.product(torch.float32, "cpu") / 1e4
    )  # a model far slower than one product
    before = yardstick.cost(loaded, 1, 2000, False)
    loaded.pace.rate /= 10
    slower = yardstick.cost(loaded, 1, 2000, False)
    loaded.pace.rate = timed
    assert 5 * before.seconds < slower.seconds <= 10.01 * before.seconds  # weights are read as fast
    before = yardstick.cost(loaded, 1, 2000, False)
    exact = yardstick.cost(loaded, 1, 2000, True)
    assert exact.seconds >= before.seconds and exact.nbytes > before.nbytes
    rest = {"again": False, "small": True}  # steps under another cache, steps of one row, splits
    whole, done, small = (
        yardstick.cost(loaded, 1, 2000, True, (1,) * 16, **more).seconds
        for more in ({}, {"again": False}, rest)
    )
    assert done < whole < small
    loaded.pace.rate = (
        timed / 1e6
    )  # as slow as that, and float64 no faster before it was ever timed
    assert yardstick.cost(loaded, 1, 2000, True).seconds > 100 * exact.seconds
    loaded.pace.rate = timed
    for _ in range(3):
        loaded.pace.stepped(9.0)  # as long as the weights of a large model take to be read
    assert loaded.pace.step == 9.0
    many = yardstick.cost(loaded, 1, 2000, True, (1,) * 16, again=False).seconds
    assert many > done + 9.0 * 16


def test_long_work_is_announced_before_it_starts(harness, monkeypatch) -> None:
    asked = ("text=let k be 5 .", "steps=2", "name=said")
    assert "more memory" not in harness(*asked).out
    monkeypatch.setattr(yardstick.Cost, "worth_saying", property(lambda cost: True))
    shown = harness(*asked).out
    said = [line for line in shown.splitlines() if "verdict ..." in line or "capture ..." in line]
    assert len(said) == 2 and all("about" in line for line in said), shown
    assert "more memory" in said[1]


def test_where_the_library_builds_no_twin_the_whole_is_asked(monkeypatch) -> None:
    """Zamba ties layers by their numbers: a model of fewer cannot be had."""
    from harness.model import twin

    loaded = load(ModelConfig("shape", architecture="llama", config=BASE), "float32", "cpu")
    assert loaded.twin is not loaded

    def refuse(model):
        raise ValueError("There is an issue with your definition of `tie_weights_keys`")

    monkeypatch.setattr(twin, "first_layers", refuse)
    loaded._made.clear()
    assert loaded.twin is loaded
    loaded._made.clear()
