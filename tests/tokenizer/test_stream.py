"""Text that comes token by token is the text of all tokens, whatever kind of tokenizer made them."""

import random

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from harness.api import load_model
from harness.tokenizer.policy import decode
from harness.tokenizer.stream import Stream

BYTES = {f"<0x{b:02X}>": b + 1 for b in range(256)}
WORDS = ("▁", "▁▁", "▁the", "the", "ing", "▁ﬀ", "é", "漢", ".", "▁,", "\ufffd", "\n")


def tiny():
    return load_model("tiny").tokenizer


def sentencepiece():
    """As a Llama's: words with their space, byte tokens for everything else."""
    vocabulary = {"<unk>": 0, **BYTES} | {w: 257 + i for i, w in enumerate(WORDS)}
    made = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )  # fmt: skip
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")


def metaspace():
    vocabulary = [(w, -float(i)) for i, w in enumerate(("<unk>", *WORDS))]
    made = Tokenizer(models.Unigram(vocabulary, unk_id=0))
    made.decoder = decoders.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")


def wordpiece():
    vocabulary = {w: i for i, w in enumerate(("[UNK]", "do", "##n", "'", "t", "##ing", ".", "é"))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]")


KINDS = [tiny, sentencepiece, metaspace, wordpiece]


def streamed(tokenizer, ids):
    stream = Stream(tokenizer)
    pieces = [stream.add(token) for token in ids]
    return [*pieces, stream.rest()], stream.text


@pytest.mark.parametrize("kind", KINDS)
def test_the_pieces_joined_are_the_whole_text(kind) -> None:
    tokenizer, rng = kind(), random.Random(7)
    for _ in range(300):
        ids = [rng.randrange(len(tokenizer)) for _ in range(rng.randrange(1, 24))]
        pieces, text = streamed(tokenizer, ids)
        assert "".join(pieces) == text == decode(tokenizer, ids), ids


@pytest.mark.parametrize(
    "text", ["naïve café", "emoji 🙂👩‍🚀 done", "日本語 и русский", " \ufffd odd"]
)
def test_no_half_character_is_ever_said(text) -> None:
    tokenizer = tiny()
    pieces, said = streamed(tokenizer, tokenizer(text, add_special_tokens=False)["input_ids"])
    assert said == text
    assert not any("\ufffd" in piece for piece in pieces if "\ufffd" not in text)


def test_a_run_of_byte_tokens_is_said_when_it_is_over() -> None:
    """The decoder takes back a whole run when its last bytes are no character: nothing of it may
    have been said before."""
    tokenizer = sentencepiece()
    euro = [BYTES[f"<0x{b:02X}>"] for b in "€".encode()]
    assert streamed(tokenizer, [*euro, 259])[0] == ["", "", "", "€ the", ""]
    broken = [*euro, BYTES["<0xE2>"]]
    assert streamed(tokenizer, broken)[1] == decode(tokenizer, broken) == "\ufffd" * 4


def test_a_token_costs_the_same_however_many_came_before(monkeypatch) -> None:
    tokenizer = tiny()
    stream, decoded = Stream(tokenizer), []
    whole = type(tokenizer).decode

    def counted(self, ids, **options):
        decoded.append(len(ids))
        return whole(self, ids, **options)

    monkeypatch.setattr(type(tokenizer), "decode", counted)
    ids = tokenizer("the bird sang . " * 200, add_special_tokens=False)["input_ids"]
    counts = []
    for token in ids:
        before = sum(decoded)
        stream.add(token)
        counts.append(sum(decoded) - before)
    assert max(decoded) <= 4 and set(counts[1:]) == {counts[1]}
