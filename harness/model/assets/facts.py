"""What the tiny model's dialogues state: names, values, sentences, control tokens, the split.

Pure Python, nothing heavy. ``corpus`` re-exports what other rooms need.
"""

from __future__ import annotations

import random
import string
import zlib

BOS, EOS, PAD = "<bos>", "<eos>", "<pad>"
USER, ASSISTANT, SYSTEM, END = "<user>", "<assistant>", "<system>", "<end>"
CONTROL_TOKENS = (BOS, EOS, PAD, USER, ASSISTANT, SYSTEM, END)

_NAME_WORDS = """
alpha beta gamma delta omega code rank size total count pin tag key label
"""
_VALUE_WORDS = """
red blue green yellow purple silver apple lemon cherry pepper tiger zebra
copper marble velvet amber paris tokyo oslo cairo
"""
NAMES = (*string.ascii_lowercase, *_NAME_WORDS.split())
VALUES = (*(str(number) for number in range(100)), *_VALUE_WORDS.split())

HELD_OUT_ONE_IN = 8
"""One pair (name, value) in so many is held out."""
DEFINITION_WORDS = 5
"""Length of a defining sentence, full stop included."""

TELL = ("tell me a story .", "what happened next ?", "go on .")
SMALL_TALK = (("thank you .", "you are welcome ."), ("hello .", "hello ."))
SYSTEM_TEXTS = ("you are a careful assistant .", "keep every word in mind .")

Pair = tuple[str, str]


def is_held_out(name: str, value: str) -> bool:
    """Whether the pair belongs to the held-out dialogues (a fixed hash, no seed)."""
    return zlib.crc32(f"{name}={value}".encode()) % HELD_OUT_ONE_IN == 0


def pairs(rng: random.Random, count: int, held_out: bool) -> list[Pair]:
    """``count`` pairs (name, value) of one side of the split; no name and no value twice."""
    out: list[Pair] = []
    values: set[str] = set()
    for name in rng.sample(NAMES, count):
        fitting = [v for v in VALUES if v not in values and is_held_out(name, v) == held_out]
        value = rng.choice(fitting)
        values.add(value)
        out.append((name, value))
    return out


def define(name: str, value: str) -> str:
    """The defining sentence (5 words)."""
    return f"let {name} be {value} ."


def ask(name: str) -> str:
    """The question (4 words)."""
    return f"what is {name} ?"


def answer(name: str, value: str) -> str:
    """The answer: it names the name right before the value, as the definition does (4 words)."""
    return f"{name} is {value} ."
