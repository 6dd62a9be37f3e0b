"""Our forward against the model's own."""

from harness.cache.registry import decoder
from harness.config import CacheConfig
from harness.errors import UnsupportedModel
from harness.model.sampler import Sampler
from harness.pipeline import drive
from harness.pipeline.judge import judge
from harness.task.claims.bench import DEPENDS, HOLDS, REFUTED, Bench, Settled

CLAIM = "The manual forward reproduces the model's logits while the past stays bit-identical."
STEPS = 24


def settle(bench: Bench) -> Settled:
    cfg, ids = bench.session.cfg, bench.ids(96)
    state = bench.state(ids)
    cache, _ = bench.prefilled(ids)
    live = drive.Uninterrupted(bench.loaded, cache, state)
    reference = drive.drive(live, Sampler(cfg.sampling), STEPS)
    try:
        manual = decoder(bench.loaded, state, CacheConfig("manual"))
    except UnsupportedModel as problem:
        return Settled(DEPENDS, {"served": False}, str(problem))
    before = manual.fingerprint(digest=True)
    path = drive.drive(manual, Sampler(cfg.sampling), STEPS, follow=reference.fed)
    judged = judge(bench.loaded, state, reference, path, cfg.compare)
    untouched = manual.fingerprint(digest=True) == before
    good = judged.verdict in ("exact", "equivalent") and untouched
    return Settled(
        HOLDS if good else REFUTED,
        {
            "verdict": judged.verdict,
            "max_abs_diff": judged.metrics["max_abs_diff"],
            "noise_floor": judged.noise["max_abs_diff"],
            "error_against_float64": judged.oracle["restored"],
            "plain_error_against_float64": judged.oracle["plain"],
            "top1_agreement": judged.metrics["top1_agreement"],
            "past_bit_identical": untouched,
            "bytes_of_the_past_copied": manual.bytes_copied,
        },
        "Same tokens, and an error against float64 of the size of the model's own; not one byte of "
        "the past changed.",
        f"{STEPS} teacher-forced steps after 96 tokens",
    )
