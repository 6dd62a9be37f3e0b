"""The identity of a tokenizer: its rules, not how it was called last."""

import pytest
from transformers import AutoTokenizer

from harness.fault import edit
from harness.model.build import SHIPPED
from harness.tokenizer import state


@pytest.fixture
def tokenizer():
    return AutoTokenizer.from_pretrained(SHIPPED["tiny"])


def test_padding_and_truncating_a_batch_changes_no_identity(tokenizer) -> None:
    before = state.document(tokenizer)
    tokenizer(["one .", "one two three ."], padding=True, truncation=True, max_length=4)
    backend = tokenizer.backend_tokenizer
    assert backend.padding and backend.truncation
    assert state._rules(tokenizer) and backend.padding  # reading it leaves the tokenizer as it is
    assert state.document(tokenizer) == before


def test_a_rule_that_changes_does(tokenizer) -> None:
    before = state.document(tokenizer)["rules"]
    tokenizer(["one .", "one two three ."], padding=True)
    edit.rules(tokenizer, lambda rules: rules["model"]["merges"].reverse())
    assert state.document(tokenizer)["rules"] != before
