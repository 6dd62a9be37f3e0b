"""The loop: budget held at every step, nothing written to the past, and a resumed loop that goes on
bit for bit, greedy and sampled, whatever the policy."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from harness.config import (
    CacheConfig,
    CompareConfig,
    Config,
    FaultConfig,
    ModelConfig,
    PromptConfig,
    SamplingConfig,
    SaveConfig,
    TokenizerConfig,
    TrackConfig,
    option,
)  # fmt: skip
from harness.fault import edit
from harness.pipeline.diagnosis import diagnose
from harness.pipeline.line import Line
from harness.pipeline.session import Session
from harness.pipeline.snapshot import Stored
from harness.report.terminal.console import Say
from harness.save import store
from harness.task.loop import begin, paused, run, steps
from harness.task.loop.steps import Loop

EPS = torch.finfo(torch.float32).eps  # scores are kept in float32
TEXT = "let k be 5 . the bird sang . the old man walked to the river . let m be 42 . what is k ?"
SAMPLE = {"name": "sample", "temperature": 1.3, "top_p": 0.95, "repetition_penalty": 1.1}


def config(tmp_path, prune, sampling=None, cache="manual", **given):
    return Config(
        name="test", text=TEXT, runs_dir=str(tmp_path), steps=given.pop("steps", 24),
        task=option("task", "loop", every=given.pop("every", 5)),
        model=ModelConfig(name="tiny", id="tiny"), tokenizer=TokenizerConfig(name="explicit"),
        cache=CacheConfig(name=cache), prune=option("prune", prune["name"], **{k: v for k, v in prune.items() if k != "name"}),
        save=SaveConfig(name="safetensors", sync=False),
        prompt=PromptConfig(name="text", text=TEXT), compare=CompareConfig(name="lossless"),
        sampling=SamplingConfig(eos_token_id=[], **(sampling or {"name": "greedy"})),
        fault=FaultConfig(name="none"), track=TrackConfig(name="none"), **given,
    )  # fmt: skip


def looped(cfg, tmp_path, stop=None):
    """Tokens, culled positions and the loop after `stop` (default all) steps."""
    session = Session.open(cfg, tmp_path, Say(quiet=True))
    state, sampler = begin(Line(session), Stored.of(cfg) if cfg.snapshot else None)
    loop, rows = Loop(session, state), []
    for _ in range(stop or cfg.steps):
        rows.append(loop.step(sampler))
    return rows, loop, sampler


def test_the_first_token_pays_for_nothing_that_is_prepared_once_and_no_step_is_moved(
    tmp_path, monkeypatch
):
    """Slow the first time it is asked; a loop that is rehearsed says what one that is not says."""
    left, feed = iter([0.5]), steps.feed
    cfg = config(tmp_path, {"name": "heavy_hitter", "tokens": 9}, SAMPLE, steps=6)
    plain, _, _ = looped(cfg, tmp_path)
    monkeypatch.setattr(
        steps, "feed", lambda *given: (time.sleep(next(left, 0.0)), feed(*given))[1]
    )
    run(cfg, tmp_path, Say(quiet=True))
    assert next(left, None) is None, "it was slow once"
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["time_s"]["first_token"] < 0.4 and result["loop"]["time_ratio"] > 0.05
    rows = json.loads((tmp_path / "trace.json").read_text())
    assert [row["token"] for row in rows] == [row["token"] for row in plain]
    assert [row["culled"] for row in rows] == [row["culled"] for row in plain]
    assert result["mutation"]["mutated"] is False


POLICIES = [
    {"name": "none"},
    {"name": "keep_last", "tokens": 9},
    {"name": "sink_window", "tokens": 9, "positions": "reindexed"},
    {"name": "knorm", "tokens": 9},
    {"name": "random", "tokens": 9, "positions": "reindexed"},
    {"name": "heavy_hitter", "tokens": 9},
    {"name": "heavy_hitter", "ratio": 0.4, "positions": "reindexed", "protect": "prefix"},
    {"name": "snapkv", "tokens": 12, "window": 4},
    {"name": "keydiff", "tokens": 9, "positions": "reindexed"},
    {"name": "tova", "tokens": 9},
    {"name": "keydiff", "tokens": 9, "at": 5},
    {"name": "expected_attention", "tokens": 9},
    {"name": "chain", "tokens": 9, "stages": [{"name": "heavy_hitter", "ratio": 0.75}, {"name": "sink_window"}]},
]  # fmt: skip


@pytest.mark.parametrize(
    "sampling",
    [pytest.param(None, id="greedy", marks=pytest.mark.slow), pytest.param(SAMPLE, id="sampled")],
)
@pytest.mark.parametrize("prune", POLICIES, ids=lambda p: "-".join(map(str, p.values()))[:40])
def test_a_resumed_loop_goes_on_bit_for_bit(prune, sampling, tmp_path):
    cfg = config(tmp_path, prune, sampling)
    whole, loop, _ = looped(cfg, tmp_path)
    budget = loop.budget
    room = prune.get("at", 1)
    for row in whole:
        assert budget is None or budget <= row["kept"] < budget + room
    for layer in loop.state.layers:
        assert layer.kept == (whole[-1]["kept"] if budget else loop.state.tokens)
        assert bool((layer.positions.diff(dim=-1) > 0).all())
    assert loop.mutated == 0
    stop = 7
    _, half, sampler = looped(cfg, tmp_path, stop)
    store.save(paused(half.state, sampler, stop), tmp_path / "at", cfg.save)
    cfg = config(tmp_path, prune, sampling, snapshot=str(tmp_path / "at"), seed=99, steps=17)
    rest, again, _ = looped(cfg, tmp_path)
    assert [r["token"] for r in rest] == [r["token"] for r in whole[stop:]]
    assert rest == whole[stop:]  # probabilities, positions and culled tokens too
    for a, b in zip(loop.state.tensors(), again.state.tensors(), strict=True):
        assert a[0] == b[0] and (a[0] == "rng" or torch.equal(a[1], b[1]))


def test_what_a_loop_read_over_what_it_kept_is_no_damage(tmp_path):
    _, loop, _ = looped(config(tmp_path, {"name": "sink_window", "tokens": 9}), tmp_path, 6)
    told = diagnose(loop.loaded, loop.state)
    assert told.evidence.startswith("pruned on purpose: 9 of "), told.evidence
    read = loop.state.layers[1].positions[0] < loop.state.tokens - 6  # before the loop
    damaged = edit.layers(loop.state, lambda k: k + 0.5 * read[:, None].to(k), only=1)
    assert (told := diagnose(loop.loaded, damaged)).layer == 1, told.evidence


def test_a_sampled_loop_without_its_generator_goes_elsewhere(tmp_path):
    """The twin: with another generator the same snapshot says something else."""
    cfg = config(tmp_path, POLICIES[1], SAMPLE)
    whole, _, _ = looped(cfg, tmp_path)
    _, half, sampler = looped(cfg, tmp_path, 7)
    store.save(paused(half.state, sampler, 7), tmp_path / "at", cfg.save)
    other = config(
        tmp_path, POLICIES[1], {**SAMPLE, "seed": 1}, snapshot=str(tmp_path / "at"), steps=17
    )
    rest, _, _ = looped(other, tmp_path)
    assert [r["token"] for r in rest] != [r["token"] for r in whole[7:]]


def test_scores_do_not_depend_on_the_cache_that_generates(tmp_path):
    """manual has an attention of its own; its scores come from a read-only pass of the model's."""
    prune = {"name": "heavy_hitter", "tokens": 12}
    rows = [
        looped(config(tmp_path, prune, cache=c), tmp_path) for c in ("manual", "cloned", "dynamic")
    ]
    tokens = [[r["token"] for r in found] for found, _, _ in rows]
    assert tokens[0] == tokens[1] == tokens[2]
    culled = [[r["culled"] for r in found] for found, _, _ in rows]
    assert culled[0] == culled[1] == culled[2]
    for a, b in zip(rows[0][1].state.layers, rows[1][1].state.layers, strict=True):
        assert torch.allclose(a.received, b.received, rtol=16 * EPS, atol=16 * EPS)
    assert rows[0][1].mutated == rows[1][1].mutated == 0
    assert rows[2][1].mutated == 24  # the caller's own DynamicCache grows: the audit says so


