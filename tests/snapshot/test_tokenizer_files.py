"""The tokenizer files of a snapshot are those that its element 10 describes, or it is not valid."""

import json
from dataclasses import replace

import pytest
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, CLIPTokenizer, GPT2Tokenizer, PreTrainedTokenizerFast

from harness.errors import SnapshotInvalid
from harness.model.build import SHIPPED
from harness.save import store
from harness.snapshot import tokenizer as stored
from harness.tokenizer.state import document, files


def shipped():
    return AutoTokenizer.from_pretrained(SHIPPED["tiny"])


def padded():
    tokenizer = shipped()
    tokenizer(["one .", "one two three ."], padding=True, truncation=True, max_length=4)
    return tokenizer


def unigram():
    """Numbers that change when they are read and written once more, and words that look like keys."""
    words = [("<unk>", 0.0)] + [(f'w"{i}\\": \n\u2028é', -i / 7.3) for i in range(3000)]
    rules = Tokenizer(models.Unigram(words, unk_id=0))
    return PreTrainedTokenizerFast(tokenizer_object=rules, unk_token="<unk>")


@pytest.mark.parametrize("make", [shipped, padded, unigram, CLIPTokenizer, GPT2Tokenizer])
def test_what_is_collected_is_what_is_described(make):
    tokenizer = make()
    tokenizer.add_tokens(["wörld"])
    described, collected = {"tokenizer": document(tokenizer)}, files(tokenizer)
    assert stored.faults(described, collected) == []
    other = json.loads(collected["tokenizer.json"])
    other["added_tokens"][-1]["content"] = "wirld"
    spoilt = json.dumps(other).encode()
    assert "other rules" in stored.faults(described, {"tokenizer.json": spoilt})[0]
    assert "is missing" in stored.faults(described, {})[0]


def test_rules_that_were_written_otherwise_are_the_same():
    tokenizer = shipped()
    described, collected = {"tokenizer": document(tokenizer)}, files(tokenizer)
    dense = json.dumps(json.loads(collected["tokenizer.json"]), indent=7).encode()
    assert stored.faults(described, {**collected, "tokenizer.json": dense}) == []
    for garbage in (b"", b"{", b"\xff", b'{"model": {"type": "no such"}}'):
        assert stored.faults(described, {"tokenizer.json": garbage})


TEMPLATE = "{% for turn in messages %}{{ turn.content }}{% endfor %}"


@pytest.mark.parametrize(
    "template", [None, TEMPLATE + "\r\né", {"default": TEMPLATE, "tool_use": "x"}]
)
def test_the_template_is_the_one_that_is_described(template, tmp_path):
    """Wherever the library keeps it and reads it from."""
    tokenizer = shipped()
    tokenizer.chat_template = template
    described, collected = {"tokenizer": document(tokenizer)}, files(tokenizer)
    assert stored.faults(described, collected) == []
    for name, data in collected.items():
        (tmp_path / name).write_bytes(data)
    assert AutoTokenizer.from_pretrained(tmp_path).chat_template == (
        template.replace("\r\n", "\n") if isinstance(template, str) else template
    )
    config = {**json.loads(collected["tokenizer_config.json"]), "chat_template": "said by another"}
    spoilt = {
        "chat_template.jinja": b"said by another",
        "tokenizer_config.json": json.dumps(config).encode(),
    }
    name = "chat_template.jinja" if isinstance(template, str) else "tokenizer_config.json"
    for edited in ({name: spoilt[name]}, {"chat_template.jinja": b"\xff"}):
        (fault,) = stored.faults(described, {**collected, **edited})
        assert "another chat template" in fault
    if isinstance(template, str):  # which overrides what the other file says
        other = {"tokenizer_config.json": spoilt["tokenizer_config.json"]}
        assert stored.faults(described, {**collected, **other}) == []


@pytest.mark.parametrize("edit", ["exchanged", "removed", "template"])
def test_a_snapshot_with_another_tokenizer_is_refused(captured, tmp_path, monkeypatch, edit):
    """Sealed by its own digests, as whoever saves an edited state would have it."""
    session, made = captured("steps=2")
    rules = json.loads(made.state.tokenizer_files["tokenizer.json"])
    words = rules["model"]["vocab"]
    words["5"], words["7"] = words["7"], words["5"]
    whole = dict(made.state.tokenizer_files)
    template = whole["chat_template.jinja"].replace(b"<end>", b"<user> agree to all <end>")
    assert template != whole["chat_template.jinja"]
    spoilt = {
        "exchanged": {"tokenizer.json": json.dumps(rules).encode()},
        "removed": {},
        "template": {**whole, "chat_template.jinja": template},
    }[edit]
    state = replace(made.state, tokenizer_files=spoilt)
    place = tmp_path / "s"
    with monkeypatch.context() as patch:  # whoever has another writer
        patch.setattr(stored, "faults", lambda documents, files: [])
        store.save(state, place, session.cfg.save)
        assert store.faults(place) == []
    assert store.faults(place)
    with pytest.raises(SnapshotInvalid, match="element 10 describes"):
        store.load(place)
    with pytest.raises(SnapshotInvalid, match="nothing was written"):
        store.save(state, tmp_path / "other", session.cfg.save)
