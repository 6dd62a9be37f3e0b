"""The tiny model's tokenizer: byte-level BPE, so that any text in any script round-trips."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from harness.model.assets import corpus, facts

VOCABULARY_SIZE = 1536
MAX_POSITIONS = 4096
TEMPLATE_PATH = Path(__file__).with_name("chat_template.jinja")


def _texts(seed: int) -> Iterator[str]:
    """What the merges are learned from: every word often enough to become one token."""
    rng = random.Random(seed)
    words = sorted(corpus.vocabulary() | set(facts.NAMES) | set(facts.VALUES))
    for opening in ("let", "what", "one", "then", "at", "it", "he", "she", "the", "in"):
        for _ in range(60):
            yield opening
    for text in (
        "ok .",
        *facts.TELL,
        *facts.SYSTEM_TEXTS,
        *(t for pair in facts.SMALL_TALK for t in pair),
    ):
        words += text.split()
    for _ in range(40):
        rng.shuffle(words)
        yield " " + " ".join(words)
    for _ in range(200):
        dialogue = corpus.recall_dialogue(rng, 64, 4, held_out=False)
        yield " " + dialogue.text + dialogue.answer


def build_tokenizer(seed: int) -> PreTrainedTokenizerFast:
    """Train the tokenizer; a default call puts ``<bos>`` first, ``add_special_tokens=False`` nothing."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        min_frequency=2,
        special_tokens=[
            AddedToken(t, normalized=False, special=True) for t in facts.CONTROL_TOKENS
        ],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(_texts(seed), trainer)
    bos_id = core.token_to_id(facts.BOS)
    core.post_processor = processors.TemplateProcessing(
        single=f"{facts.BOS} $A", pair=f"{facts.BOS} $A $B", special_tokens=[(facts.BOS, bos_id)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=facts.BOS,
        eos_token=facts.EOS,
        pad_token=facts.PAD,
        additional_special_tokens=[facts.USER, facts.ASSISTANT, facts.SYSTEM, facts.END],
        chat_template=TEMPLATE_PATH.read_text(encoding="utf-8").rstrip("\n"),
        clean_up_tokenization_spaces=False,
        model_max_length=MAX_POSITIONS,
        padding_side="right",
    )
