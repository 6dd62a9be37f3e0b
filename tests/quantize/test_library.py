"""`quantize=library` holds what the library's own cache layers hold, bit by bit."""

import importlib.util

import pytest
import torch
from transformers.cache_utils import Fp8QuantizedLayer, QuantoQuantizedLayer

from harness import extras
from harness.config import option
from harness.errors import ConfigProblem, InputProblem, UnsupportedModel
from harness.quantize.library import unpacked_rows
from harness.quantize.registry import quantizer

QUANTO = importlib.util.find_spec("optimum") is not None


@pytest.mark.skipif(not QUANTO, reason="optimum-quanto is not installed")
@pytest.mark.parametrize("bits", [2, 4])
def test_quanto_decodes_alike(monkeypatch: pytest.MonkeyPatch, bits: int) -> None:
    given = torch.randn(2, 2, 9, 32, generator=torch.Generator().manual_seed(0))
    layer = QuantoQuantizedLayer(nbits=bits, q_group_size=16)
    layer.update(given, given)
    settings = option("quantize", "library", bits=bits, group=16)
    made = quantizer(settings).encode(given, "key")
    from optimum.quanto.tensor.packed import PackedTensor

    stored = layer._quantized_keys._data
    rows = unpacked_rows(stored)
    assert torch.equal(
        PackedTensor.pack(rows, bits)._data, stored._data
    )  # the library packs it alike
    monkeypatch.setattr(PackedTensor, "unpack", lambda self: rows)  # its own compiles C++
    assert torch.equal(made.dense(), layer._dequantize(layer._quantized_keys))
    assert made.nbytes < given.nbytes / 2


def test_fp8_decodes_alike() -> None:
    given = torch.randn(2, 2, 9, 32, generator=torch.Generator().manual_seed(0))
    layer = Fp8QuantizedLayer()
    layer.update(given, given)
    made = quantizer(option("quantize", "library", backend="fp8")).encode(given, "value")
    assert torch.equal(made.dense(), layer._dequantize(layer._quantized_keys))


def test_what_cannot_be_had_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigProblem, match=r"quantize.backend=hqq"):
        quantizer(option("quantize", "library", backend="hqq"))
    if QUANTO:
        with pytest.raises(UnsupportedModel, match=r"quantize.group"):
            quantizer(option("quantize", "library", group=5)).encode(
                torch.randn(1, 1, 3, 32), "key"
            )
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    with pytest.raises(InputProblem, match=r"pip install 'harness\[quanto\]'"):
        quantizer(option("quantize", "library"))
