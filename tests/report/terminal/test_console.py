"""What is said on a terminal: tables, folded words and figures that fit, and whole commands."""

import json
import os
from contextlib import nullcontext

import pytest
from rich.console import Console

from harness import __main__ as front
from harness import machine, process
from harness.present.conclusion import conclusion
from harness.report.terminal.console import Say, number, show, table, tabled
from harness.report.terminal.tracked import dashboard, places


def test_numbers_are_short_and_unambiguous() -> None:
    shown = [number(v) for v in (None, True, False, 0.000123456, 12345.678, 7, "x")]
    assert shown == ["-", "yes", "no", "0.000123", "1.23e+04", "7", "x"]


def test_a_table_shows_every_cell() -> None:
    say = Say()
    with say.out.capture() as caught:
        say.out.print(table("Title", ["name", "value"], [["a", 1.5], ["b", None]]))
    lines = caught.get()
    assert all(word in lines for word in ("Title", "name", "value", "a", "1.5", "b", "-"))


NAMES = ("position_wrong_after_pruning", "padding_attended_twice_over", "logits_of_another_request")


@pytest.mark.parametrize("prose", ["short", "a sentence of many words, " * 8])
@pytest.mark.parametrize("columns", [2, 4, 9])
def test_no_name_is_cut_or_folded_at_80_columns(prose, columns) -> None:
    rows = [[f"{name}_{'x' * columns}", *[True] * (columns - 2), prose] for name in NAMES]
    say = Say()
    say.out = Console(width=80, highlight=False)
    with say.out.capture() as caught:
        tabled(say, "faults", [f"column_{i}" for i in range(columns)], rows)
    lines = caught.get().splitlines()
    assert max(map(len, lines)) <= 80
    assert all(any(row[0] in line for line in lines) for row in rows)
    assert "".join("".join(lines).replace("|", "").split()).count("sentence") in (0, 24)


def _before_a_run(text: str) -> None:
    assert front._fail(text.removeprefix("harness: "), 2) == 2


@pytest.mark.parametrize("said", [Say().problem, _before_a_run], ids=["a run's", "before a run"])
def test_a_problem_is_folded_on_a_terminal_and_a_command_in_it_is_not(
    monkeypatch, capsys, said
) -> None:
    command = f"Go on with: python -m harness -m resume={'x' * 90}"
    text = f"harness: {'refused ' * 20}:\n  - {'a difference ' * 12}\n{command}"
    monkeypatch.setenv("COLUMNS", "80")
    said(text)
    text, command = map(process.retold, (text, command))  # as it is typed here
    assert command in text and process.spelled() in command
    assert capsys.readouterr().err == f"{text}\n"  # elsewhere a line stays whole
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    said(text)
    lines = capsys.readouterr().err.splitlines()
    assert command in lines and max(len(line) for line in lines if line != command) <= 80
    assert lines[4].startswith("    a ") or lines[4].startswith("    difference")
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())


def test_no_word_is_broken_and_nothing_empty_is_shown() -> None:
    """The table of a diff, whose cells are names, places and sentences of many lengths."""
    columns = ["what", "where", "a", "b", "bits", "how much"]
    rows = [
        ["prompt_meta", "buffer.digest", "898ac10db4d517a75c018...", "ce17e6c47f597b14fd455...", "", ""],
        ["layer.0.key", "[0, 0, 4, 0]", "-1.04006314", "-1.79165244", "8 bits, from bit 2 up", "128 of 1280 elements"],
    ]  # fmt: skip
    say = Say()
    for width in (60, 80, 100, 120, 160):
        say.out = Console(width=width, highlight=False)
        with say.out.capture() as caught:
            tabled(say, "runs/a against runs/b", columns, rows)
        shown = caught.get()
        assert max(map(len, shown.splitlines())) <= width
        assert all(word in shown.split() for row in rows for cell in row for word in cell.split())
        assert width >= 120 or shown.count("how much") == 1


def test_the_conclusion_comes_first_and_digests_only_when_asked(recorded) -> None:
    result = json.loads((recorded / "result.json").read_text())
    say = Say()
    for digests in (False, True):
        with say.out.capture() as caught:
            show(say, result, digests)
        text = caught.get()
        assert text.split()[:2] == result["conclusion"].split()[:2]
        assert (result["elements"][0]["digest"][:16] in text) is digests
        assert digests or len(text.splitlines()) < 15


