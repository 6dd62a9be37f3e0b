"""No false alarm: clean runs over models, caches, seeds, lengths, batches and precisions."""

import random

import pytest

from harness.cache.registry import decoder
from harness.fault.registry import every
from harness.model.sampler import Sampler
from harness.pipeline import drive
from harness.pipeline.damage import damaged
from harness.pipeline.judge import judge
from harness.pipeline.restore import identity_check
from harness.save import store

MODELS = ("tiny", "tiny_gpt2", "tiny_gemma3")
WORDS = [
    "let",
    "k",
    "be",
    "5",
    ".",
    "the",
    "bird",
    "sang",
    "old",
    "man",
    "walked",
    "to",
    "river",
    "what",
    "is",
    "m",
    "x",
    "42",
]


def clean(session, tmp_path, model, cache, seed, batch, sampling):
    """The whole line without a fault; strict, so that any alarm raises. The verdict."""
    draw = random.Random(seed)
    text = " ".join(draw.choices(WORDS, k=draw.randint(14, 70)))
    one = session(f"model={model}", f"cache={cache}", f"sampling={sampling}", f"prompt.batch={batch}",
                  f"seed={seed}", "threads=1", f"text='{text}'")  # fmt: skip
    sampler = Sampler(one.cfg.sampling, seed)
    captured = one.capture(one.encoded(), sampler)
    place = tmp_path / f"{model}-{cache}-{seed}-{batch}"
    store.save(captured.state, place, one.cfg.save)
    back, _ = store.load(place)
    restored, again = damaged(one, every()["none"], back.rng)
    assert identity_check(restored, back, place, again) == (back, [])
    live = drive.Uninterrupted(one.loaded, captured.live, captured.state)
    reference = drive.drive(live, sampler, 8)
    path = drive.drive(decoder(one.loaded, back, one.cfg.cache), again, 8, follow=reference.fed)
    return judge(one.loaded, captured.state, reference, path, one.cfg.compare).verdict


@pytest.mark.parametrize("model", MODELS)
def test_clean_runs_raise_no_alarm(session, tmp_path, model):
    cache = "manual" if model == "tiny" else "cloned"
    for seed in range(3):
        verdict = clean(session, tmp_path, model, cache, seed, 1 + seed % 2, "greedy")
        assert verdict in ("exact", "equivalent")


@pytest.mark.slow
def test_two_hundred_clean_runs_raise_no_alarm(session, tmp_path):
    alarms = {}
    for number in range(200):
        model = MODELS[number // 70]
        caches = ("manual", "cloned", "dynamic") if model == "tiny" else ("cloned", "dynamic")
        case = (model, caches[number % len(caches)], number, 1 + number % 3 // 2,
                ("greedy", "sample")[number % 2])  # fmt: skip
        verdict = clean(session, tmp_path, *case)
        if verdict not in ("exact", "equivalent"):
            alarms[case] = verdict
    assert alarms == {}
