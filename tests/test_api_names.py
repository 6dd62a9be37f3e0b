"""The Python API in an editor: its names, and its words beside those of the shell."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import harness
from harness.variants import OPEN


def test_names_collide_with_no_room() -> None:
    import harness.capture
    import harness.compare
    import harness.save

    rooms = {p.stem for p in Path(harness.__file__).parent.iterdir()}
    assert not rooms & set(harness.__all__)
    assert all(callable(getattr(harness, name)) for name in harness.__all__)
    assert not any(callable(room) for room in (harness.capture, harness.compare, harness.save))
    with pytest.raises(AttributeError):
        _ = harness.nothing


SEEDED = """
import random
random.seed(7)
import harness
harness.judge
drawn = random.random()
random.seed(7)
print(drawn == random.random())
"""


def test_the_caller_s_random_numbers_are_theirs() -> None:
    """A package that is imported with the functions draws one as it is."""
    done = subprocess.run([sys.executable, "-c", SEEDED], capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr


def test_what_is_there_for_people_is_there_for_editors() -> None:
    import ast
    import importlib

    assert (Path(harness.__file__).parent / "py.typed").is_file()
    for name in ("harness", *(f"harness.{g}" for g in OPEN if g != "engine")):
        package = importlib.import_module(name)
        tree = ast.parse(Path(package.__file__).read_text())
        typed = next(node for node in tree.body if isinstance(node, ast.If))
        names = [alias.name for part in typed.body for alias in part.names]
        assert sorted(names) == sorted(package.__all__), name
        assert all(getattr(package, name) is not None for name in names)


def test_help_names_every_function_before_the_classes() -> None:
    listed = (harness.__doc__ or "").partition("all of them:")[2]
    assert {name for name in harness.__all__ if name.islower()} <= set(re.findall(r"\w+", listed))
