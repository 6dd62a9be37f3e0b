"""Sampled text, paused and resumed, continues bit for bit: the generator travels with the state."""

import pytest
import torch

from harness.cache.registry import decoder
from harness.model.sampler import Sampler
from harness.pipeline import drive
from harness.save import store

SETTINGS = (
    ["sampling.temperature=1.3"],
    ["sampling.temperature=0.9", "sampling.top_k=20", "sampling.top_p=0.9"],
    ["sampling.repetition_penalty=1.3", "sampling.temperature=1.5"],
)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: s[0].split(".")[-1])
def test_a_resumed_sampled_run_continues_bit_for_bit(captured, tmp_path, settings):
    from dataclasses import replace

    session, made = captured("sampling=sample", *settings, "text='let k be 5 . the bird sang .'")
    cfg, loaded = session.cfg, session.loaded

    def run(state, rng, steps):
        sampler = Sampler(cfg.sampling, cfg.seed, rng=rng)
        runner = decoder(loaded, state, cfg.cache)
        path = drive.drive(runner, sampler, steps)
        return path, runner, sampler

    whole, _, _ = run(made.state, made.state.rng, 24)
    _, runner, _ = run(made.state, made.state.rng, 10)
    # `drive` draws one token more than it feeds: the pause is after ten draws
    ten = Sampler(cfg.sampling, cfg.seed, rng=made.state.rng)
    drive.drive(decoder(loaded, made.state, cfg.cache), ten, 9)
    paused = replace(runner.commit(), rng=ten.rng)
    store.save(paused, tmp_path / "paused", cfg.save)
    back, _ = store.load(tmp_path / "paused")
    rest, _, _ = run(back, back.rng, 14)
    assert torch.equal(rest.ids, whole.ids[:, 10:])
    assert torch.equal(rest.logits.argmax(-1), whole.logits[:, 10:].argmax(-1))
    reseeded, _, _ = run(back, torch.Generator().manual_seed(99).get_state(), 14)
    assert not torch.equal(reseeded.ids, whole.ids[:, 10:])  # the twin: another generator
