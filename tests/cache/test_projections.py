"""Linear layers that are streamed give what they give, alone, together, and lent to a model's forward."""

from contextlib import ExitStack

import pytest
import torch

from harness.attention.kernels.cpu import stream
from harness.cache.projections import Streamed, is_plain, linear, linears, streaming

from .test_decoders import near


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
def test_a_streamed_projection_is_the_modules_own(dtype, bias):
    torch.manual_seed(0)
    module = torch.nn.Linear(512, 512, bias=bias).to(dtype)
    other = torch.nn.Linear(512, 70, bias=bias).to(dtype)
    hidden = torch.randn(1, 3, 512).to(dtype)
    assert stream.serves(3, module.weight.numel(), module.weight)
    with torch.no_grad():
        for made, mine in zip(linears(hidden, module, other), (module, other), strict=True):
            at_best = mine.double()(hidden.double())
            own = mine.to(dtype)(hidden)
            assert made.shape == own.shape and made.dtype == dtype
            assert (made - at_best).abs().max() <= 2 * (own - at_best).abs().max() + 1e-6
        exact = linear(module, hidden)
        module.weight[5, 7] += 1
        assert (linear(module, hidden) - exact).abs().max() > 0.01


def test_a_wrapped_projection_is_called_as_it_is():
    module = torch.nn.Linear(512, 512)
    module.register_forward_hook(lambda _, __, out: out + 1)
    hidden = torch.randn(1, 1, 512)
    with torch.no_grad():
        assert torch.equal(linear(module, hidden), module(hidden))


class Mixed(torch.nn.Module):
    """Two layers read the same, one reads a sum, one is called only if asked."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.three, self.four = (
            torch.nn.Linear(512, 512, bias=i % 2 == 0, dtype=dtype) for i in range(4)
        )
        self.often, self.edited = True, False

    def forward(self, hidden):
        one = self.one(hidden)
        if self.edited:
            hidden.mul_(2)
        two = self.two(hidden)
        four = self.four(hidden) if self.often else 0
        return self.three(one + two) + four


def lent(model):
    latest = [None, None]
    return [Streamed(m, latest) for m in model.modules() if is_plain(m)]


@pytest.mark.parametrize("dtype, units", [(torch.float32, 64), (torch.bfloat16, 2 * 2**16)])
@pytest.mark.parametrize("rows", [1, 3, 7])
def test_a_model_with_lent_layers_says_the_same(dtype, units, rows):
    model = Mixed(dtype)
    layers = lent(model)
    for _ in range(3):  # the first time nobody knows who belongs together
        hidden = torch.randn(1, rows, 512).to(dtype)
        with torch.no_grad():
            plain = model(hidden)
            with streaming(layers):
                found = model(hidden)
        assert found.dtype == dtype and found.shape == plain.shape
        assert near(found, plain, units)
    assert not any("forward" in m.__dict__ for m in model.modules())
    first = [layer.module for layer in layers[0]._together]
    assert first == [model.one, model.two, model.four] and len(layers[2]._together) == 1


@torch.no_grad()
def test_what_was_made_together_is_only_taken_for_what_it_was_made_of():
    model = Mixed()
    layers = lent(model)
    with streaming(layers):
        for _ in range(2):
            model(torch.randn(1, 1, 512))
        model.edited = True
        given = torch.randn(1, 1, 512)
        found = model(given.clone())
    assert near(found, model(given.clone()))
    with streaming(layers):
        model.two.weight.data = torch.randn(512, 512)
        found = model(given.clone())
    assert near(found, model(given.clone()))


def test_inference_mode_has_no_versions_and_needs_none():
    model = Mixed()
    layers = lent(model)
    for edited in (False, False, True):
        model.edited = edited
        with torch.inference_mode(), streaming(layers):
            given = torch.randn(1, 1, 512)
            found = model(given.clone())
        with torch.no_grad():
            assert near(found, model(given.clone()))


@torch.no_grad()
def test_what_nobody_comes_for_is_not_made_again():
    model = Mixed()
    layers = lent(model)
    for often in (True, True, False):
        model.often = often
        with streaming(layers):
            model(torch.randn(1, 1, 512))
    assert [layer.module for layer in layers[0]._together] == [model.one, model.two]


@torch.no_grad()
def test_layers_somebody_listens_to_are_left_alone_and_errors_leave_nothing():
    model = Mixed()
    layers = lent(model)
    heard = []
    model.two.register_forward_hook(lambda *_: heard.append(1))
    hidden = torch.randn(1, 1, 512)
    with ExitStack() as stack:
        stack.enter_context(streaming(layers))
        assert "forward" in model.one.__dict__ and "forward" not in model.two.__dict__
        model(hidden)
    assert heard == [1]
    with pytest.raises(ValueError), streaming(layers):
        raise ValueError
    assert not any("forward" in m.__dict__ for m in model.modules())


@torch.no_grad()
def test_a_layer_that_is_no_longer_lent_is_not_computed_for():
    """Parametrized, or with numbers apart: the others go on without it."""
    model = Mixed()
    layers = lent(model)
    given = torch.randn(1, 1, 512)
    for _ in range(2):
        with streaming(layers):
            model(given)
    assert len(layers[0]._together) == 3

    class Twice(torch.nn.Module):
        def forward(self, weight):
            return weight * 2

    torch.nn.utils.parametrize.register_parametrization(model.two, "weight", Twice())
    with streaming(layers):
        found = model(given)
    assert near(found, model(given))
    plain = model.one.bias.data
    model.one.bias.data = torch.stack([plain, plain + 9], -1)[:, 0]
    with streaming(layers):
        assert near(model(given), found)
