"""The main job: families, caches, batches, the record it leaves, and the twins that must fail."""

import json
import re
from dataclasses import replace

import pytest
import torch

from harness.snapshot.result import METRICS, MUTATION, TIMES

GOOD = ("exact", "equivalent")
FIELDS = ["schema", "verdict", "reason", "metrics", "noise_floor", "oracle", "mutation", "size",
          "time_s", "snapshot", "elements", "environment", "mlflow"]  # fmt: skip

CASES = [
    ("model=tiny", "cache=manual"),
    ("model=tiny", "cache=cloned"),
    ("model=tiny", "cache=dynamic"),
    pytest.param(
        ("model=tiny_gpt2", "cache=dynamic"), marks=pytest.mark.slow
    ),  # others like it are run every time
    ("model=tiny_gpt2", "cache=cloned"),
    ("model=tiny_gemma3", "cache=dynamic"),
    pytest.param(
        ("model=tiny_gemma3", "cache=cloned"), marks=pytest.mark.slow
    ),  # others like it are run every time
    ("model=tiny", "cache=manual", "prompt.batch=3"),
    ("model=tiny_gemma3", "cache=cloned", "prompt.batch=3"),
    ("model=tiny", "cache=manual", "dtype=bfloat16"),
    ("model=tiny", "cache=manual", "tokenizer=chat"),
    pytest.param(
        ("model=tiny", "cache=manual", "tokenizer=raw", "prompt=text"), marks=pytest.mark.slow
    ),  # others like it are run every time
    ("model=tiny", "cache=manual", "tokenizer=library", "text=let k be 5 ."),
    ("model=tiny", "cache=manual", "sampling=sample", "seed=3"),
    ("model=tiny", "cache=cloned", "prompt.chunk=7"),
    pytest.param(
        ("model=tiny", "cache=manual", "model.attention=eager"), marks=pytest.mark.slow
    ),  # others like it are run every time
]


@pytest.mark.parametrize("overrides", CASES, ids=" ".join)
def test_a_restored_run_is_the_same_thought(harness, overrides) -> None:
    done = harness(*overrides, "steps=12")
    assert done.code == 0, done.out
    assert done.result["verdict"] in GOOD
    assert done.result["text"]["token_ids"] == done.result["text"]["restored_ids"]
    library = any(o in ("cache=dynamic", "cache=cloned") for o in overrides)
    if library and "prompt.chunk=7" not in overrides:
        assert done.result["verdict"] == "exact"


def test_the_record_has_every_fixed_field(harness) -> None:
    done = harness("steps=4", "prompt=text")
    result = done.result
    page = (done.folders[0] / "report.html").read_text("utf-8")
    assert "cache auto (manual)" in page and "by manual, teacher forced" in done.out
    assert set(FIELDS) <= set(result)
    assert set(result["metrics"]) == set(result["noise_floor"]) == set(METRICS)
    assert set(result["mutation"]) == set(MUTATION)
    assert set(result["time_s"]) == set(TIMES)
    assert result["time_s"]["verify"] > 0
    assert all(v is not None for v in result["time_s"].values())
    assert {"tokens", "kept_tokens", "kv_bytes", "stored_bytes"} <= set(result["size"])
    assert {"id", "path", "format", "format_version"} <= set(result["snapshot"])
    assert [e["number"] for e in result["elements"]] == list(range(1, 14))
    folder = done.folders[0]
    for name in (".hydra", "harness.log", "result.json", "report.html", "snapshot"):
        assert (folder / name).exists(), name
    log = (folder / "harness.log").read_text()
    for stage in (r"model tiny: .* parameters", "save safetensors: ", "verdict: equivalent|exact"):
        assert re.search(rf"INFO harness: .*(?:{stage}).* \(\d+\.\d\d s\)", log), stage
    assert (
        json.loads((folder / "snapshot/manifest.json").read_text())["id"]
        == result["snapshot"]["id"]
    )
    page = (folder / "report.html").read_text()
    assert "<svg" in page and "http://" not in page.replace("http://www.w3.org", "").replace(
        "http://purl.org", ""
    ).replace("http://creativecommons.org", "")
    assert result["environment"]["threads"] == torch.get_num_threads()


