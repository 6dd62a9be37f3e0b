"""What the judge says must change when what it looks at changes: each test fails on a planted mutant."""

from types import SimpleNamespace

import pytest
import torch
from transformers import LlamaForCausalLM

from harness.cache.base import Fingerprint
from harness.pipeline.judge import mutation
from harness.present.messages import worded


class Written:
    """A decoder whose caller's tensors can be written to between two looks at them."""

    bytes_copied = 0

    def __init__(self):
        self.key = torch.ones(1, 2, 4, 8)

    def fingerprint(self, digest: bool) -> Fingerprint:
        return Fingerprint.of(4, [("key", self.key)], digest)


@pytest.mark.parametrize("digest", [True, False])
def test_a_write_that_keeps_the_length_is_a_mutation(digest):
    decoder = Written()
    before = decoder.fingerprint(digest)
    assert not mutation(decoder, before, 1)["mutated"]
    decoder.key[0, 0, 0, 0] = 2.0
    assert mutation(decoder, before, 1)["mutated"]


def test_a_write_behind_the_version_counter_is_seen_by_the_digest():
    decoder = Written()
    before = decoder.fingerprint(True)
    decoder.key.data[0, 0, 0, 0] = 2.0
    assert mutation(decoder, before, 1)["mutated"]


def test_the_noise_floor_is_the_worse_of_two_paths(harness):
    done = harness("steps=4")
    noise = [c for name, c in done.result["curves"].items() if name.startswith("noise: ")]
    assert len(noise) == 2
    worst = [max(curve["max_abs_diff"]) for curve in noise]
    assert done.result["noise_floor"]["max_abs_diff"] == max(worst)
    assert done.result["noise_floor"]["kl_max"] == max(max(curve["kl"]) for curve in noise)


@pytest.mark.parametrize("spoilt", ["uncached", "rechunked"])
def test_either_noise_path_alone_raises_the_floor(captured, monkeypatch, spoilt):
    from dataclasses import replace

    from harness.model.sampler import Sampler
    from harness.pipeline import drive, judge, yardstick

    session, made = captured("steps=4", "compare.oracle=false")
    live = drive.Uninterrupted(session.loaded, made.live, made.state)
    reference = drive.drive(live, Sampler(session.cfg.sampling), 4)
    honest = yardstick.measure

    def measured(*given, **named):
        plain = honest(*given, **named)
        return replace(plain, **{spoilt: getattr(plain, spoilt) + 0.25})

    monkeypatch.setattr(yardstick, "measure", measured)
    floor = judge.judge(session.loaded, made.state, reference, reference, session.cfg.compare).noise
    assert floor["max_abs_diff"] == pytest.approx(0.25, abs=1e-3)


def test_the_console_keeps_the_measured_and_the_noise_in_their_columns(capfd, harness):
    from harness.report.terminal import console

    done = harness("steps=4")
    result = done.result
    result["metrics"]["max_abs_diff"], result["noise_floor"]["max_abs_diff"] = 0.125, 0.5
    console.show(console.Say(), result, verbose=True)
    shown = capfd.readouterr().out
    head = next(line for line in shown.splitlines() if "measured" in line)
    row = next(line for line in shown.splitlines() if line.startswith("largest difference"))
    columns = [cell.strip() for cell in head.split("|")]
    cells = dict(zip(columns, (cell.strip() for cell in row.split("|")), strict=True))
    assert (cells["measured"], cells["noise floor"]) == ("0.125", "0.5")
    assert f"task=resume snapshot={result['snapshot']['path']}" in shown.splitlines()[-1]
    judged = " ".join(shown.partition("\njudged by:")[2].partition("\nsize:")[0].split())
    assert judged.startswith("error against float64 ") and judged.endswith(
        "twice that is allowed (the noise floor is no limit)"
    )
    assert max(len(line) for line in shown.splitlines() if "|" in line) <= 80
    result["environment"]["command"] = ["python", "-m", "harness"]
    console.show(console.Say(), result)
    assert capfd.readouterr().out.splitlines()[-1].endswith("harness task=ui")


