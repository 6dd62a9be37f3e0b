"""A few hundred of the attacks of `make fuzz`, and proof that a miss would be counted."""

import pickle
from pathlib import Path

import fuzz
import pytest
from store_states import make_state, settings

from harness.save import store


def test_a_few_hundred_attacks_are_all_caught():
    jobs = [job for job in fuzz.every(5, 30, 0) if job[0] in ("snapshots", "edits")]
    found = [fuzz.work(job) for job in jobs]
    assert [lost for _, lost in found if lost] == []
    assert sum(sum(tried.values()) for tried, _ in found) >= 5 * 2 * len(fuzz.LANES) + 80


def loads(folder):
    return store.load(folder)[0]


@pytest.fixture
def place(tmp_path):
    store.save(make_state(**fuzz.SMALL), tmp_path / "s", settings())
    loads(tmp_path / "s")  # imports what it needs
    return tmp_path / "s"


@pytest.mark.parametrize(
    "read, said",
    [
        (loads, "believed"),  # nothing was damaged at all
        (lambda f: 1 / 0, "ZeroDivisionError"),
        (lambda f: pickle.loads(pickle.dumps(Path("x"))), "it did pickle.find_class"),
        (lambda f: (f / "more").write_text("x"), "it did open"),
    ],
)
def test_a_miss_is_counted(place, read, said):
    """The twin: a table that counts only catches would say nothing."""
    wrong = fuzz.missed(read, place)
    assert said in wrong
    tried, lost = fuzz.count([("sound", "nothing", wrong)])
    assert lost and "| sound, nothing | 1 | 0 |" in fuzz.table(tried, lost)


def test_another_state_is_no_harmless_answer(place):
    assert fuzz.missed(loads, place, make_state(**fuzz.SMALL)) is None
    assert "another state" in fuzz.missed(loads, place, make_state(seed=5, **fuzz.SMALL))
