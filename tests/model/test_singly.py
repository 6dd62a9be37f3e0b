"""The composition of decode steps: each product of the last rows by itself, all others as they were."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.config import ModelConfig
from harness.model.loaded import load
from harness.model.singly import Singly

ROWS, LAST = 9, 4


class Products(TorchDispatchMode):
    """How many rows each product with a bias had: whether a machine rounds them otherwise is its own affair."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.addmm.default:
            self.rows.append(args[1].shape[0])
        return function(*args, **(kwargs or {}))


def apart(function, x: torch.Tensor) -> torch.Tensor:
    return torch.cat([function(part) for part in x.split([ROWS - LAST] + [1] * LAST, -2)], -2)


@pytest.mark.parametrize("shape", [(1, ROWS, 64), (ROWS, 64)])
def test_the_last_rows_are_multiplied_one_by_one(shape):
    torch.manual_seed(0)
    x, layer, bias, weight = torch.randn(shape), torch.nn.Linear(64, 96), torch.randn(96), torch.randn(64, 96)  # fmt: skip
    flat = x.view(ROWS, 64)
    with torch.no_grad(), Singly(ROWS, LAST):
        linear, conv, other = layer(x), torch.addmm(bias, flat, weight), layer(x[..., 1:, :])
    with torch.no_grad():
        assert torch.equal(linear, apart(layer, x)) and linear.shape == (*shape[:-1], 96)
        assert torch.equal(conv, apart(lambda part: torch.addmm(bias, part, weight), flat))
        assert torch.equal(other, layer(x[..., 1:, :]))  # of another number of rows: no tokens


def test_it_is_the_same_function_of_a_whole_model():
    values = {"n_embd": 48, "n_head": 4, "n_layer": 2, "vocab_size": 300}
    settings = ModelConfig("shape", architecture="gpt2", config=values)
    loaded = load(settings, "float64", "cpu")
    ids = torch.randint(3, 300, (1, 12), generator=torch.Generator().manual_seed(1))
    with Products() as products:
        found = loaded.singly(ids, 5)
    assert products.rows.count(1) == 5 * products.rows.count(12 - 5) > 0
    assert {*products.rows} == {1, 12 - 5}
    assert float((found - loaded.uncached(ids, 5)).abs().max()) < 1e-13  # of the same sums
    with Products() as products:
        loaded.uncached(ids, 5)
    assert {*products.rows} == {12}
