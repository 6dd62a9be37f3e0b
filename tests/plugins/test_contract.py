"""What a variant from outside owes its base: each mistake is one sentence, with its name and line."""

import importlib

import pytest
import torch

from harness.config import PruneConfig, QuantizeConfig
from harness.contract import agree
from harness.errors import ConfigProblem
from harness.variants import BASES

SIGNED = {
    "prune": "def score(self, layer, rank, keep): return rank.double()",
    "quantize": "def encode(self, tensor, part): return symmetric(tensor, self.span(tensor), torch.int8)",
    "fault": "element = 1\n    def state(self, state, aid): return state",
}
WRONG = [
    ("prune", "def scores(self, layer, rank, keep): pass", "no `score`.* It has `scores`"),
    ("prune", "def score(self, layer, rank): pass", r"score\(self, layer, rank, keep\)"),
    ("prune", "def __init__(self): pass\n    " + SIGNED["prune"], r"__init__\(self, settings\)"),
    ("quantize", "def encod(self, tensor, part): pass", "no `encode`"),
    ("cache", "def forward(self, ids, positions): pass", "no `handed_in`"),
    (
        "save",
        "def write(self, sink, stream): pass\n    def read(self, source, wanted): pass",
        "`extension`",
    ),
    ("fault", "def stat(self, state, aid): return state", "is `state` meant"),
    ("engine", "def evalute(self, prompt, steps): pass", "no `evaluate`"),
    ("tokenizer", "def encode(self, tokenizer, text): pass", "turns"),
]


def made(group: str, body: str) -> tuple[type, type]:
    """A class from outside with `body`, and the base that it is derived from."""
    base = getattr(importlib.import_module(f"harness.{group}"), BASES[group])
    names = {"Base": base, "__name__": "my_own", "torch": torch}
    code = f"from harness.quantize import symmetric\nclass My(Base):\n    {body}\n"
    exec(compile(code, "my_own.py", "exec"), names)
    return names["My"], base


@pytest.mark.parametrize(("group", "body"), SIGNED.items())
def test_what_keeps_to_its_base_is_let_through(group, body) -> None:
    agree(f"{group}=mine", "my_own.My", *made(group, body))


@pytest.mark.parametrize(("group", "body", "said"), WRONG)
def test_what_cannot_serve_is_told_before_it_is_built(group, body, said) -> None:
    with pytest.raises(ConfigProblem, match=f"{group}=mine.*{said}"):
        agree(f"{group}=mine", "my_own.My", *made(group, body))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (SIGNED["prune"], None),
        ("def score(self, layer, rank, keep): rank.double()", "my_own.py:3 returned None, not `Tensor`"),
        ("def score(self, layer, rank, keep): return layer.value.mul_(2).sum((1, 3))", "my_own.py:3 wrote into layer.0.*value"),
    ],
)  # fmt: skip
def test_a_policy_that_returns_nothing_or_writes_is_told_by_its_line(session, body, said) -> None:
    kind, base = made("prune", body)
    agree("prune=mine", "my_own.My", kind, base)
    policy = kind(PruneConfig(name="mine", ratio=0.5))
    running = session("model=tiny")
    from harness import capture_text

    state = capture_text(running.loaded, "let k be 5 . the bird sang .")
    if said is None:
        assert policy.prune(state).kept_tokens < state.kept_tokens
        return
    with pytest.raises(ConfigProblem, match=f"prune=mine: `score` in {said}"):
        policy.prune(state)


def test_a_quantizer_that_writes_into_the_keys_is_told(session) -> None:
    body = "def encode(self, tensor, part): return symmetric(tensor.mul_(2), (1, 8), torch.int8)"
    kind, base = made("quantize", body)
    agree("quantize=mine", "my_own.My", kind, base)
    from harness import capture_text

    state = capture_text(session("model=tiny").loaded, "let k be 5 .")
    with pytest.raises(ConfigProblem, match=r"`encode` in my_own.py:3 wrote into its argument"):
        kind(QuantizeConfig(name="mine")).quantize(state)


def test_it_is_told_before_the_model_is_loaded(harness, place, clean) -> None:
    (place / "conf" / "prune").mkdir(parents=True)
    (place / "my_late.py").write_text(
        "from harness.prune import Policy\nclass My(Policy):\n    def scor(self): pass\n"
    )
    (place / "conf" / "prune" / "late.yaml").write_text(
        "_target_: my_late.My\nname: late\nratio: 0.5\n"
    )
    (place / "empty").mkdir()
    (place / "empty" / "config.json").write_text("{}")
    wrong = harness(
        "--config-dir", "conf", "plugins.path=.", "prune=late", "model=path", "model.path=empty"
    )
    assert wrong.code == 2 and "my_late.My has no `score`" in wrong.out, wrong.out