def test_scores_add_up_to_one_per_query_and_head(tmp_path):
    _, loop, _ = looped(config(tmp_path, {"name": "heavy_hitter", "tokens": 500}), tmp_path, 5)
    tokens = loop.state.tokens
    heads = loop.loaded.text_config.num_attention_heads
    for layer in loop.state.layers:
        total = tokens * heads  # of which a query or a head that is left out is one
        assert float(layer.received.double().sum()) == pytest.approx(total, rel=16 * EPS)
        assert 1 / total > 1000 * 16 * EPS


def test_reindexed_positions_stay_within_the_budget(tmp_path):
    rows, loop, _ = looped(config(tmp_path, POLICIES[2]), tmp_path)
    assert {r["next_position"] for r in rows} == {9}
    assert all(layer.positions[0].tolist() == list(range(9)) for layer in loop.state.layers)
    rows, _, _ = looped(config(tmp_path, POLICIES[1]), tmp_path)
    assert [b["next_position"] - a["next_position"] for a, b in itertools.pairwise(rows)] == [
        1
    ] * 23


def test_trace_and_record(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    outcome = run(config(tmp_path, POLICIES[1], steps=12), folder, Say(quiet=True))
    assert outcome.exit_code == 0
    trace = json.loads((folder / "trace.json").read_text())
    assert [r["step"] for r in trace] == list(range(1, 13))
    result = json.loads((folder / "result.json").read_text())
    assert [r["token"] for r in trace] == result["text"]["token_ids"]
    assert all(r["top"][0][1] >= r["probability"] for r in trace)
    assert result["size"]["kept_tokens"] == 9 and result["loop"]["budget"] == 9
    assert result["mutation"]["mutated"] is False
    said = (folder / "report.html").read_text().partition("What was said")[2].partition("</pre>")[0]
    assert result["text"]["prompt"].startswith("<bos>") and result["text"]["placed"] == "<bos>"
    assert "prompt: " in said and "bos" not in said, "which nobody typed"
    state, manifest = store.load(folder / "snapshot")
    assert state.documents["generation"]["steps"] == 12
    assert manifest["documents"]["kv_format"]["pruned"][-1]["policy"] == "keep_last"
    resumed = config(tmp_path, POLICIES[1], steps=3, snapshot=str(folder / "snapshot"))
    more = tmp_path / "more"
    more.mkdir()
    run(resumed, more, Say(quiet=True))
    assert [r["step"] for r in json.loads((more / "trace.json").read_text())] == [13, 14, 15]


COMMAND = ["task=loop", "prune=heavy_hitter", "prune.tokens=12", "sampling=sample", "sampling.eos_token_id=[]", "track=none",
           "task.every=3", f"text={TEXT}"]  # fmt: skip


def harness(*arguments, **how):
    return [sys.executable, "-m", "harness", *COMMAND, *arguments]


def test_killed_and_resumed_it_says_the_same(tmp_path):
    """SIGKILL at an arbitrary moment; the last snapshot goes on to the same text."""
    here = Path(__file__).parents[2]
    runs = f"runs_dir={tmp_path}"
    process = subprocess.Popen(
        harness("steps=3000", runs, f"out={tmp_path / 'at'}"), cwd=here,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not (tmp_path / "at" / "manifest.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    state, _ = store.load(tmp_path / "at")
    done = state.documents["generation"]["steps"]
    cfg = config(
        tmp_path, {"name": "heavy_hitter", "tokens": 12}, {"name": "sample", "temperature": 0.8}
    )
    whole, _, _ = looped(cfg, tmp_path, done + 20)
    said = state.token_ids[0, -done:].tolist()
    assert said == [r["token"] for r in whole[:done]]
    cfg.snapshot = str(tmp_path / "at")
    rest, _, _ = looped(cfg, tmp_path, 20)
    assert rest == whole[done:]


@pytest.mark.parametrize("steps", [150, pytest.param(10_000, marks=pytest.mark.slow)])
def test_soak_has_flat_memory(steps, tmp_path):
    """Past the model's 4096 positions only `reindexed` can go; K/V and time do not grow."""
    prune = {"name": "sink_window", "tokens": 64, "positions": "reindexed"}
    rows, loop, _ = looped(config(tmp_path, prune, SAMPLE, steps=steps), tmp_path)
    assert {r["kept"] for r in rows[60:]} == {64} and max(r["next_position"] for r in rows) <= 64
    assert (
        sum(s.key.untyped_storage().nbytes() for la in loop.state.layers for s in la.segments)
        == loop.state.kv_bytes // 2
    )
    if steps >= 10_000:
        memory = loop.pace()["resident_bytes"]
        assert memory[-1] - memory[len(memory) // 5] < 32 << 20
