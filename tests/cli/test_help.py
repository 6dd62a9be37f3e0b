"""`task=NAME --help`: fits a screen, and its example runs as written."""

import re
import shlex
from pathlib import Path

import pytest

from harness import config, variants
from harness.cli import help
from harness.errors import ConfigProblem

CONF = config.conf_dir()
TASKS = config.options("task")
SERVES = {"ui"}  # goes on until it is stopped; the browser tests start it

# what makes a long example short enough to run here: the same command, smaller
SMALLER = {
    "bench": "task.contexts=[64] task.branch_contexts=[64] task.runs=3 task.branches=[2] "
    "model.config.num_hidden_layers=1",
    "claims": "task.only=[isolation]",
    "format_bench": "task.tokens=64 task.repeats=1",
    "architectures": "task.families=[llama]",
}
LONG = (
    "faults",
    "format_bench",
    "bench",
    "audit",
    "evaluate",
)  # 10 to 30 s each; they have tests of their own


@pytest.mark.parametrize("name", TASKS)
def test_it_fits_a_screen(name) -> None:
    lines = help.show(CONF, [f"task={name}", "--help"]).splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 100
    examples = [line for line in lines if "example: python -m harness" in line]
    assert examples and not any(re.search(r" [^' ]*\[", line) for line in examples)  # zsh globs it


@pytest.mark.parametrize(
    "name",
    [pytest.param(t, marks=[pytest.mark.slow] * (t in LONG)) for t in TASKS if t not in SERVES],
)
def test_its_examples_run(harness, place: Path, name) -> None:
    text = help.show(CONF, [f"task={name}", "--help"])
    if name != "save":  # whose own first example writes it
        assert harness("task=save", "text=let k be 5 . the bird sang .", "out=DIR").code == 0
    if "run=runs" in text:
        (run,) = place.glob("runs/save/*")
        text = re.sub(r"run=runs/\S+", f"run={run}", text)
    for example in re.findall(r"example: python -m harness (.*)", text):
        given = [*shlex.split(example), *shlex.split(SMALLER.get(name, ""))]
        done = harness(*given)
        assert done.code == 0, f"{example}\n{done.out}"


@pytest.mark.parametrize("group", help.GROUPS)
def test_a_group_and_each_of_its_options_are_explained(group) -> None:
    """The twin: the general page, which names no key of an option."""
    general = help.show(CONF, ["--help"])
    page = help.show(CONF, [group, "--help"])
    for option in config.options(group):
        told = help.show(CONF, [f"{group}={option}", "--help"])
        own = set(variants.signature(group, option)) - {"name", "reads", "_target_", "defaults"}
        if group not in ("task", "experiment"):
            assert all(f"\n  {key}:" in told for key in own), told
        assert told != general and re.search(rf"^  {option}\*? ", page, re.MULTILINE)
        lines = f"{told}\n{page}".splitlines()
        lines = [line for line in lines if not line.startswith("    ") and "example: " not in line]
        assert max(map(len, lines)) <= 100, told
    assert all(line not in general for line in page.splitlines()[2:3])


def test_an_option_that_is_not_there_has_no_help() -> None:
    with pytest.raises(ConfigProblem, match="Did you mean 'static'"):
        help.show(CONF, ["cache=statc", "--help"])


def test_every_key_that_a_task_reads_has_a_word_in_its_help() -> None:
    for name in TASKS:
        told = help.show(CONF, [f"task={name}", "--help"]).split("common keys:")[1]
        spoken = {given: said for said, given in help.SPOKEN.items()}
        for key in help.signature("task", name).get("reads") or []:
            assert f"{spoken.get(key, key)}=" in told, (name, key)


def test_who_writes_a_snapshot_is_told_how_it_needs_no_other() -> None:
    told = {name: help.show(CONF, [f"task={name}", "--help"]) for name in TASKS}
    assert {name for name, said in told.items() if "save.compact=true" in said} == {
        "chat", "loop", "prune", "resume", "ui"
    }  # fmt: skip
    assert "compact=true" in told["save"]


@pytest.mark.parametrize("typed, told", [
    ("restore", "  map: null             # map tensors from their files; null: where nobody else can write"),
    ("restore.map", "  map: null             # map tensors from their files; null: where nobody else can write"),
    ("steps", "steps: 32               # tokens to continue"),
])  # fmt: skip
def test_common_keys_have_help_too(harness, typed: str, told: str) -> None:
    done = harness(typed, "--help")
    assert done.code == 0 and told in done.out.splitlines(), done.out
    assert harness("restore.nope", "--help").code == 2 and harness("stepz", "--help").code == 2


@pytest.mark.parametrize("typed, told", [
    (["prune.window"], "of prune=snapkv:\n\n  window: 8    # queries that vote"),
    (["cache=static", "cache.compile"], "  compile: false   # the forward through torch.compile"),
    (["save.compact"], "of every option:\n\n  compact: false     # refer to no other snapshot"),
    (["task.port"], "of task=ui:\n\n  port: 0"),
    (["model=tiny_gpt2", "model.config.n_head"], "config: {n_layer: 3"),
    (["seed"], "# of the sampler"),
])  # fmt: skip
def test_a_key_of_a_group_has_help_as_its_option_has_it(typed: list[str], told: str) -> None:
    assert told in help.show(CONF, [*typed, "--help"])


@pytest.mark.parametrize("group, marked", [("cache", True), ("experiment", False)])
def test_a_default_is_spoken_of_where_there_is_one(group: str, marked: bool) -> None:
    text = help.show(CONF, [group, "--help"])
    assert ("(* is the default)" in text.splitlines()[0]) is marked


def test_an_option_without_a_comment_says_what_it_inherits(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "prune").mkdir()
    (tmp_path / "prune" / "narrow.yaml").write_text("defaults: [snapkv]\nwindow: 4\n")
    monkeypatch.setattr("sys.argv", ["harness", "--config-dir", str(tmp_path)])
    told = help.show(CONF, ["prune", "--help"])
    assert re.search(r"^  narrow +inherits snapkv$", told, re.MULTILINE), told
