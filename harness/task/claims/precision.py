"""Half precision on CPU, and a change of precision between capture and resume."""

import copy
from dataclasses import replace
from typing import Any

import torch

from harness.cache.registry import decoder
from harness.config import CacheConfig
from harness.fault.edit import layers
from harness.model.loaded import Loaded
from harness.report.claims import Layout
from harness.task.claims.bench import (
    BEYOND,
    DEPENDS,
    HOLDS,
    REFUTED,
    Bench,
    Settled,
    claim,
    seconds,
)

CLAIM = "fp16 on CPU is computed as fp32; mixed precision between capture and resume drifts."

LAYOUT = Layout(
    {
        "fp16_product_dtype": "a product of float16 matrices is",
        "fp16_product_error_over_one_rounding": "error of that product, in roundings to float16",
        "fp16_time_over_fp32": "time of that product over float32's",
    },
    "precision",
    {"fp16": "float16", "bf16": "bfloat16"},
    {
        "{}_model_shift_in_noise_floors": "shift of the model in it, noise floors",
        "captured_{}_resumed_fp32_shift_in_noise_floors": "shift when captured in it and resumed in float32",
    },
)


@claim(CLAIM, LAYOUT)
def precision(bench: Bench) -> Settled:
    figures = {**_products(), **_model(bench)}
    wide_sums = figures["fp16_product_error_over_one_rounding"] < 1.5
    as_fp32 = figures["fp16_model_shift_in_noise_floors"] <= BEYOND
    drifts = min(v for k, v in figures.items() if k.startswith("captured")) > BEYOND
    verdict = HOLDS if as_fp32 and drifts else DEPENDS if drifts else REFUTED
    return Settled(
        verdict,
        figures,
        {
            HOLDS: "float16 gives float32's logits, and a change of precision moves them.",
            DEPENDS: "On which half: a change of precision moves the logits, but float16 is not float32 either.",
            REFUTED: "A change of precision between capture and resume moves nothing beyond the noise.",
        }[verdict],
        ("Sums inside one product are as good as float32's, but " if wide_sums else "")
        + "every result is rounded to 16 bits, so the logits are those of float16, not of float32. "
        "Capturing in one precision and resuming in another moves the logits beyond the noise.",
        "this CPU and this build of torch; noise floors of the float32 model",
    )


def _products() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(128, 1024, generator=generator).half() for _ in range(2))
    exact = a.double() @ b.double().T
    error = ((a @ b.T).double() - exact).abs().max()
    rounding = (exact.half().double() - exact).abs().max()
    one = seconds(lambda: a @ b.T)
    wide_a, wide_b = a.float(), b.float()
    return {
        "fp16_product_dtype": str((a @ b.T).dtype).removeprefix("torch."),
        "fp16_product_error_over_one_rounding": float(error / rounding),
        "fp16_time_over_fp32": one / seconds(lambda: wide_a @ wide_b.T),
    }


def _model(bench: Bench) -> dict[str, Any]:
    loaded, ids = bench.loaded, bench.ids(72)
    wide = Loaded(copy.deepcopy(loaded.model).float(), loaded.tokenizer, loaded.source, 0.0)
    state = replace(bench, session=replace(bench.session, loaded=wide)).state(ids[:, :64])
    expected = decoder(wide, state, CacheConfig("cloned")).step(ids[:, 64:])
    shifts = {}
    for dtype in (torch.float16, torch.bfloat16):
        name = "fp16" if dtype is torch.float16 else "bf16"
        narrow = Loaded(copy.deepcopy(wide.model).to(dtype), loaded.tokenizer, loaded.source, 0.0)
        inside = replace(bench, session=replace(bench.session, loaded=narrow))
        captured = inside.state(ids[:, :64])
        logits = decoder(narrow, captured, CacheConfig("cloned")).step(ids[:, 64:])
        widened = layers(captured, lambda t: t.float(), lambda t: t.float())
        mixed = decoder(wide, widened, CacheConfig("cloned")).step(ids[:, 64:])
        shifts[f"{name}_model_shift_in_noise_floors"] = bench.shift(logits, expected)
        shifts[f"captured_{name}_resumed_fp32_shift_in_noise_floors"] = bench.shift(mixed, expected)
    return shifts
