"""The cache under test computes the model's function, asked in float64: bfloat16 hides what these classes do."""

from typing import Any

import pytest
import torch
from transformers import DynamicCache

import harness
from harness.attention.kernels.cpu import program
from harness.cache import LibraryDecoder
from harness.cache.cloned import Cloned
from harness.cache.manual import Manual
from harness.pipeline import logic

TEXT = (
    "let k be 5 . the bird sang in the tree . the man put the stone by the bank . let m be red . "
    "the dog ran . what is k ?"
)


class Filled(LibraryDecoder):
    """A cache class of somebody's own, filled through its own `update`."""

    kind: type[DynamicCache] = DynamicCache

    def working_copy(self, cache: Any) -> Any:
        own = self.kind()
        for index, layer in enumerate(cache.layers):
            own.update(layer.keys, layer.values, index)
        own.primed = True
        return own


class Handing(DynamicCache):
    """What it stores is right; `handed` is what attention is given."""

    primed = False

    def update(self, key: Any, value: Any, layer: int, *args: Any, **kwargs: Any) -> Any:
        keys, values = super().update(key, value, layer, *args, **kwargs)
        return self.handed(keys, values, key.shape[2], layer) if self.primed else (keys, values)

    def handed(self, keys: Any, values: Any, new: int, layer: int) -> Any:
        return keys, values


class StaleValue(Handing):
    def handed(self, keys: Any, values: Any, new: int, layer: int) -> Any:
        values = values.clone()
        values[:, :, 20] = values[:, :, 19]
        return keys, values


class OneHead(Handing):
    def handed(self, keys: Any, values: Any, new: int, layer: int) -> Any:
        if layer == 1:
            values = values.clone()
            values[:, 0, 20] = values[:, 0, 19]
        return keys, values


class Millionth(Handing):
    def handed(self, keys: Any, values: Any, new: int, layer: int) -> Any:
        return keys, values * (1 + 1e-6)


class Several(Handing):
    def handed(self, keys: Any, values: Any, new: int, layer: int) -> Any:
        if new > 1:
            values = values.clone()
            values[:, :, -1] = values[:, :, -2]
        return keys, values


class SecondAppend(Handing):
    appends = 0

    def handed(self, keys: Any, values: Any, new: int, layer: int) -> Any:
        self.appends += layer == 0
        if self.appends > 1:
            values = values.clone()
            values[:, :, -1] = values[:, :, -2]
        return keys, values


class WindowOneOff(Handing):
    def handed(self, keys: Any, values: Any, new: int, layer: int) -> Any:
        keys, values = keys.clone(), values.clone()
        keys[:, :, 0], values[:, :, 0] = keys[:, :, 1], values[:, :, 1]
        return keys, values


class CropsKeysAlone(Handing):
    """`crop` cuts what is looked at, and not the store that attention is given."""

    def __init__(self) -> None:
        super().__init__()
        self.store: dict[int, Any] = {}

    def update(self, key: Any, value: Any, layer: int, *args: Any, **kwargs: Any) -> Any:
        keys, _ = super().update(key, value, layer, *args, **kwargs)
        old = self.store.get(layer, (key[:, :, :0], value[:, :, :0]))
        grown = tuple(torch.cat(pair, 2) for pair in zip(old, (key, value), strict=True))
        self.store[layer] = grown
        return tuple(t[:, :, -keys.shape[2] :] for t in grown)


class Single(Handing):
    """Keeps float32 inside, which rounds and computes the same."""

    def handed(self, keys: Any, values: Any, new: int, layer: int) -> Any:
        return tuple(
            torch.from_numpy(t.double().numpy().astype("float32")).to(t.dtype)
            for t in (keys, values)
        )


class NoFloat64(Handing):
    def update(self, key: Any, value: Any, layer: int, *args: Any, **kwargs: Any) -> Any:
        if key.dtype == torch.float64:
            raise RuntimeError("no kernel for double")
        return super().update(key, value, layer, *args, **kwargs)


class NoFloat64Stale(NoFloat64, StaleValue):
    pass


class HalfOnly(Handing):
    def update(self, key: Any, value: Any, layer: int, *args: Any, **kwargs: Any) -> Any:
        if key.dtype != torch.bfloat16:
            raise RuntimeError("half precision only")
        return super().update(key, value, layer, *args, **kwargs)


def decoder(kind: type[DynamicCache]) -> type[Filled]:
    return type(f"Of{kind.__name__}", (Filled,), {"kind": kind})


class Shifted(Cloned):
    """One position too far from the third call on, as after a crop that forgot the counter."""

    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return super().forward(ids, positions + (len(self.fed) > 2))


@pytest.fixture(scope="module")
def thoughts() -> dict[str, tuple[Any, Any]]:
    made = {}
    for dtype in ("float32", "bfloat16"):
        model = harness.load_model("tiny", dtype=dtype)
        made[dtype] = model, harness.capture_text(model, TEXT)
    return made


def checks(judgement: Any) -> dict[str, Any]:
    return {check.name: check for check in judgement.checks}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("cache", ["auto", "view", "manual", "cloned", "static", Handing, Single])
