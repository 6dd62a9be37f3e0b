"""Exact-answer recall and perplexity of the tiny model on held-out dialogues and prose.

``python -m harness.model.assets.recall [--dir DIR] [--n 200] [--shift P] [--json]``
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from harness.model.assets import corpus, facts

TINY_DIR = Path(__file__).with_name("tiny")
DISTANCES = (16, 32, 64, 128, 192, 256)
DEFINITIONS = (2, 3, 4, 5, 6)
FORMS = ("plain", "chat")
SINKS = 4
WINDOW = 64

Row = dict[str, Any]


def held_out_dialogues(
    form: str, distance: int, count: int, seed: int, definitions: Sequence[int] = DEFINITIONS
) -> list[corpus.RecallDialogue]:
    """``count`` held-out dialogues of one form and distance, numbers of definitions in turn."""
    rng = random.Random(f"{seed}/{form}/{distance}")
    make = corpus.recall_dialogue if form == "plain" else corpus.recall_chat
    return [make(rng, distance, definitions[i % len(definitions)]) for i in range(count)]


@torch.inference_mode()
def exact_answers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dialogues: Sequence[corpus.RecallDialogue],
    shift: int = 0,
    batch: int = 20,
) -> list[bool]:
    """For each dialogue, whether greedy decoding says exactly its answer.

    One pass over prompt and answer decides it: greedy decoding gives the answer if and only if
    every token of the answer is the most likely one after the true tokens before it. ``shift``
    is added to every position.
    """
    out: list[bool] = []
    for start in range(0, len(dialogues), batch):
        rows, spans = [], []
        for dialogue in dialogues[start : start + batch]:
            head = "" if dialogue.turns else facts.BOS
            prompt = tokenizer(head + dialogue.text, add_special_tokens=False)["input_ids"]
            said = tokenizer(dialogue.answer, add_special_tokens=False)["input_ids"]
            rows.append(torch.tensor(prompt + said))
            spans.append((len(prompt), len(prompt) + len(said)))
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        where = (torch.arange(ids.shape[1]) + shift).expand_as(ids)
        best = model(
            input_ids=ids, attention_mask=torch.ones_like(ids), position_ids=where, use_cache=False
        ).logits.argmax(-1)
        for row, (begin, end) in enumerate(spans):
            out.append(bool((best[row, begin - 1 : end - 1] == ids[row, begin:end]).all()))
    return out


def measure_recall(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dialogues: int = 200,
    forms: Sequence[str] = FORMS,
    distances: Sequence[int] = DISTANCES,
    definitions: Sequence[int] = DEFINITIONS,
    shift: int = 0,
    seed: int = 1000,
) -> list[Row]:
    """Recall by form, distance and number of definitions.

    Parameters
    ----------
    dialogues:
        Held-out dialogues per form, spread evenly over the distances.
    distances:
        Tokens between definition and question.
    definitions:
        Numbers of definitions per dialogue, taken in turn.
    shift:
        Added to every position (2000 asks whether recall depends on absolute positions).

    Returns
    -------
    One row per form, distance and number of definitions: ``form``, ``distance``, ``definitions``,
    ``right`` and ``asked`` (counts).
    """
    rows: list[Row] = []
    each = -(-dialogues // len(distances))
    for form in forms:
        for distance in distances:
            questions = held_out_dialogues(form, distance, each, seed, definitions)
            right = exact_answers(model, tokenizer, questions, shift)
            for number in definitions:
                hits = [
                    r for d, r in zip(questions, right, strict=True) if len(d.definitions) == number
                ]
                if hits:
                    rows.append(
                        {
                            "form": form,
                            "distance": distance,
                            "definitions": number,
                            "right": sum(hits),
                            "asked": len(hits),
                        }
                    )
    return rows


@torch.inference_mode()
def long_chat_answers(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    chats: int = 10,
    turns: int = 40,
    seed: int = 3000,
) -> tuple[int, int, int]:
    """Right answers, questions, and mean length in tokens of held-out chats of ``turns`` turns.

    Every question of a chat counts; an answer is right if each of its tokens, and the ``<end>``
    after it, is the most likely one.
    """
    right = questions = length = 0
    for index in range(chats):
        messages = corpus.chat_turns(random.Random(f"{seed}/{index}"), turns)
        ids = tokenizer.apply_chat_template(messages, return_tensors="pt", return_dict=True)
        best = model(**ids, use_cache=False).logits[0].argmax(-1)
        row = ids["input_ids"][0]
        length += len(row)
        for at, message in enumerate(messages):
            if message["content"].startswith("what is "):
                before = corpus.render_chat(messages[: at + 1], add_generation_prompt=True)
                until = corpus.render_chat(messages[: at + 2])
                begin, end = (
                    len(tokenizer.encode(text, add_special_tokens=False))
                    for text in (before, until)
                )
                questions += 1
                right += bool((best[begin - 1 : end - 1] == row[begin:end]).all())
    return right, questions, round(length / chats)


def overall(rows: Sequence[Row], **where: Any) -> float:
    """Share of right answers over the rows whose fields equal ``where`` (0 to 1)."""
    chosen = [row for row in rows if all(row[key] == value for key, value in where.items())]
    return sum(row["right"] for row in chosen) / max(1, sum(row["asked"] for row in chosen))


def window_mask(tokens: int, window: int | None, sinks: int, first: int = 0) -> torch.Tensor:
    """What each token may attend to, (1, 1, tokens, tokens), True = visible.

    The last ``window`` tokens (all when None) and the first ``sinks`` ones; with ``first`` the
    first ``first`` tokens are hidden from all others.
    """
    query, key = torch.arange(tokens)[:, None], torch.arange(tokens)[None, :]
    near = key >= first if window is None else (query - key < window) & (key >= first)
    visible = (key <= query) & (near | (key < sinks) | (key == query))
    return visible[None, None]


@torch.inference_mode()
def prose_perplexity(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    mask: torch.Tensor,
    texts: int = 8,
    seed: int = 2000,
    skip: int = WINDOW + SINKS,
) -> float:
    """Perplexity per token on held-out prose under a visibility mask (see ``window_mask``).

    The texts are as long as the mask, start with ``<bos>``, and count from token ``skip`` on.
    """
    tokens = mask.shape[-1]
    losses = []
    for index in range(texts):
        text = facts.BOS + corpus.prose(random.Random(f"{seed}/{index}"), tokens // 4)
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"][
            :, :tokens
        ]
        bias = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
        logits = model(input_ids=ids, attention_mask=bias, use_cache=False).logits
        losses.append(cross_entropy(logits[0, skip:-1], ids[0, skip + 1 :]))
    return math.exp(torch.stack(losses).mean().item())


def measure_perplexity(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, tokens: int = 512
) -> dict[str, float]:
    """Prose perplexity with everything visible, without the first tokens, and through windows."""
    masks = {
        "full": window_mask(tokens, None, 0),
        f"full without the first {SINKS}": window_mask(tokens, None, 0, SINKS),
        f"window {WINDOW} + first {SINKS}": window_mask(tokens, WINDOW, SINKS),
        f"window {WINDOW} + first 1": window_mask(tokens, WINDOW, 1),
        f"window {WINDOW}": window_mask(tokens, WINDOW, 0),
    }
    return {name: prose_perplexity(model, tokenizer, mask) for name, mask in masks.items()}


def table(rows: Sequence[Row]) -> str:
    """The rows as two Markdown tables: by distance, and by number of definitions."""
    lines = []
    for field, label in (("distance", "tokens back"), ("definitions", "definitions")):
        groups = sorted({row[field] for row in rows})
        lines.append(f"| {label} | " + " | ".join(str(g) for g in groups) + " | all |")
        lines.append("|---" * (len(groups) + 2) + "|")
        for form in sorted({row["form"] for row in rows}, reverse=True):
            cells = [f"{overall(rows, form=form, **{field: g}):.3f}" for g in groups]
            lines.append(
                f"| {form} | " + " | ".join(cells) + f" | {overall(rows, form=form):.3f} |"
            )
        lines.append("")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=TINY_DIR, help="model directory")
    parser.add_argument("--n", type=int, default=200, help="dialogues per form and distance")
    parser.add_argument("--shift", type=int, default=0, help="added to every position")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON instead")
    args = parser.parse_args(argv)
    torch.set_num_threads(2)
    model = AutoModelForCausalLM.from_pretrained(args.dir).eval()
    tokenizer = AutoTokenizer.from_pretrained(args.dir)
    rows = measure_recall(model, tokenizer, args.n * len(DISTANCES), shift=args.shift)
    perplexity = measure_perplexity(model, tokenizer)
    if args.json:
        print(json.dumps({"recall": rows, "perplexity": perplexity}))
        return
    print(table(rows))
    right, questions, length = long_chat_answers(model, tokenizer)
    print(f"chats of 40 turns, {length} tokens on average: {right} of {questions} questions right")
    for name, value in perplexity.items():
        print(f"prose perplexity, {name}: {value:.2f}")


if __name__ == "__main__":
    main()