def test_only_the_handed_in_object_is_mutated(harness) -> None:
    moved = {
        c: harness(f"cache={c}", "steps=6").result["mutation"]
        for c in ("dynamic", "cloned", "manual")
    }
    assert (
        moved["dynamic"]["mutated"]
        and not moved["cloned"]["mutated"]
        and not moved["manual"]["mutated"]
    )
    assert moved["dynamic"]["length_after"] == moved["dynamic"]["length_before"] + 6
    assert moved["dynamic"]["digest_before"] != moved["dynamic"]["digest_after"]
    assert moved["manual"]["digest_before"] == moved["manual"]["digest_after"]


def test_manual_copies_no_more_for_a_longer_past(harness) -> None:
    def copied(cache: str, times: int) -> float:
        text = "the bird sang in the tree . " * times
        return harness(f"cache={cache}", f"text={text}", "steps=8").result["mutation"][
            "bytes_copied_per_token"
        ]

    assert copied("manual", 4) == copied("manual", 40)
    assert copied("cloned", 40) > 5 * copied("cloned", 4)


def test_equal_runs_have_equal_snapshot_ids(harness) -> None:
    first, second = (harness("steps=2", "prompt=text").result for _ in range(2))
    assert first["snapshot"]["id"] == second["snapshot"]["id"]
    other = harness("steps=2", "prompt=text", "seed=7").result
    assert other["snapshot"]["id"] != first["snapshot"]["id"]


def judged(session, one, change=lambda d: d, state=None):
    """The verdict of a restored run over a damaged decoder or state."""
    from harness.cache.registry import decoder
    from harness.model.sampler import Sampler
    from harness.pipeline import drive
    from harness.pipeline.judge import judge

    cfg = session.cfg
    live = drive.Uninterrupted(session.loaded, one.live, one.state)
    reference = drive.drive(live, Sampler(cfg.sampling), 12)
    restored = change(decoder(session.loaded, state or one.state, cfg.cache))
    path = drive.drive(restored, Sampler(cfg.sampling), 12, follow=reference.fed)
    return judge(session.loaded, one.state, reference, path, cfg.compare).verdict


def test_the_undamaged_control_is_clean(captured) -> None:
    assert judged(*captured()) in GOOD


@pytest.mark.parametrize("model", ["tiny", "tiny_gpt2", "tiny_gemma3"])
@pytest.mark.parametrize("shift", [-1, 1])
def test_positions_off_by_one_are_never_equivalent(captured, model: str, shift: int) -> None:
    cache = "manual" if model == "tiny" else "cloned"
    session, one = captured(f"model={model}", f"cache={cache}")

    def off(decoder):
        decoder.next_position = decoder.next_position + shift
        return decoder

    assert judged(session, one, off) in ("drifted", "diverged")


def test_a_doubled_bos_is_never_equivalent(captured) -> None:
    from harness.capture import capture

    session, one = captured()
    ids = one.state.token_ids
    doubled = torch.cat([ids[:, :1], ids], dim=1)
    other = capture(session.loaded, doubled, torch.ones_like(doubled), dict(one.state.documents))
    assert judged(session, one, state=other.state) in ("drifted", "diverged")


@pytest.mark.parametrize("layer, part", [(0, "key"), (0, "value"), (1, "key"), (1, "value")])
def test_a_flipped_exponent_bit_in_memory_moves_the_logits(captured, layer: int, part: str) -> None:
    session, one = captured()
    state = one.state
    segment = state.layers[layer].segments[0]
    damaged = getattr(segment, part).clone()
    damaged.view(torch.int32)[0, 0, -1, 0] ^= 1 << 30
    changed = replace(state.layers[layer], segments=(replace(segment, **{part: damaged}),))
    layers = tuple(changed if i == layer else held for i, held in enumerate(state.layers))
    assert judged(session, one, state=replace(state, layers=layers)) in ("drifted", "diverged")
