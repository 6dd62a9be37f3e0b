"""Our forward against the model's own."""

from harness.cache.registry import decoder
from harness.config import CacheConfig
from harness.errors import UnsupportedModel
from harness.model.sampler import Sampler
from harness.pipeline import drive
from harness.pipeline.judge import judge
from harness.report.claims import Layout
from harness.task.claims.bench import DEPENDS, HOLDS, REFUTED, Bench, Settled

CLAIM = "The manual forward reproduces the model's logits while the past stays bit-identical."
STEPS = 24
LAYOUT = Layout(
    {
        "served": "this model is served by the manual forward",
        "verdict": "verdict beside the model's own run",
        "max_abs_diff": "largest difference of a logit",
        "noise_floor": "noise floor of that",
        "error_against_float64": "error against float64",
        "plain_error_against_float64": "that of the model without a cache",
        "top1_agreement": "steps with the same most likely token, share",
        "past_bit_identical": "the past is bit-identical",
        "bytes_of_the_past_copied": "bytes of the past copied",
    }
)


def settle(bench: Bench) -> Settled:
    cfg, ids = bench.session.cfg, bench.ids(96)
    state = bench.state(ids)
    cache, _ = bench.prefilled(ids)
    live = drive.Uninterrupted(bench.loaded, cache, state)
    reference = drive.drive(live, Sampler(cfg.sampling), STEPS)
    try:
        manual = decoder(bench.loaded, state, CacheConfig("manual"))
    except UnsupportedModel as problem:
        return Settled(
            DEPENDS, {"served": False}, "On the model: this one is not served.", str(problem)
        )
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
        f"{judged.verdict.capitalize()} to the model's own run, and the past is "
        f"{'bit-identical' if untouched else 'another one'} afterwards.",
        "Same tokens, and an error against float64 of the size of the model's own; not one byte of "
        "the past changed.",
        f"{STEPS} teacher-forced steps after 96 tokens",
    )