def test_a_healthy_cache_passes_every_check(thoughts: Any, dtype: str, cache: Any) -> None:
    cache = cache if isinstance(cache, str) else decoder(cache)
    judgement = harness.judge(*thoughts[dtype], steps=8, cache=cache)
    assert judgement.good, judgement.checks
    asked = checks(judgement)
    assert {"yardstick", "logic", "logic/several", "stored", "appended", "numbers"} <= set(asked)
    assert all(check.outcome == "passed" for check in judgement.checks), judgement.checks


FAULTY = {
    StaleValue: "logic", OneHead: "logic", Millionth: "logic", SecondAppend: "logic", WindowOneOff: "logic",
    Several: "logic/several", CropsKeysAlone: "logic/crop",
}  # fmt: skip


@pytest.mark.parametrize("kind", FAULTY)
def test_a_cache_that_computes_another_function_fails_where_bfloat16_hides_it(
    thoughts: Any, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    judgement = harness.judge(*thoughts["bfloat16"], steps=8, cache=decoder(kind))
    failed = checks(judgement)[FAULTY[kind]]
    assert failed.outcome == "failed" and failed.figures["off"] > 100 * failed.figures["bound"]
    assert not judgement.good and judgement.verdict in ("drifted", "diverged")


def test_positions_one_off_later_are_seen(thoughts: Any) -> None:
    judgement = harness.judge(*thoughts["bfloat16"], steps=8, cache=Shifted)
    assert checks(judgement)["logic"].figures["step"] == 3 and not judgement.good


def test_rounding_of_ones_own_is_told_as_that(thoughts: Any) -> None:
    found = checks(harness.judge(*thoughts["bfloat16"], steps=8, cache=decoder(Single)))["logic"]
    assert (found.outcome, found.code) == ("passed", "narrow")


def test_who_refuses_float64_is_asked_in_float32(thoughts: Any) -> None:
    healthy = harness.judge(*thoughts["bfloat16"], steps=8, cache=decoder(NoFloat64))
    assert healthy.good and checks(healthy)["logic"].figures["dtype"] == "float32"
    stale = harness.judge(*thoughts["bfloat16"], steps=8, cache=decoder(NoFloat64Stale))
    assert checks(stale)["logic"].outcome == "failed" and not stale.good


def test_who_cannot_be_asked_is_unjudged_however_good_its_numbers(thoughts: Any) -> None:
    judgement = harness.judge(*thoughts["bfloat16"], steps=8, cache=decoder(HalfOnly))
    found = checks(judgement)
    assert (found["logic"].outcome, found["logic"].code) == ("not asked", "refused")
    assert found["numbers"].outcome == "passed" and judgement.verdict == "unjudged"
    assert not judgement.good and not judgement.broken


@pytest.mark.skipif(not program.available(), reason="needs numba")
def test_a_token_lost_in_the_compiled_step_is_seen_in_float32(
    thoughts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Float64 goes by the written-out forward; the program that bfloat16 runs is asked in float32."""
    whole = program.Program.attend

    def short(self: Any, queries: Any, parts: Any, out: Any) -> None:
        if parts[0][0].shape[2] > 24:
            cut = [(key[:, :, 1:], value[:, :, 1:]) for key, value in parts[:1]]
            parts = [*cut, *parts[1:]]
        whole(self, queries, parts, out)

    monkeypatch.setattr(program.Program, "attend", short)
    judgement = harness.judge(*thoughts["bfloat16"], steps=8, cache="manual")
    found = checks(judgement)
    assert found["logic"].outcome == "passed" and found["kernel"].outcome == "failed"
    assert not judgement.good


@pytest.mark.parametrize("how", [{"tokens": 14}, {"ratio": 0.5}])
def test_a_pruned_state_is_asked_over_what_it_keeps(thoughts: Any, how: dict[str, Any]) -> None:
    model, state = thoughts["bfloat16"]
    small = harness.prune_state(model, state, "snapkv" if "ratio" in how else "keep_last", **how)
    for cache, good in (("auto", True), ("cloned", True), (decoder(WindowOneOff), False)):
        judgement = harness.judge(model, small, steps=8, cache=cache)
        assert judgement.good is good, (cache, judgement.checks)
        assert checks(judgement)["logic"].figures["against"] == logic.KEPT


def test_codes_are_asked_beside_another_cache(thoughts: Any) -> None:
    model, state = thoughts["bfloat16"]
    small = harness.quantize_state(state, "int8")
    for cache, good in (("auto", True), (decoder(StaleValue), False)):
        judgement = harness.judge(model, small, steps=8, cache=cache)
        assert judgement.good is good, (cache, judgement.checks)
        assert checks(judgement)["logic"].figures["against"] == logic.OTHER


def test_the_written_out_step_is_asked_in_float64(
    thoughts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = Manual.forward
    monkeypatch.setattr(Manual, "forward", lambda self, ids, positions: forward(self, ids, positions) * (1 + 1e-9))  # fmt: skip
    judgement = harness.judge(*thoughts["bfloat16"], steps=4, cache="manual")
    assert checks(judgement)["logic"].outcome == "failed"