def test_what_it_cost_is_three_lines_that_fit(recorded) -> None:
    result = json.loads((recorded / "result.json").read_text())
    say = Say()
    for width, there in ((60, True), (60, False), (80, True)):
        say.out = Console(width=width, highlight=False, force_terminal=there, color_system=None)
        with say.out.capture() as caught:
            show(say, result, verbose=True)
        text = caught.get()
        cost = text[text.index("\nsize:") : text.index("\ncontinuation:")].strip("\n")
        longest = max(map(len, cost.splitlines()))
        assert longest <= width if there else len(cost.splitlines()) == 3, (
            "a pipe's lines stay whole"
        )
        assert "\u00a0" not in cost
        flat = " ".join(cost.split())
        for key, value in result["time_s"].items():
            assert (f"{key.replace('_', ' ')} " in flat) is bool(value), key
        assert f"size: {result['size']['tokens']} tokens, " in flat and "your cache: not" in flat
    ids = result["text"]["token_ids"]
    assert f"({len(ids)} tokens, the first before any step)" in text
    with say.out.capture() as caught:
        show(say, {**result, "mutation": {**result["mutation"], "mutated": True}}, verbose=True)
    assert "your cache:   written into" in caught.get()


def test_on_a_terminal_words_are_folded_below_themselves_and_paths_stay_whole(recorded) -> None:
    result = json.loads((recorded / "result.json").read_text())
    path = "/deep" * 30
    result["text"] |= {"continuation": " the man said" * 12, "restored": None}
    result |= {"folder": path, "reason": "error against float64 1.2e-05, plain path 3.54e-05; " * 3}
    result["itself"] = {
        "verdict": "exact",
        "required": "exact",
        "cache": "",
        "reason": "word " * 30,
    }
    say, shown = Say(), []
    for terminal in (True, False):
        say.out = Console(width=80, highlight=False, force_terminal=terminal, color_system=None)
        with say.out.capture() as caught:
            show(say, result, verbose=True)
        shown.append(caught.get().splitlines())
    folded, whole = shown
    long = [line for line in folded if len(line) > 80]
    assert f"report:       {path}/report.html" in long
    assert {line.partition(":")[0] for line in long} <= {"snapshot", "report", "next", "dashboard"}
    for name in ("continuation:", "verdict:", "cross-check:"):
        place = next(i for i, line in enumerate(folded) if line.startswith(name))
        assert folded[place + 1].startswith(" " * 14) and folded[place + 1][14] != " "
        assert max(len(line) for line in whole if line.startswith(name)) > 80  # one line in a pipe
    assert " ".join(" ".join(folded).split()) == " ".join(" ".join(whole).split())


@pytest.mark.parametrize(
    "seconds, told", [(2.345, "2.35 s"), (0.6, "600 ms"), (0.0164, "16 ms"), (0.00041, "0.41 ms")]
)
def test_seconds_are_told_as_a_person_does(seconds, told) -> None:
    assert machine.seconds(seconds).replace("\u00a0", " ") == told


def test_the_dashboard_line_names_a_command_or_an_address(monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["harness"])
    assert dashboard({"uri": "sqlite:///runs/mlflow.db"}) == "harness dashboard"
    assert dashboard({"uri": "sqlite:////a/b c/mlflow.db"}) == "harness dashboard runs_dir='/a/b c'"
    own = {"uri": "sqlite:////tmp/own/x.db", "experiment": "mine"}
    words = "track.uri=sqlite:////tmp/own/x.db track.experiment=mine"
    assert dashboard(own) == f"harness dashboard {words}"
    assert dashboard({"uri": "http://host:5000"}) == "http://host:5000"
    page = "http://host:5000/#/experiments/1/runs"
    assert dashboard({"uri": "http://host:5000", "page": page}) == page  # as older records have it


def test_on_a_server_a_run_names_its_own_page_and_all_runs_beside_one_another(monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["harness"])
    runs, page = "http://host:5000/#/runs?view", "http://host:5000/#/runs/5f"
    told = {"uri": "http://host:5000", "run_id": "5f", "page": page, "runs": runs}
    assert [*places(told)] == [("mlflow run", page), ("dashboard", runs)]
    assert not [*places(told, waiting=True)], "an address that may lead nowhere"
    here = {"uri": "sqlite:///runs/mlflow.db", "run_id": "5f"}
    assert [*places(here)] == [*places(here, waiting=True)]
    assert [*places(here)] == [
        ("mlflow run", "harness dashboard run=5f"),
        ("dashboard", "harness dashboard"),
    ]


def test_a_quiet_reporter_says_problems_only(capsys) -> None:
    say = Say(quiet=True)
    say.stage("work")
    say.note("slow")
    say.done("result")
    say.problem("harness: broken")
    assert capsys.readouterr().err == "harness: broken\n"


@pytest.mark.parametrize("paper", [Say().out.__class__, Console])
def test_a_reader_who_stops_ends_no_job(paper, monkeypatch) -> None:
    """`| head`: rich itself would end the process with 1, whatever the verdict."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", closed)
        say = Say()
        say.out = paper(highlight=False)
        with pytest.raises(SystemExit) if paper is Console else nullcontext():
            say.line("first")
            say.line("second")


def test_a_sentence_that_begins_with_a_name_leaves_it_as_it_is() -> None:
    said = {"verdict": "unjudged", "reason": "generate_whole reused nothing"}
    assert conclusion(said) == "generate_whole reused nothing."
    assert conclusion({**said, "reason": "nothing was reused"}) == "Nothing was reused."
