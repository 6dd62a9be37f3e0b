"""Float64 beside an engine: its cold runs and its cache against the same weights, and the twins."""

import json
import math
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "engine"))
import gguf_model

from harness.engine import Answer
from harness.errors import InputProblem
from harness.model.build import SHIPPED
from harness.task.referee import oracle
from harness.task.referee.verdict import ORDER, decide
from harness.task.referee.yardstick import Yardstick

IDS = [5 + 7 * i % 500 for i in range(120)]
GIVEN = ("task=referee", f"prompt.ids=[{','.join(map(str, IDS))}]", "steps=6", "task.repeats=1")
EXACT = ("engine=llamacpp", "engine.threads=1", "engine.type_k=f32", "engine.type_v=f32", "engine.flash=off")  # fmt: skip
GOOD = {"exact", "equivalent"}


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return gguf_model.write(tmp_path_factory.mktemp("gguf") / "m.gguf")


def rows_of(done) -> dict:
    return {r["case"]: r for r in json.loads((done.folders[0] / "referee.json").read_text())}


def test_a_gguf_file_is_its_own_oracle(harness, model) -> None:
    done = harness(*GIVEN, *EXACT, f"engine.model={model}")
    rows = rows_of(done)
    assert done.code == 0 and "against float64" in done.reason, done.out
    for name, row in rows.items():
        within = row["oracle_error"] <= 2 * row["plain_error"]
        assert within == (row["verdict"] in GOOD) != row["control"], name
    assert 0 < rows["hit"]["plain_error"] < 1e-4 < 1 < rows["one_token_off"]["oracle_error"]
    assert "float64 oracle" in (done.folders[0] / "referee.md").read_text()


def test_other_weights_decide_nothing(harness, model, tmp_path) -> None:
    """The twin: an oracle over another model is as far from the truth as from a wrong state."""
    other = gguf_model.write(tmp_path / "other.gguf", seed=1)
    done = harness(*GIVEN, *EXACT, f"engine.model={model}", f"engine.weights={other}")
    assert done.code == 0 and "The noise floor decides" in done.out
    assert done.result["referee"]["float64"]["code"] == "float64_elsewhere"
    assert rows_of(done)["hit"]["plain_error"] > 1 > 1e-3 > rows_of(done)["hit"]["noise_floor"]


def test_a_model_in_codes_is_far_from_float64_and_the_floor_decides(harness, tmp_path) -> None:
    """llama.cpp rounds what it multiplies codes with, and repeats that: a fault within what float64 would allow is one."""
    coded = gguf_model.write(tmp_path / "coded.gguf", codes="Q4_0")
    done = harness(*GIVEN, *EXACT, f"engine.model={coded}")
    float64, hit = done.result["referee"]["float64"], rows_of(done)["hit"]
    assert done.code == 0 and float64["code"] == "float64_coarse", done.out
    assert "weights in F32 and Q4_0" in float64["reason"]
    assert hit["plain_error"] > 100 * hit["noise_floor"]
    fault = {"max_abs_diff": 0.9 * hit["plain_error"], "first_divergence": None, "steps": 3, "bitwise_equal": False,
             "missing": 0, "lead": 0.0, "errors": [1.9 * hit["plain_error"]]}  # fmt: skip
    said, reason = decide(fault, hit["noise_floor"], hit["plain_error"])
    assert (said, reason.code) == ("drifted", "beyond")


def test_an_oracle_never_loosens_a_verdict() -> None:
    chance = random.Random(0)
    drawn = lambda: 10 ** chance.uniform(-6, 1)  # noqa: E731
    seen = set()
    for _ in range(2000):
        other = chance.choice([None, None, 2])
        metrics = {"max_abs_diff": drawn(), "first_divergence": other, "steps": 3, "bitwise_equal": False,
                   "missing": 0, "lead": drawn() if other else 0.0, "errors": [drawn(), drawn()]}  # fmt: skip
        floor = drawn()
        alone, both = decide(metrics, floor)[0], decide(metrics, floor, drawn())[0]
        assert ORDER.index(both) >= ORDER.index(alone)
        seen.add((alone, both))
    assert ("equivalent", "drifted") in seen and ("equivalent", "equivalent") in seen


