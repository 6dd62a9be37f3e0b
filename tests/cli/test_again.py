"""Every command that a record prints, on the console, its page and its server, is one that can be typed."""

import html
import json
import re
import shlex

import pytest

from harness.cli import arguments, verbs
from harness.config import launched

COMMAND = re.compile(r"python -m harness [^`\n<]+")
EVALUATE = ("task=evaluate", "prompt=recall", "prompt.samples=1", "prompt.distance=8", "steps=3", "task.prunes=[knorm]",
            "task.budgets=[0.5]")  # fmt: skip
JOBS = {
    "single": ["prune=snapkv", "prune.ratio=0.5", "steps=2"],
    "a text with quotes": ["text=it's \"5\" . what is k ?", "steps=2"],
    "an option without a budget": ["-m", "prune=none,knorm", "prune.ratio=0.5", "steps=2"],
    "an option without groups": ["-m", "quantize=none,int8", "quantize.group=16", "steps=2", "compare=lossy"],
    "several tasks": ["-m", "task=save,experiment", "text=let k be 5 .", "steps=2", "out=null,s"],
    "evaluate": [*EVALUATE],
    "evaluations": ["-m", *EVALUATE, "task.asked=[after],[before]"],
}  # fmt: skip


MORE = ("an option without a budget", "an option without groups", "several tasks", "evaluations")


@pytest.mark.parametrize(
    "job", [pytest.param(j, marks=[pytest.mark.slow] * (j in MORE)) for j in JOBS]
)
def test_each_printed_command_is_composed(harness, compose, place, monkeypatch, job) -> None:
    monkeypatch.setattr("harness.process.spelled", lambda: "python -m harness")
    monkeypatch.setenv("COLUMNS", "1000")
    done = harness(*JOBS[job])
    assert done.code == 0, done.out
    pages = [html.unescape(p.read_text()) for p in place.glob("runs/*/*/*.html")]
    found = {text.strip() for said in (*pages, done.out) for text in COMMAND.findall(said)}
    opened = {line for line in found if line.startswith("python -m harness dashboard")}
    for word in (word for line in opened for word in shlex.split(line)[4:]):
        assert word.partition("=")[0] in verbs.DASHBOARD, word
    found -= opened  # which are no job
    assert len(found) > len(done.folders)
    for line in found:
        words = shlex.split(line)[3:]
        assert harness(*words, "--cfg", "job", track="mlflow").code == 0, line
        if "-m" not in words:
            compose(*arguments.literal_text(words))


def test_a_stopped_job_is_run_again_with_the_options_that_it_had(harness, compose, place) -> None:
    """Those of another folder too, which no override names."""
    (place / "mine" / "prune").mkdir(parents=True)
    (place / "mine" / "prune" / "few.yaml").write_text("name: keep_last\ntokens: 2\n")
    done = harness("--config-dir", "mine", "prune=few", "steps=2")
    assert done.code == 0, done.out
    assert (
        launched.of_point(done.folders[0])
        == "python -m harness --config-dir mine prune=few steps=2 track=none"
    )


@pytest.mark.parametrize("uri", ["http://127.0.0.1:5000", "sqlite:///runs/own.db"])
def test_the_command_of_a_point_has_an_address_as_one_types_it(uri, tmp_path) -> None:
    """Hydra writes a point's colons with a backslash before them; what says another thing without stays."""
    (tmp_path / ".hydra").mkdir()
    escaped = uri.replace(":", "\\:")
    words = [f"track.uri={escaped}", "name=a\\,b", "restore.strict=False", "text=False", "steps=2"]
    (tmp_path / ".hydra" / "overrides.yaml").write_text(json.dumps(words))
    said = shlex.split(launched.of_point(tmp_path))[3:]
    assert said == [
        f"track.uri={uri}",
        "name=a\\,b",
        "restore.strict=false",
        "text=False",
        "steps=2",
    ]


def test_a_record_without_what_hydra_left_says_the_same_command(harness) -> None:
    """The reference runs are kept so; their pages are drawn again from what is left."""
    done = harness("-m", "prune=none,keep_last", "prune.ratio=0.5", "steps=2")
    said = [launched.of_point(point) for point in sorted(done.folders)]
    assert len(said) == 2 and sum("prune.ratio" in words for words in said) == 1
    for point in done.folders:
        (point / ".hydra" / "hydra.yaml").unlink()
    assert [launched.of_point(point) for point in sorted(done.folders)] == said