def test_the_shared_forward_sends_the_mask(captured):
    """A padded row gives what it gives alone: were the mask never sent, words would see padding."""
    session, made = captured("prompt.batch=3")
    for row in range(3):
        ids = made.state.token_ids[row : row + 1, made.state.attention_mask[row] != 0]
        alone = session.loaded.uncached(ids, 1)[0, -1]
        gap = (made.state.logits[row] - alone).abs().max()
        allowed = 16 * torch.finfo(alone.dtype).eps * alone.abs().max()  # measured 2 roundings
        assert gap <= allowed, f"row {row}: {gap}"


def test_the_shared_forward_hands_its_mask_to_the_model(session):
    loaded = session().loaded
    sent = []

    class Heard:
        config = loaded.model.config

        def __call__(self, **given):
            sent.append(given.get("attention_mask"))
            return SimpleNamespace(logits=torch.zeros(2, 3, 5))

    other = type(loaded)(loaded.model, loaded.tokenizer, loaded.source, 0.0)
    object.__setattr__(other, "model", Heard())
    mask = torch.tensor([[1, 1, 1], [0, 1, 1]])
    other.once(torch.ones(2, 3, dtype=torch.int64), torch.arange(3).expand(2, 3), mask)
    assert sent[0] is mask


@pytest.mark.parametrize("oracle", [True, False])
@pytest.mark.parametrize("share, verdicts", [(0.0, ["exact"]), (1e-7, ["equivalent"]), (1e-3, ["drifted"])])  # fmt: skip
def test_the_stored_logits_are_judged_as_well(captured, oracle, share, verdicts):
    """What was saved is drawn from next; no later step shows whether it came back."""
    from dataclasses import replace

    from harness.model.sampler import Sampler
    from harness.pipeline import drive
    from harness.pipeline.judge import judge

    session, made = captured("steps=4", f"compare.oracle={oracle}")
    live = drive.Uninterrupted(session.loaded, made.live, made.state)
    reference = drive.drive(live, Sampler(session.cfg.sampling), 4)
    restored = replace(reference, stored=reference.stored * (1 + share))
    judged = judge(session.loaded, made.state, reference, restored, session.cfg.compare)
    assert judged.verdict in verdicts, judged.reason
    if judged.verdict == "drifted":
        assert "stored logits" in worded(judged.reason)


def test_a_fault_of_the_stored_logits_is_no_exact_run_where_no_proof_can_be_given(harness):
    """Windows have let go of tokens, so the last one cannot be replayed."""
    done = harness("model=tiny_gemma3", "steps=4", "fault=logits_rounded")
    assert done.code == 1 and done.result["verdict"] in ("drifted", "diverged")
    assert done.result["diagnosis"]["cause"] == "logits"


class Remembering(LlamaForCausalLM):
    """A model that keeps something of its prompt on itself, outside of every cache."""

    kept: torch.Tensor | None = None

    def forward(self, input_ids=None, past_key_values=None, **options):
        if past_key_values is None or past_key_values.get_seq_length() == 0:
            self.kept = (input_ids[:, 1:3].sum(1) % 7).to(self.dtype)
        out = super().forward(input_ids=input_ids, past_key_values=past_key_values, **options)
        tilt = torch.linspace(-1, 1, out.logits.shape[-1], dtype=out.logits.dtype)
        out.logits = out.logits + self.kept[:, None, None].to(out.logits.dtype) * tilt
        return out


@pytest.mark.parametrize("cache", ["cloned", "static", "view"])
def test_what_a_model_keeps_outside_of_its_cache_is_lost_on_the_way(cache, monkeypatch):
    """Its reference leaves it as the restored run wants it; another thought between them does not."""
    import harness
    from harness.pipeline import drive

    tiny = harness.load_model("tiny")
    model = Remembering(tiny.model.config).eval()
    model.load_state_dict(tiny.model.state_dict())
    loaded = harness.wrap(model, tiny.tokenizer)
    state = harness.capture_text(loaded, "let k be 5 . the bird sang .")
    judged = harness.judge(loaded, state, steps=6, cache=cache)
    assert judged.verdict in ("drifted", "diverged")
    assert "outside of its cache" in judged.diagnosis["evidence"]
    monkeypatch.setattr(drive, "aside", lambda loaded, state: None)
    assert harness.judge(loaded, state, steps=6, cache=cache).verdict in ("exact", "equivalent")
