"""llama.cpp's context shift: what is thought after it, beside a cold run and beside the cause.

Run with `-s` to see the figures that harness/engine/README.md states.
"""

import random

import gguf_model
import pytest
import torch

WINDOW, PROMPT, STEPS = 256, 200, 100
KEPT, DROPPED = 1, (WINDOW - 1 - 1) // 2  # its first token, and half of the others
IDS = random.Random(0).choices(range(5, 500), k=PROMPT)


def gap(ours, theirs) -> float:
    """Largest difference of a log-probability, in nats."""
    return max(abs(float(ours[token]) - value) for token, value in theirs.items())


@pytest.fixture(scope="module")
def shifted(tmp_path_factory):
    """The model's file, all tokens, each step's log-probabilities, and a cold run of the kept tokens."""
    from harness.config.option import option
    from harness.engine.llamacpp import LlamaCpp

    path = gguf_model.write(tmp_path_factory.mktemp("gguf") / "m.gguf")
    settings = option("engine", "llamacpp", model=str(path), threads=1, context=WINDOW, type_k="f32",
                      type_v="f32", flash="off", options={"ctx_shift": True})  # fmt: skip
    with LlamaCpp(settings) as engine:
        body = {"prompt": IDS, "n_predict": STEPS, "temperature": 0, "n_probs": 512, "ignore_eos": True,
                "return_tokens": True, "id_slot": 0}  # fmt: skip
        said = engine._post("/completion", body)
        ids = IDS + said["tokens"]
        tops = [{t["id"]: t["logprob"] for t in s["top_logprobs"]} for s in said["completion_probabilities"]]  # fmt: skip
        early = engine.evaluate(ids[: PROMPT + 20], 1)
        suffixes = {n: engine.evaluate(ids[-1 - n : -1], 1) for n in range(168, 178)}
        suffixes[0] = engine.evaluate(ids[:KEPT] + ids[KEPT + DROPPED : -1], 1)
    return path, ids, tops, early, suffixes


def test_it_is_not_a_cold_run_of_what_is_kept(shifted) -> None:
    _, ids, tops, early, suffixes = shifted
    before = gap(early.tops[0], {t: v for t, v in tops[20].items() if t in early.tops[0]})
    after = {n: gap(cold.tops[0], {t: v for t, v in tops[-1].items() if t in cold.tops[0]})
             for n, cold in suffixes.items()}  # fmt: skip
    print(f"\nbefore {before:.2g}, after {after[0]:.2g} from the kept tokens, {min(after.values()):.2g} at best")  # fmt: skip
    assert before < 1e-4 and min(after.values()) > 0.5
    assert all(cold.tokens[0] != ids[-1] for cold in suffixes.values())


def test_the_cause_is_that_what_is_kept_has_read_what_is_dropped(shifted) -> None:
    """The library's own cache, cut and turned back in the same place, gives llama.cpp's numbers; cut
    one token further it does not."""
    path, ids, tops, *_ = shifted
    gaps = continued(path, ids, tops, DROPPED)
    print(f"\nfrom a cache cut alike {max(gaps):.2g}")
    assert max(gaps) < 1e-4
    assert max(continued(path, ids, tops, DROPPED + 1)) > 0.01


@torch.no_grad()
def continued(path, ids, tops, dropped: int) -> list[float]:
    from transformers import AutoModelForCausalLM, DynamicCache

    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    cache, gaps, read = DynamicCache(config=model.config), [], ids[:PROMPT]
    for step, top in enumerate(tops):
        if cache.get_seq_length() == WINDOW - 1:
            for layer in cache.layers:
                tail = turned(layer.keys[:, :, KEPT + dropped :], -dropped)
                layer.keys = torch.cat([layer.keys[:, :, :KEPT], tail], 2)
                layer.values = torch.cat([layer.values[:, :, :KEPT], layer.values[:, :, KEPT + dropped :]], 2)  # fmt: skip
        place = cache.get_seq_length() + torch.arange(len(read))[None]
        out = model(torch.tensor([read]), past_key_values=cache, position_ids=place)
        gaps.append(gap(out.logits[0, -1].log_softmax(-1), top))
        read = [ids[PROMPT + step]]
    return gaps


def turned(key, by: int):
    """`key` `[..., head_dim]` as if it stood `by` positions later (RoPE, base 10000)."""
    half = key.shape[-1] // 2
    angle = by / 10000 ** (torch.arange(half).double() / half)
    cos, sin = (f(angle).repeat(2) for f in (torch.cos, torch.sin))
    return (key * cos + torch.cat([-key[..., half:], key[..., :half]], -1) * sin).float()
