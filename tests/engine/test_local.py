"""Engines in this process: ours through every cache, mlx-lm with its own; and their corrupted twins."""

import json
from pathlib import Path

import pytest

TINY = Path(__file__).resolve().parents[2] / "harness" / "model" / "assets" / "tiny"
GOOD = {"exact", "equivalent"}
TEXT = "text='let k be 5 . the bird sang . the old man walked to the river . what is k ?'"


def rows_of(done) -> dict:
    return {r["case"]: r for r in json.loads((done.folders[0] / "referee.json").read_text())}


def test_ours_through_every_cache(harness) -> None:
    done = harness("task=referee", TEXT, "steps=6", "task.repeats=2")
    assert done.code == 0, done.out
    rows = rows_of(done)
    assert rows["restored"]["repeats"] == 2
    assert {"hit", "restored", "hit_dynamic", "hit_view", "hit_static"} <= set(rows)
    for name, row in rows.items():
        assert (row["verdict"] in GOOD) != row["control"], name
        assert row["reused_tokens"] == (0 if name == "cold_again" else row["prompt_tokens"] - 1)


def test_ours_in_bfloat16_where_cold_runs_are_bit_equal(harness) -> None:
    """A logit has eight bits there: another kernel's is the next one up, which is no fault of a cache."""
    done = harness("task=referee", "dtype=bfloat16", "steps=6", "task.repeats=2")
    rows = rows_of(done)
    assert done.code == 0, done.out
    assert 0 < rows["hit"]["max_abs_diff"] <= 0.125 and rows["hit"]["noise_floor"] < 0.15
    assert rows["restored"]["hit_diff"] == 0 and rows["restored"]["hit_floor"] < 1e-4
    assert rows["hit"]["plain_error"] < 0.25 < 1 < rows["one_token_off"]["oracle_error"]


@pytest.mark.parametrize("options", [[], ["+engine.options.kv_bits=8", "+engine.options.kv_group_size=32"], ["+engine.options.max_kv_size=64"]], ids=["plain", "8 bits", "rotating"])  # fmt: skip
def test_mlx_through_its_caches(harness, options) -> None:
    done = harness("task=referee", "engine=mlx", f"engine.model={TINY}", TEXT, "steps=6", "task.repeats=1", *options)  # fmt: skip
    rows = rows_of(done)
    assert done.code == 0, done.out
    for case in ("hit", "restored", "trimmed"):
        assert rows[case]["verdict"] in GOOD and rows[case]["reused_tokens"] > 8
    assert not {rows["other_prompt"]["verdict"], rows["one_token_off"]["verdict"]} & GOOD


def test_mlx_with_an_offset_off_by_one_is_found(harness, monkeypatch) -> None:
    """The twin: a loaded cache whose offset is one too small."""
    from harness.engine.mlx import Mlx

    healthy = Mlx.restore

    def restore(self, case: str) -> None:
        healthy(self, case)
        if case == "restored":
            for layer in self._cache:
                layer.offset -= 1

    monkeypatch.setattr(Mlx, "restore", restore)
    done = harness("task=referee", "engine=mlx", f"engine.model={TINY}", TEXT, "steps=6", "task.repeats=1")  # fmt: skip
    rows = rows_of(done)
    assert done.code == 1 and rows["hit"]["verdict"] in GOOD
    assert rows["restored"]["verdict"] in ("drifted", "diverged")


def test_ours_with_a_stale_value_is_found(harness, monkeypatch) -> None:
    from dataclasses import replace

    from harness.pipeline.own_engine import Ours

    def stale(self, state):
        layer = state.layers[0]
        part = layer.segments[0]
        wrong = replace(part, value=part.value.flip(2))
        return replace(state, layers=(replace(layer, segments=(wrong, *layer.segments[1:])), *state.layers[1:]))  # fmt: skip

    monkeypatch.setattr(Ours, "stored", stale)
    done = harness("task=referee", TEXT, "steps=6", "task.repeats=1")
    rows = rows_of(done)
    assert done.code == 1 and rows["hit"]["verdict"] in GOOD
    assert rows["restored"]["verdict"] in ("drifted", "diverged")


@pytest.mark.parametrize(
    "given, says",
    [(["engine=mlx"], "engine.model=DIR"),
     (["engine=mlx", f"engine.model={TINY}", "+engine.options.speed=9"], "not speed")],
)  # fmt: skip
def test_mistakes(harness, given, says) -> None:
    done = harness("task=referee", *given)
    assert done.code == 2 and says in done.out