def test_the_folder_beside_a_server(harness, compose, model, tmp_path, monkeypatch) -> None:
    import torch

    from harness.engine.llamacpp import LlamaCpp
    from harness.model import gguf

    gguf.model_of(model, torch.float32, {}).save_pretrained(tmp_path / "hf")
    cfg = compose(*EXACT, f"engine.model={model}")
    with LlamaCpp(cfg.engine) as engine:
        wire = engine._server.wire
        monkeypatch.setenv("OPENAI_API_KEY", wire._headers["Authorization"].split()[1])
        done = harness(*GIVEN, "engine=openai", f"engine.url={wire.base}/v1", f"engine.weights={tmp_path / 'hf'}")  # fmt: skip
    assert done.code == 0 and "against float64" in done.reason, done.out
    assert rows_of(done)["hit"]["plain_error"] < 1e-4


def test_without_one_the_floor_decides(harness, model) -> None:
    done = harness(*GIVEN, *EXACT, f"engine.model={model}", "compare.oracle=false")
    assert done.code == 0 and "noise floor" in done.reason


@pytest.mark.parametrize(
    "weights, says", [("nowhere", "no config.json"), ("bad.gguf", "cannot be read as a model")]
)
def test_mistakes(harness, place, model, weights, says) -> None:
    (place / "bad.gguf").write_bytes(b"GGUF" + bytes(64))
    done = harness(*GIVEN, *EXACT, f"engine.model={model}", f"engine.weights={weights}")
    assert done.code == 2 and says in done.out and "Traceback" not in done.out


@pytest.mark.parametrize(
    "error, plain, verdict",
    [
        (1.9, 1.0, "equivalent"),
        (2.1, 1.0, "drifted"),
        (2.1, None, "equivalent"),
        (2.1, math.inf, "equivalent"),
    ],
)
def test_twice_the_error_of_cold_runs(error, plain, verdict) -> None:
    metrics = {"max_abs_diff": 0.1, "first_divergence": None, "steps": 3, "bitwise_equal": False,
               "missing": 0, "lead": 0.0, "gaps": [0.1], "errors": [0.2, error]}  # fmt: skip
    assert decide(metrics, 0.1, plain)[0] == verdict


class Server:
    """One that tokenizes nothing; takes: whether a prompt may be ids."""

    weights = None

    def __init__(self, takes: bool):
        self.takes = takes

    def evaluate(self, prompt, steps):
        if not self.takes:
            raise InputProblem("prompt must be a string")


def test_text_becomes_ids_by_the_tokenizer_beside_the_weights(compose) -> None:
    """Else float64 cannot be asked, and the report says that; never that it was."""
    cfg = compose("task=referee", "engine=openai", f"engine.weights={SHIPPED['tiny']}")
    ids = oracle.encoded(cfg, Server(True), "let k be 5 .")
    assert isinstance(ids, list) and len(ids) == 6  # with what every text begins with
    assert oracle.encoded(cfg, Server(False), "let k be 5 .") == "let k be 5 ."
    bare = compose("task=referee", "engine=openai")
    assert oracle.encoded(bare, Server(True), "let k be 5 .") == "let k be 5 ."
    yard = Yardstick("let k be 5 .", Answer((), (), 0), {}, 0.0)
    said = oracle.described("weights", yard, True)
    assert said.code == "float64_text" and "the prompt is sent as text. prompt.ids" in str(said)
    assert str(oracle.described("weights", yard, False)) == "weights"


def test_a_token_that_the_weights_have_not_is_refused_by_name(compose, model) -> None:
    cfg = compose("task=referee", "engine=openai", f"engine.weights={model}")
    exact, _ = oracle.oracle(cfg, Server(True), 9, None)
    with pytest.raises(InputProblem, match=r"token 600 .* last is 511"):
        exact([1, 2, 3], [4, 600])
