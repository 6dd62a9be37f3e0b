"""A user's own folder beside the run, and a clean slate after it."""

import shutil
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent / "examples"


@pytest.fixture
def clean(monkeypatch):
    """What a test imports from outside, and where from, is forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("my_", "every_other")):
            del sys.modules[name]


@pytest.fixture
def examples(place, clean):
    """The worked examples of EXTENDING.md, copied to a folder of the user's own."""
    shutil.copytree(EXAMPLES, place / "mine", ignore=shutil.ignore_patterns("__pycache__"))
    return place


MINE = ("--config-dir", "mine/conf", "plugins.path=mine", "steps=4")
