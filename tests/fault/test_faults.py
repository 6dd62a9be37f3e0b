"""One table row per fault: what it damages and the least that has to notice."""

from pathlib import Path

import pytest

from harness.config import FaultConfig, conf_dir
from harness.errors import ConfigProblem
from harness.fault.base import Fault
from harness.fault.registry import every, fault_named
from harness.snapshot.elements import ELEMENTS


def test_every_fault_has_its_file_its_yaml_and_at_most_thirty_lines():
    known = every()
    options = {p.stem for p in (conf_dir() / "fault").glob("*.yaml")}
    assert options == set(known)
    here = Path(__file__).parents[2] / "harness" / "fault"
    rooms = {"base", "registry", "edit", "field", "__init__"}
    files = [p for p in here.glob("*.py") if p.stem not in rooms]
    assert {p.name: n for p in files if (n := len(p.read_text().splitlines())) > 30} == {}


def test_three_or_more_per_element_and_forty_five_in_all():
    counts = {e.number: 0 for e in ELEMENTS}
    for name, fault in every().items():
        if name != "none" and not name.startswith("bit_flip"):
            counts[fault.element] += 1
    assert min(counts.values()) >= 3
    assert sum(counts.values()) >= 45


def test_an_unknown_fault_is_named_with_a_suggestion():
    with pytest.raises(ConfigProblem, match="layer_swap"):
        fault_named(FaultConfig("layer_swop"))


def test_what_a_fault_declares_is_known():
    class Mine(Fault, element=3, bed="padded"):
        pass

    assert (Mine.element, Mine.bed, Mine().expected) == (3, "padded", "position")
    with pytest.raises(TypeError, match="colour"):

        class Odd(Fault, colour="red"):
            pass
