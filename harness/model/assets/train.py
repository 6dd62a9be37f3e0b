"""The seeded recipe of the tiny model: tokenizer, curriculum, ``save_pretrained``.

``python -m harness.model.assets.train [--out DIR] [--seed N] [--threads N] [--scale F]``
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from harness.model.assets import facts
from harness.model.assets.curriculum import CURRICULUM, Document, Stage, shortened
from harness.model.assets.recall import measure_recall, overall
from harness.model.assets.sink import sink_losses
from harness.model.assets.vocab import MAX_POSITIONS, build_tokenizer

TINY_DIR = Path(__file__).with_name("tiny")
SEED = 20
PEAK_RATE = 1e-3
FINAL_RATE = 5e-5
WARMUP_STEPS = 50
COOLDOWN = 0.3
"""Share of the last stage in which the learning rate falls from the peak to the final one."""


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    """A fresh Llama of about a million parameters: 2 layers, width 128, 4 query and 2 KV heads."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=MAX_POSITIONS,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=False,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=[tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(facts.END)],
        pad_token_id=tokenizer.pad_token_id,
        do_sample=False,
    )
    return model


class Encoder:
    """Turns documents into rows of token ids, remembering the ids of every word."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer
        self.known: dict[str, list[int]] = {}

    def word(self, word: str) -> list[int]:
        """Token ids of one word with its leading space, or of one control token."""
        if word not in self.known:
            self.known[word] = self.tokenizer.encode(word, add_special_tokens=False)
        return self.known[word]

    def row(self, document: Document, tokens: int) -> tuple[list[int], list[int]]:
        """Ids and marks of ``tokens`` tokens: ``<bos>``, the document cut to fit, padding.

        A mark is 0 for padding, 1 for a token to predict, 2 for a token of an answer.
        """
        ids, marks = [self.tokenizer.bos_token_id], [0]
        for word, is_answer in document:
            for token in self.word(word):
                ids.append(token)
                marks.append(2 if is_answer else 1)
        missing = tokens - len(ids)
        ids += [self.tokenizer.pad_token_id] * missing
        marks += [0] * missing
        return ids[:tokens], marks[:tokens]


def positions(rng: random.Random, rows: int, tokens: int, gaps: bool) -> torch.Tensor:
    """Positions (rows, tokens); with ``gaps`` half of the rows jump ahead at one place.

    A jump right after ``<bos>`` or anywhere later shows the model distances it is not trained on
    otherwise, up to its last position, at no cost in length.
    """
    out = torch.arange(tokens).repeat(rows, 1)
    for row in range(rows):
        if gaps and rng.random() < 0.5:
            cut = 1 if rng.random() < 0.5 else rng.randrange(1, tokens)
            out[row, cut:] += rng.randrange(MAX_POSITIONS - tokens)
    return out


def learning_rate(step: int, stages: Sequence[Stage]) -> float:
    """Warm up, stay, and fall along a cosine at the end of the last stage."""
    total = sum(stage.steps for stage in stages)
    fall = max(1, round(stages[-1].steps * COOLDOWN))
    if step < WARMUP_STEPS:
        return PEAK_RATE * (step + 1) / WARMUP_STEPS
    progress = max(0.0, (step - (total - fall)) / fall)
    return FINAL_RATE + (PEAK_RATE - FINAL_RATE) * 0.5 * (1 + math.cos(math.pi * progress))


def step_loss(
    model: LlamaForCausalLM,
    ids: torch.Tensor,
    marks: torch.Tensor,
    where: torch.Tensor,
    stage: Stage,
) -> tuple[torch.Tensor, float, float]:
    """The loss to minimise, and the mean losses over answer tokens and over all tokens.

    ``ids``, ``marks`` and ``where`` (positions) are (rows, tokens).
    """
    with sink_losses(model) if stage.sink_weight else nullcontext([]) as sinks:
        logits = model(
            input_ids=ids,
            # All ones, and said so: without a mask a jump in the positions means "a new document".
            attention_mask=torch.ones_like(ids),
            position_ids=where,
            use_cache=False,
        ).logits
    targets, kind = ids[:, 1:].reshape(-1), marks[:, 1:].reshape(-1)
    each = cross_entropy(logits[:, :-1].reshape(targets.numel(), -1), targets, reduction="none")
    answer = each[kind == 2].mean() if bool((kind == 2).any()) else each.sum() * 0
    everything = each[kind > 0].mean()
    loss = answer + stage.prose_weight * everything
    if sinks:
        loss = loss + stage.sink_weight * torch.stack(sinks).mean()
    return loss, answer.item(), everything.item()


def train(
    tokenizer: PreTrainedTokenizerFast,
    stages: Sequence[Stage] = CURRICULUM,
    seed: int = SEED,
    report_every: int = 50,
) -> LlamaForCausalLM:
    """Run the curriculum and return the model in evaluation mode."""
    rng = random.Random(seed)
    model = build_model(tokenizer, seed)
    model.train()
    encoder = Encoder(tokenizer)
    decay = [p for p in model.parameters() if p.ndim == 2]
    plain = [p for p in model.parameters() if p.ndim != 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}],
        lr=PEAK_RATE,
        betas=(0.9, 0.98),
    )
    started, step = time.monotonic(), 0
    for stage in stages:
        for at in range(stage.steps):
            batch = [
                encoder.row(
                    stage.kinds[row % len(stage.kinds)](
                        rng, rng.randint(stage.tokens * 3 // 4, stage.tokens - 1)
                    ),
                    stage.tokens,
                )
                for row in range(stage.rows)
            ]
            ids = torch.tensor([row[0] for row in batch])
            marks = torch.tensor([row[1] for row in batch])
            where = positions(rng, stage.rows, stage.tokens, stage.gaps)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, stages)
            loss, answer, everything = step_loss(model, ids, marks, where, stage)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % report_every == 0 or at == stage.steps - 1:
                seconds = time.monotonic() - started
                print(
                    f"{stage.name:10s} step {step:5d}  answers {answer:6.3f}  all tokens "
                    f"{everything:6.3f}  {seconds:6.1f} s",
                    flush=True,
                )
        if stage.tokens > 64:
            model.eval()
            rows = measure_recall(model, tokenizer, dialogues=36, seed=seed + 1)
            print(f"{stage.name:10s} held-out recall {overall(rows):.3f}", flush=True)
            model.train()
    return model.eval()


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of the recipe."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=TINY_DIR, help="directory to write")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the steps to run")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    stages = CURRICULUM if args.scale == 1.0 else shortened(CURRICULUM, args.scale)
    tokenizer = build_tokenizer(args.seed)
    model = train(tokenizer, stages, args.seed)
    args.out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    for path in args.out.iterdir():
        path.chmod(0o644)
    size = sum(path.stat().st_size for path in args.out.iterdir())
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {size / 1e6:.2f} MB written")


if __name__ == "__main__":
    main()
