"""The README stays true: its commands run, its groups exist, its Makefile targets are there."""

import re
import shlex
from pathlib import Path

import pytest

from harness import config
from harness.cli import help

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", TEXT, flags=re.S)
LINES = [line.split("  #")[0].strip() for block in BLOCKS for line in block.splitlines()]
COMMANDS = [line for line in LINES if line.startswith("python -m harness")]
LONG = ("experiment=", "task=faults", "submitit_slurm")  # minutes each, or a cluster
ENDLESS = {"task=ui": "task.seconds=0.1"}  # waits for Ctrl-C: here it opens its page and ends
QUICK = [line for line in COMMANDS if not any(word in line for word in LONG)]


def recipes() -> list[list[str]]:
    """Each block's commands in order, since later lines use what earlier ones wrote."""
    found = []
    for block in BLOCKS:
        lines = [line.split("  #")[0].strip() for line in block.splitlines()]
        commands = [line for line in lines if line in QUICK]
        if commands:
            found.append(commands)
    return found


@pytest.mark.parametrize("commands", recipes(), ids=lambda c: c[0][18:60])
def test_every_recipe_works_as_written(harness, place, commands) -> None:
    (place / "harness").symlink_to(ROOT / "harness")
    (place / "runs").mkdir()
    (place / "runs" / "reference").symlink_to(ROOT / "runs" / "reference")
    for command in commands:
        given = shlex.split(command)[3:]
        done = harness(*given, *(end for task, end in ENDLESS.items() if task in given))
        assert done.code == 0, f"{command}\n{done.out}"


def test_the_key_that_makes_what_a_resume_writes_stand_alone_does(harness, place) -> None:
    """It is named in the text, beside the command."""
    (key,) = re.findall(r"needs the first beside it \(`(\S+)`: it does not\)", TEXT)
    assert harness("task=save", "text=let k be 5 .", "out=a").code == 0
    resumed = ("task=resume", "snapshot=a", "text= what is k ?", "steps=4")
    for out, given, code in (("b", (), 3), ("c", (key,), 0)):
        done = harness(*resumed, f"out={out}", *given)
        assert done.code == 0, done.out
        (place / "a").rename(place / "runs" / "a")  # no longer beside it
        assert harness("task=verify", f"snapshot={out}").code == code
        (place / "runs" / "a").rename(place / "a")


@pytest.mark.parametrize("line", [c for c in COMMANDS if c not in QUICK])
def test_long_commands_at_least_compose(line, compose) -> None:
    words = shlex.split(line)[3:]
    if "-m" in words:  # a sweep's first point
        words = [w.split(",")[0] for w in words if w != "-m"]
    compose(*words)


@pytest.mark.slow
@pytest.mark.parametrize("line", [c for c in COMMANDS if c not in QUICK])
def test_long_commands_work_too(process, line) -> None:
    """A cluster's jobs run on this machine."""
    words = shlex.split(line.replace("submitit_slurm", "submitit_local"))[3:]
    done = process(*[w for w in words if "launcher.partition" not in w], "track=none")
    assert done.code == 0, done.out


def test_the_readme_stays_readable() -> None:
    assert len(TEXT.splitlines()) <= 220
    for path in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert path.startswith("http") or (ROOT / path).exists(), path


def test_make_targets_exist() -> None:
    rules = (ROOT / "Makefile").read_text()
    for target in {
        word for line in LINES if line.startswith("make ") for word in line.split()[1:2]
    }:
        assert re.search(rf"^{target}:", rules, flags=re.M), target


def test_the_table_of_groups_is_complete() -> None:
    section = TEXT.split("## Groups")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| (.*) \|$", section, flags=re.M))
    assert set(rows) == set(help.GROUPS) - {"experiment"}
    for group, cell in rows.items():
        if group != "fault":
            assert set(re.findall(r"`(\w+)`", cell)) == set(config.options(group)), group


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", TEXT, flags=re.S))
def test_the_python_example_runs(place, code, capsys) -> None:
    (place / "harness").symlink_to(ROOT / "harness")
    exec(compile(code, "README.md", "exec"), {"__name__": "example"})
    assert "k is 5" in capsys.readouterr().out


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("harness/*/README.md")), ids=lambda p: p.parent.name
)
def test_the_page_of_every_room_is_linked(page) -> None:
    house = (ROOT / "harness" / "README.md").read_text("utf-8")
    linked = (
        f"]({page.relative_to(ROOT)}" in TEXT or f"]({page.relative_to(ROOT / 'harness')}" in house
    )
    assert linked, f"neither README.md nor harness/README.md links {page.relative_to(ROOT)}"
