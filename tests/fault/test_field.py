"""The field's own bugs: every class has its fault, or a reason that is true."""

import pytest
import torch

from harness.config import conf_dir
from harness.errors import ConfigProblem
from harness.fault.field import CANNOT, KNOWN, coverage
from harness.fault.registry import every
from harness.model.loaded import Loaded

TRIED = {fault.field for fault in every().values()} - {""}


def test_every_class_is_tried_or_cannot_happen_here():
    assert not TRIED - set(KNOWN)
    assert not TRIED & set(CANNOT)
    assert set(KNOWN) == TRIED | set(CANNOT)


def test_a_fault_of_the_field_cites_its_reports():
    for name, fault in every().items():
        said = (conf_dir() / "fault" / f"{name}.yaml").read_text()
        assert ("# reported: " in said) == bool(fault.field), name


def test_the_line_counts_what_is_tried_and_says_what_is_not():
    line = coverage(TRIED - {"ring"})
    assert f"{len(TRIED) - 1} of 24" in line
    assert "ring buffer out of order after a trim (not tried)" in line
    assert "a state holds one model" in line


def test_weights_written_in_place_change_the_identity_that_was_remembered(session):
    loaded = session().loaded
    import copy

    other = Loaded(copy.deepcopy(loaded.model), loaded.tokenizer, loaded.source, 0.0)
    before = other.documents
    assert other.documents is before
    with torch.no_grad():
        next(other.model.parameters()).mul_(1.01)
    assert other.documents != before


def test_a_fault_of_recurrent_state_wants_a_model_that_has_some(captured):
    _, plain = captured()
    with pytest.raises(ConfigProblem, match="model=tiny_hybrid"):
        every()["recurrent_behind"].fits(plain.state)


def test_the_bit_and_the_seed_are_what_the_settings_say(compose):
    from harness.fault.registry import fault_named

    assert fault_named(compose("fault=bit_flip", "fault.bit=3").fault).bit == 3
    assert fault_named(compose("fault=mlp_tuned", "fault.seed=4").fault).seed == 4
    with pytest.raises(ConfigProblem, match="0 to 15"):
        fault_named(compose("fault=bit_flip", "fault.bit=16").fault)
