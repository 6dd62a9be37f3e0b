"""What a variant from outside does wrong is told by its name, and where."""

import pytest

from .conftest import MINE

CODE = {
    "prune": """
from math import nan
from harness.prune import Policy

class My(Policy):
    def score(self, layer, rank, keep):
        return rank.double().masked_fill(rank == 2, nan)
""",
    "tuple": """
from harness.quantize import Quantizer

class My(Quantizer):
    def encode(self, tensor, part):
        return tensor, 1.0
""",
    "quantize": """
from harness.quantize import Quantizer

class My(Quantizer):
    def encode(self, tensor, part):
        return tensor.shpe
""",
    "coarse": """
from dataclasses import replace
from harness.quantize import Quantizer, symmetric
import torch

class My(Quantizer):
    def encode(self, tensor, part):
        codes = symmetric(tensor, self.span(tensor), torch.int8)
        return replace(codes, codes=(codes.codes / 32).round().mul(32).clamp(-127, 127).to(torch.int8))
""",
    "rows": """
from harness.quantize import Quantizer, symmetric
import torch

class My(Quantizer):
    def encode(self, tensor, part):
        return symmetric(tensor.roll(5, 2) * 1.3 + 0.1, self.span(tensor), torch.int8)
""",
    "cache": """
from harness.cache import LibraryDecoder

class My(LibraryDecoder):
    def working_copy(self, cache):
        cache.layers[0].values = cache.layers[0].values * 0
        return cache

    def new_kv(self, index, tokens):
        layer = self.cache.layers[index]
        return layer.keys[:, :, -tokens:], layer.values[:, :, -tokens:]
""",
}
CODE["nothing"] = """
from harness.quantize import Quantizer, symmetric
import torch

class My(Quantizer):
    def quantize(self, state):
        return state

    def encode(self, tensor, part):
        return symmetric(tensor, self.span(tensor), torch.int8)
"""
CODE["hands_on"] = """
from harness.cache import LibraryDecoder

class My(LibraryDecoder):
    def new_kv(self, index, tokens):
        key, value = super().new_kv(index, tokens)
        if index == 1:
            value = value.clone()
            value[:, 1, -1] *= SCALE
        return key, value
"""
KEYS = {"prune": "ratio: 0.5", "cache": "", "quantize": "axis: token\ngroup: 64\nrecent: 0"}


@pytest.fixture
def mine(harness, examples):
    """Runs a variant whose code is `CODE[name]` as an option of `group`."""

    def run(group: str, name: str, *more: str):
        yaml = f"_target_: my_{name}.My\nname: my_{name}\n{KEYS[group]}\n"
        folder = examples / "mine" / "conf" / group
        folder.mkdir(exist_ok=True)
        (folder / f"my_{name}.yaml").write_text(yaml)
        (examples / "mine" / f"my_{name}.py").write_text(CODE[name])
        return harness(*MINE, f"{group}=my_{name}", *more)

    return run


def test_a_score_that_is_no_number_is_refused(mine):
    wrong = mine("prune", "prune", "compare=lossy")
    assert wrong.code == 2 and "prune=my_prune scored 1 of" in wrong.out and "NaN" in wrong.out


def test_what_a_quantizer_does_wrong_is_its_own(mine):
    wrong = mine("quantize", "tuple", "compare=lossy")
    assert wrong.code == 2 and "returned a tuple, not `Codes`" in wrong.out
    wrong = mine("quantize", "quantize", "compare=lossy")
    assert (
        wrong.code == wrong.result["exit_code"] == 2
        and "AttributeError" in wrong.out
        and "'shape'?" in wrong.out
    )
    assert (
        "It came from quantize=my_quantize, in" in wrong.out
        and "my_quantize.py:6 (encode): return tensor.shpe" in wrong.out
    )
    assert "fault of the harness" not in wrong.out


def test_a_coarse_quantizer_is_meant_and_one_that_moves_rows_is_not(mine):
    told = mine("quantize", "coarse", "compare=lossless").result["diagnosis"]
    assert told["cause"] == "rounding" and "quantized on purpose" in told["evidence"]
    told = mine("quantize", "rows", "compare=lossless").result["diagnosis"]
    assert told["cause"] != "rounding", told["evidence"]


def test_a_quantizer_that_changes_nothing_is_told(mine):
    done = mine("quantize", "nothing", "compare=lossy")
    said = "quantize=my_nothing changed nothing: it turned no key and no value into codes"
    assert done.code == 0 and said in done.result["conclusion"]
    assert said in " ".join(done.out.split())


def test_a_cache_that_loses_values_is_the_cause_not_the_state(mine):
    done = mine("cache", "cache")
    told = done.result["diagnosis"]
    assert done.code == 1 and told["cause"] == "cache", told
    assert "cache=my_cache makes of it" in told["evidence"] and "CACHE" in done.out


@pytest.mark.parametrize("scale, verdict", [(1.001, "drifted"), (1.0, "exact")])
def test_values_that_a_cache_hands_on_wrongly_are_told_though_every_logit_is_right(
    mine, monkeypatch, scale, verdict
):
    monkeypatch.setitem(CODE, "hands_on", CODE["hands_on"].replace("SCALE", str(scale)))
    done = mine("cache", "hands_on")
    assert done.result["verdict"] == verdict and done.result["metrics"]["bitwise_equal"]
    assert done.code == (verdict != "exact")
    if verdict == "drifted":
        told, last = done.result["diagnosis"], done.result["size"]["tokens"] + 3
        where = told["cause"], told["layer"], told["head"], told["token"]
        assert where == ("cache", 1, 1, last)
        check = next(c for c in done.result["checks"] if c["name"] == "appended")
        assert (check["outcome"], check["code"]) == ("failed", "next_coarse")


def test_packages_that_do_not_go_together_are_no_fault_of_the_harness(harness, monkeypatch):
    def broken(*arguments):
        raise ImportError(
            "huggingface-hub>=1.5.0,<2.0 is required, but found huggingface-hub==2.4.0."
        )

    monkeypatch.setattr("harness.pipeline.session.load", broken)
    done = harness("track=none")
    assert done.code != 0 and "fault of the harness" not in done.out
    assert "It came from the packages of" in done.out and "constraints.txt" in done.out
    assert "huggingface-hub==2.4.0" in done.out
