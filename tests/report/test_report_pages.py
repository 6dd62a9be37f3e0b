"""Pages and tables: what is shown is what was measured, and nothing of it is run or fetched."""

import json
import os
import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from rich.console import Console

from harness import __main__ as front
from harness import machine, process
from harness.compare.conclusion import conclusion
from harness.pipeline.questions.question import Question
from harness.report import (
    audit,
    audited,
    badge,
    bench,
    chat,
    closing,
    evaluate,
    heatmap,
    html,
    plots,
    referee,
    restores,
    verdicts,
)
from harness.report.console import Say, dashboard, number, show, table, tabled
from harness.snapshot import words
from harness.snapshot.result import ORDER
from harness.task import faults

NASTY = "<script>alert(1)</script>"


def test_everything_but_our_own_pictures_is_escaped() -> None:
    sections = [
        html.section(NASTY, text=NASTY, pre=NASTY, columns=[NASTY], rows=[[NASTY]]),
        html.section("picture", svg="<svg></svg>"),
    ]
    script = Path(html.__file__).with_name("page.js").read_text("utf-8")
    page = html.page(NASTY, sections, NASTY, NASTY).replace(f"<script>{script}</script>", "")
    assert "<script" not in page and page.count("&lt;script&gt;") >= 6
    assert "<svg></svg>" in page


def test_a_page_fetches_nothing() -> None:
    page = html.page("t", [html.section("s", columns=["a"], rows=[[1.0]])], "exact", "why")
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//|@import|url\(", page)


def test_a_verdict_has_one_colour_and_one_sign_wherever_it_stands() -> None:
    for verdict in ORDER:
        kind, sign = badge.KIND[verdict], badge.SIGNS[verdict]
        for good in (True, False):  # what was required of it does not colour it
            page = html.page("t", [], verdict, "", good)
            assert f'class="verdict {kind}"><i aria-hidden="true">{sign}</i> {verdict}<' in page
        assert verdicts.marked({"verdict": verdict, "point": "0"}, {})["kind"] == kind
    assert 'class="verdict good">same<' in html.page("t", [], "same", "", good=True)
    assert 'class="verdict bad">differs<' in html.page("t", [], "differs", "", good=False)
    assert 'class="verdict' not in html.page("t", [], "", "why") and "why" in html.page("t", [], "", "why")  # fmt: skip


@pytest.mark.parametrize(
    "result, said",
    [
        ({"task": "save", "verdict": "exact"}, ("saved", "good")),
        ({"task": "save", "verdict": "exact", "metrics": {"kl_max": 0.0}}, ("exact", "good")),
        ({"task": "faults", "verdict": "equivalent"}, ("every fault caught", "good")),
        ({"task": "faults", "verdict": "failed"}, ("not every fault caught", "bad")),
        ({"task": "faults", "verdict": "equivalent", "tried": 1}, ("caught", "good")),
        ({"task": "faults", "verdict": "failed", "tried": 1}, ("not caught", "bad")),
        ({"task": "faults", "verdict": "exact", "tried": 2}, ("every fault caught", "good")),
        ({"task": "evaluate", "verdict": "unjudged"}, ("", "soft")),
        ({"task": "evaluate", "verdict": "unsound"}, ("unsound", "bad")),
        ({"task": "experiment", "verdict": "unjudged"}, ("unjudged", "soft")),
        ({"verdict": "failed"}, ("failed", "bad")),
        ({"task": "save", "verdict": "unjudged"}, ("saved", "good")),
        ({"task": "verify", "verdict": "unjudged"}, ("intact", "good")),
        ({"task": "verify", "verdict": "refused"}, ("refused", "bad")),
        ({"task": "diff", "verdict": "drifted"}, ("differs", "bad")),
        ({"task": "diff", "verdict": "unjudged"}, ("differs", "bad")),
        ({"task": "architectures", "verdict": "diverged"}, ("a cell is wrong", "bad")),
        ({"task": "bench", "verdict": "unjudged"}, ("", "soft")),
    ],
)
def test_the_badge_says_what_the_task_came_to(result: dict, said: tuple[str, str]) -> None:
    assert badge.badge(result) == said


def test_what_nobody_judged_is_never_green() -> None:
    control = {"verdict": "unjudged", "control": True}
    assert [referee._coloured(control | change)["kind"] for change in ({}, {"verdict": "diverged"})] == ["soft", "good"]  # fmt: skip


def test_cells_link_and_colour_and_escape_their_text() -> None:
    rows = [[html.cell(NASTY, href="a/report.html", kind="bad")]]
    page = html.page("t", [html.section("s", columns=["a"], rows=rows)])
    assert '<td class="bad"><a href="a/report.html">&lt;script&gt;' in page


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
        ["layer.0.key", "[0, 0, 4, 0]", "-1.04006314", "-1.79165244", "bit 2, 8 in all", "128 of 1280 elements"],
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
        assert digests or len(text.splitlines()) < 30


def test_what_it_cost_is_three_lines_that_fit(recorded) -> None:
    result = json.loads((recorded / "result.json").read_text())
    say = Say()
    for width in (60, 80):
        say.out = Console(width=width, highlight=False)
        with say.out.capture() as caught:
            show(say, result)
        text = caught.get()
        cost = text[text.index("\nsize:") : text.index("\ncontinuation:")].strip("\n")
        assert max(map(len, cost.splitlines())) <= width and "\u00a0" not in cost
        flat = " ".join(cost.split())
        for key, value in result["time_s"].items():
            assert (f"{key.replace('_', ' ')} " in flat) is bool(value), key
        assert f"size: {result['size']['tokens']} tokens, " in flat and "your cache: not" in flat
    ids = result["text"]["token_ids"]
    assert f"({len(ids)} tokens, the first before any step)" in text
    with say.out.capture() as caught:
        show(say, {**result, "mutation": {**result["mutation"], "mutated": True}})
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
            show(say, result)
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
    assert dashboard({"uri": "http://host:5000", "page": page}) == page


def test_a_quiet_reporter_says_problems_only(capsys) -> None:
    say = Say(quiet=True)
    say.stage("work")
    say.note("slow")
    say.done("result")
    say.problem("harness: broken")
    assert capsys.readouterr().err == "harness: broken\n"


def test_a_table_without_rows_says_so_and_a_text_in_its_place_is_enough() -> None:
    empty = html.section("Differences", columns=["what"], rows=[])
    assert "None." in html.page("t", [empty]) and "None." not in html.page("t", [{**empty, "text": "Nothing differs."}])  # fmt: skip
    assert "None." not in html.page("t", [{**empty, "rows": [["a"]]}])


def test_a_control_that_failed_is_good_news_and_said_so() -> None:
    rows = [{"case": "hit", "verdict": "equivalent", "control": False},
            {"case": "other_prompt", "verdict": "diverged", "control": True},
            {"case": "one_token_off", "verdict": "exact", "control": True}]  # fmt: skip
    shown = [referee._coloured(row) for row in rows]
    assert [(c["text"], c["kind"]) for c in shown] == [
        ("equivalent", "alike"), ("diverged, as it must", "good"), ("exact, though it is wrong", "bad")]  # fmt: skip
    said = referee.summary(rows)
    assert said.startswith("1 of 1 case gives") and "Of 2 wrong states tried as a control, 1 was told apart" in said  # fmt: skip


def test_a_narrow_logarithmic_axis_has_more_ticks_than_powers_of_ten() -> None:
    def ticks(values: list[float]) -> int:
        _, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
        axis.plot([512, 2048], values)
        plots.against_context(axis, "t", "ms")
        low, high = axis.get_ylim()
        return sum(low <= tick <= high for tick in axis.get_yticks())

    assert ticks([5, 40]) >= 3 and 2 <= ticks([1e-6, 1e3]) <= 8
    assert len({(plots.mark(n), plots.COLOURS[n % 8]) for n in range(16)}) == 16


def test_values_nearly_alike_have_ticks_that_can_be_told_apart() -> None:
    def said(values: list[float]) -> list[str]:
        _, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
        axis.plot([0, 1], values)
        plots.plain(axis.yaxis)
        show = axis.yaxis.get_major_formatter()
        return [show(tick, 0) for tick in axis.get_yticks()]

    for values in ([15.8001, 15.8009], [0.0, 1.0], [0.6, 0.9]):
        assert len(set(said(values))) == len(said(values))
    assert max(map(len, said([0.6, 0.9]))) <= 5


def test_a_wide_row_becomes_a_card_on_a_narrow_screen_and_a_small_table_stays_one() -> None:
    row = ["layer.0.key", "[0, 4]", "a sentence that is longer than any name or number is", 7]
    told = html.section("told", columns=["what", "where", "why", "n"], rows=[row])
    page = html.page("t", [told])
    assert " cards" in page and 'data-label="why" class="long"' in page
    assert "data-label=" not in html.page("t", [told | {"rows": [row] * (html.CARDS + 1)}])
    assert "data-label=" not in html.page("t", [told | {"columns": ["a"] * 3, "rows": [row[1:]]}])
    for n in (4, 5):  # figures
        figures = told | {"columns": list("abcde")[:n], "rows": [list(range(n))]}
        assert ('data-label="d"' in html.page("t", [figures])) is (n == 5)


def test_a_card_that_begins_with_a_number_says_of_what() -> None:
    for first, numbered in (("5", True), (html.cell("0", "0/report.html"), True), ("hit", False)):
        rows = [[first, "a", 1, 2, 3]]
        page = html.page("t", [html.section("s", columns=["seed", *"bcde"], rows=rows)])
        assert ('class="wide rows many cards numbered"' in page) == numbered, first
    style = (Path(html.__file__).parent / "page.css").read_text()
    assert ".numbered td:first-child::before" in style
    assert "translateX" not in style  # a wide table begins where the text does


def test_an_audit_says_first_of_how_many_runs_and_folds_what_is_the_same(tmp_path, capsys) -> None:
    result = {"verdict": "exact", "metrics": {"kl_max": 0.0}}
    (tmp_path / "r.json").write_text(json.dumps(result))
    told = {"record": "ab" * 32, "where": {}, "noise_floor": {}, "floors": {},
            **{side: {"result.json": {"file": "r.json"}} for side in ("recorded", "again")}}  # fmt: skip
    document = {"verdict": "same", "run": "runs/s", "points": 3, "compared": "bitwise", "differences": [],
                "environment": {p: [] for p in "012"}, "evidence": dict.fromkeys("012", told)}  # fmt: skip
    audit.write(tmp_path / "report.html", document)
    page = (tmp_path / "report.html").read_text()
    assert "Every figure and token of 3 runs is reproduced, bitwise." in page
    assert page.count("<summary>Run again") == 1 and "the same: 3 runs</summary>" in page
    (tmp_path / "other.json").write_text(json.dumps({**result, "metrics": {"kl_max": 1.0}}))
    document["evidence"]["1"] = {**told, "again": {"result.json": {"file": "other.json"}}}
    audit.write(tmp_path / "report.html", document)
    assert "<summary>Run again: 1</summary>" in (tmp_path / "report.html").read_text()
    wrong = {"what": "verdict", "recorded": "exact", "found": "drifted", "explanation": "why"}
    differs = {**document, "verdict": "differs", "differences": [wrong], "compared": "nothing"}
    for said, first in ((document, "SAME: "), (differs, "DIFFERS: ")):
        audit.show(Say(), said, "runs/a")
        line = capsys.readouterr().out.splitlines()[0]
        assert line.startswith(first) and "3 runs" in line
    assert audit.sentence(differs).startswith("3 runs: verdict: recorded exact, found drifted")
    assert audit.sentence(differs).endswith("Compared: nothing.")


def test_four_columns_are_cards_where_their_names_do_not_fit_a_phone():
    wide = [["git.diff_digest", "256bbb05eca5…", "d5760adc3653…", False]]
    few = [["torch", "2.12", "2.13", True]]
    columns = ["what", "recorded", "now", "may change the last bits"]
    drawn = [html.page("T", [html.section("S", columns=columns, rows=r)]) for r in (wide, few)]
    assert [" cards" in p.partition("<body")[2] for p in drawn] == [True, False]


def test_a_page_can_be_heard_and_reached_by_keys() -> None:
    wide = html.section("Wide", columns=list("abcdef"), rows=[[1, 2, 3, 4, 5, 6]])
    made, (axis,) = plots.figure(4, 3)
    plots.label(axis, 'Time "per" turn', "turn", "ms")
    page = html.page("t", [wide, html.section("Picture", panels=[plots.svg(made)])])
    assert 'tabindex="0" role="region" aria-label="Wide"' in page
    assert page.count('<th scope="col"') == 6 and "<main>" in page
    assert '<svg role="img" aria-label="Time &quot;per&quot; turn, ms, by turn"' in page
    levels = [int(n) for n in re.findall(r"<h(\d)", page)]
    assert levels == [1, 2, 2]


def test_what_is_said_of_a_record_is_the_conclusion_then_the_reason_where_that_says_more() -> None:
    result = {"conclusion": "Same thought.", "reason": "error 1.2\nseconds: 3"}
    assert closing.said(result).splitlines() == ["Same thought.", "error 1.2", "seconds: 3"]
    again = {"conclusion": "All noticed.", "reason": "all noticed.\nseconds: 3"}
    assert closing.said(again).splitlines() == ["All noticed.", "seconds: 3"]
    page = html.page("t", [], "exact", closing.said(result))
    assert '<p class="soft">seconds: 3</p>' in page


def test_a_model_of_somebody_has_the_name_of_its_folder_and_a_mapping_is_never_an_empty_cell() -> (
    None
):
    result = {
        "task": "evaluate", "options": {"model": "path", "cache": "auto", "prompt": "recall"},
        "model": {"name": "qwen"}, "evaluation": {"questions": 24},
        "environment": {"device": "cpu", "dtype": "bfloat16", "variables": {"OMP_NUM_THREADS": "1"},
                        "versions": {"torch": "2"}, "git": {}, "command": ["python", "-m", "harness", "steps=8"]},
    }  # fmt: skip
    assert closing.title(result) == "evaluate: qwen, cache auto"
    resolved = {**result, "cache": {"served": "manual", "passed_over": {}}}
    assert closing.title(resolved) == "evaluate: qwen, cache auto (manual)"
    resolved["options"] = {**result["options"], "cache": "manual"}
    assert closing.title(resolved) == "evaluate: qwen, cache manual"
    assert closing.under(result) == "bfloat16 on cpu, 24 prompts of recall"
    both = closing.under({**result, "bench": {"dtypes": ["float32", "bfloat16"]}})
    assert both.startswith("float32 and bfloat16 on cpu")
    assert (
        closing.under({"environment": {"device": "none", "date": "2026-11-23T08:00:00"}})
        == "2026-11-23 08:00"
    )
    assert closing.under({"date": "2026-11-23T08:00:00", "stages": []}) == "2026-11-23 08:00"
    environment, again = closing.sections(result, Path())
    assert ["variables", "OMP_NUM_THREADS=1"] in environment["rows"]
    assert again["pre"] == "python -m harness steps=8"


def test_the_heading_says_which_point_and_which_task_and_the_line_below_what_else_was_typed(
    tmp_path,
):
    result = {
        "task": "experiment", "model": {"name": "tiny"},
        "options": {"model": "tiny", "cache": "view", "prune": "none", "prompt": "recall"},
        "environment": {"device": "cpu", "dtype": "float32", "date": "2026-11-23T08:00:00",
                        "command": ["python", "-m", "harness", "-m", "prune=none,knorm", "prompt.seed=1,2"]},
    }  # fmt: skip
    assert closing.title(result, tmp_path) == "experiment: tiny, cache view"
    (tmp_path / ".hydra").mkdir()
    words = ["prune=none", "prompt.seed=2", "prune.ratio=0.5", "steps=6", "name=n", "text='a b'"]
    (tmp_path / ".hydra" / "overrides.yaml").write_text(json.dumps(words))
    assert (
        closing.title(result, tmp_path) == "experiment: tiny, cache view, prune none, prompt.seed 2"
    )
    assert closing.under(result, point=tmp_path).endswith(
        ", 2026-11-23"
    )  # which other points share
    said = closing.under(result, tmp_path)
    assert (
        said == "float32 on cpu, prompt text, steps 6, 2026-11-23 08:00"
    )  # no ratio of what was not pruned, and the text in place of an option that was not read
    (tmp_path / ".hydra" / "overrides.yaml").write_text(json.dumps([*words[:-1], "text=null"]))
    assert closing.under(result, tmp_path).startswith("float32 on cpu, prompt recall, ")
    resumed = {**result, "environment": {"command": ["python", "-m", "harness", "-m", "resume=x"]}}
    assert "steps 6" in closing.title(resumed, tmp_path)
    alone = {
        **result,
        "task": "evaluate",
        "environment": {"command": ["python", "-m", "harness", "steps=6"]},
    }
    assert closing.title(alone, tmp_path) == "n (evaluate): tiny, cache view"
    assert closing.named("ev", alone, tmp_path) == "ev (evaluate): tiny"
    assert closing.named("evaluate", alone, tmp_path) == "evaluate: tiny"
    bent = {**alone, "task": "faults", "options": {**result["options"], "fault": "swap"}}
    assert closing.named("faults", bent, tmp_path) == "faults: tiny, fault swap"
    assert closing.named("ev", {**alone, **result}, tmp_path).endswith("prune none, prompt.seed 2")


def test_a_point_of_a_sweep_is_run_alone_by_a_command_of_its_own(tmp_path) -> None:
    typed = ["python", "-m", "harness", "-m", "prune=knorm,tova", "steps=8"]
    where = {"versions": {}, "git": {}, "command": typed}
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "overrides.yaml").write_text("[prune=tova, steps=8]")
    audit = "python -m harness task=audit run=r"
    _, said = closing.sections({"environment": where}, tmp_path, [audit])
    whole, alone, last = said["pre"].splitlines()
    assert whole.endswith("-m prune=knorm,tova steps=8") and last == audit
    assert (
        alone == "python -m harness prune=tova steps=8" and "the second this point" in said["text"]
    )
    _, said = closing.sections({"environment": where}, tmp_path / "elsewhere", [audit])
    assert len(said["pre"].splitlines()) == 2 and not said["text"]
    assert not closing.sections(
        {"environment": {**where, "command": typed[:3]}}, tmp_path, [audit]
    )[1]["text"]


ROW = {"turn": 1, "ask": "what is k ?", "answer": "k is 5 .", "sent_tokens": 7, "total_tokens": 9,
       "cached_s": 0.0126, "naive_s": None, "naive_equal": None, "restored_equal": True,
       "stored_bytes": 2048, "mismatch": None, "expect": "5", "recalled": True}  # fmt: skip


def test_a_chat_says_right_or_wrong_and_has_no_column_without_a_value() -> None:
    wrong = ROW | {"turn": 2, "recalled": False, "restored_equal": False}
    _, turns, figures = chat.sections([ROW, wrong], {"recalled": 1, "naive_growth": None})
    assert turns["columns"] == ["turn", "asked", "answered", "tokens sent", "tokens in all",
                                "cached, ms", "restored says the same", "KiB on disk"]  # fmt: skip
    first, second = turns["rows"]
    assert first[2] == {"text": "k is 5 . (right)", "href": "", "kind": "good long", "sign": ""}
    assert second[2]["text"] == "k is 5 . (wrong, expected 5)" and second[6]["kind"] == "bad"
    assert first[5:] == [12.6, True, 2]
    assert figures["rows"] == [["answers that were right", 1]]
    _, turns, _ = chat.sections([ROW, ROW | {"restored_equal": None}], {})
    assert "restored says the same" not in turns["columns"]
    assert turns["text"].startswith("In every turn the chat restored from the pause before it says")


def test_a_fault_names_the_element_it_hits() -> None:
    row = {"fault": "layer_swap", "element": 1, "element_name": "kv_cache", "strict": "refused",
           "plain": "error", "shift": 2.0, **dict.fromkeys(heatmap.CHECKS, True)}  # fmt: skip
    control = row | {"fault": "none", "element": 0, "element_name": "control"}
    drawn = heatmap._matrix([control, row])
    told = re.sub(r' data-label="[^"]*"', "", drawn)
    assert "<td>layer_swap</td><td>1 kv_cache</td>" in told and "<td>none</td><td></td>" in told
    missed = heatmap._cells(row | dict.fromkeys(heatmap.CHECKS, False) | {"shift": None})
    assert missed[0] == ("layer_swap", "--bad", 1.0) and missed[-1][-1] == 0.0, "the quietest: it never ran"  # fmt: skip
    named, shifted = heatmap._cells(row)[2][-1], heatmap._cells(row | {"shift": 1e9})[-1][-1]
    assert named > 2 * shifted, "what is caught is seen before how far it went"
    assert drawn.count('data-label="strict restore"') == 2  # a card on a phone, as every wide table
    assert "#" not in re.sub(r"style=.*?>", "", drawn)


def test_what_explains_the_others_comes_first_in_an_audit() -> None:
    told = [{"point": p, "what": w} for p in "10" for w in ("verdict", "run")]
    assert [d["point"] + d["what"] for d in audit.explaining(told)] == ["1run", "1verdict", "0run", "0verdict"]  # fmt: skip


FULL = {"prune": "none", "quantize": "none", "budget": 1.0, "cache": "auto", "asked": "after"}


def test_an_evaluation_quotes_the_first_other_word_and_gives_ids_where_it_reads_the_same() -> None:
    full = FULL | {"said": " y is 5", "contains": 1.0, "divergence_step": 6, "ids": [4, 5, 6]}
    alike = full | {"prune": "knorm", "budget": 0.5}
    other = alike | {"divergence_step": 2, "ids": [4, 5, 9], "said": " y is 5"}
    ended = alike | {"divergence_step": 2, "ids": [4, 5], "said": " y is", "contains": 0.0}
    asking = [Question("c", "what is y ?", "y is 5")] * 3
    answered = {"0/after": [full, alike], "1/after": [full, other], "2/after": [full, ended]}
    short, same = evaluate.otherwise(answered, asking)
    assert (
        same[:4] == ["knorm 50%", "after", "what is y ?", "y is 5"]
        and same[-1] == "token 3: the same words, id 9 for 6"
    )
    assert [c["text"] for c in same[4:6]] == ["y is 5 (right)"] * 2
    assert short[-1] == "token 3: the end for \u201c5\u201d" and short[4]["kind"] == "bad long"
    assert evaluate.otherwise({"0/after": [full, alike]}, asking) == []


def test_no_wrong_answer_is_hidden_behind_right_ones_or_behind_itself() -> None:
    full = FULL | {"said": " y is 5", "contains": 1.0, "divergence_step": 6, "ids": [4, 5, 6]}
    changed = {"prune": "knorm", "budget": 0.5, "divergence_step": 2, "ids": [4, 5, 9]}
    right, wrong = full | changed, full | changed | {"said": " y is 7", "contains": 0.0}
    asking = [Question("c", f"what is {name} ?", "y is 5") for name in "abcde"]
    answered = {f"{n}/after": [full, right] for n in range(4)} | {"4/after": [full, wrong]}
    other = {"cache": "manual"}  # which says the same
    answered["4/after"] += [full | other, wrong | other]
    answered |= {
        "4/before": [full | {"asked": "before"}, right | {"asked": "before", "prune": "random"}]
    }
    answered["4/before"] += [right | {"asked": "before"}]
    rows = evaluate.otherwise(answered, asking)
    assert [row[4]["kind"] for row in rows] == ["bad long", *["good long"] * 4]
    assert [row[:3] for row in rows if row[0] == "knorm 50%"] == [
        ["knorm 50%", when, f"what is {name} ?"]
        for when, name in (("after", "e"), ("after", "a"), ("after", "b"), ("before", "e"))
    ]


def test_of_the_answers_that_are_others_it_is_said_how_many_there_are() -> None:
    full = FULL | {"said": " y is 5", "contains": 1.0, "divergence_step": 6, "ids": [4, 5, 6]}
    asking = [Question("c", f"what is {n} ?", "y is 5") for n in range(9)]

    def told(policies: str, *askings: str) -> str:
        other = {"budget": 0.5, "divergence_step": 2, "ids": [4, 5, 9]}
        answered = {
            f"{n}/{when}": [full | {"asked": when}, *(full | other | {"prune": p, "asked": when} for p in policies)]
            for n in range(len(asking)) for when in askings
        }  # fmt: skip
        return evaluate._some(answered, asking)

    assert told("ab", "after") == "Shown: 3 of 9 by a 50%; 3 of 9 by b 50%"
    both = "Shown: 3 of 9 by a 50% asked after; 3 of 9 by a 50% asked before"
    assert told("a", "after", "before") == both
    many = "Shown: 21 of 63 answers, up to 3 of each cell and asking"
    assert told("abcdefg", "after") == many


def test_a_difference_is_called_worse_only_where_its_interval_says_so() -> None:
    def said(measure: str, low: float | None, high: float | None) -> str:
        row = FULL | {"prune": "knorm", "measure": measure, "delta": 0.0, "delta_low": low, "delta_high": high}  # fmt: skip
        return evaluate._differences([row])[0][-1]["text"]

    assert [said("contains", -0.5, -0.1), said("nll", 0.1, 0.2)] == ["worse", "worse"]
    assert [said("contains", 0.1, 0.2), said("nll", -0.2, -0.1)] == ["better", "better"]
    assert [said("contains", -0.1, 0.1), said("nll", None, None)] == ["not told apart"] * 2


def test_a_cell_that_lost_5_points_is_not_chosen_and_its_line_says_so() -> None:
    def row(budget: float, value: float, size: int) -> dict:
        return FULL | {"prune": "keydiff", "measure": "contains", "budget": budget, "value": value, "low": 0.7, "n": 16,
                       "kv_bytes": size, "delta": value - 1.0, "delta_low": -0.3, "delta_high": 0.0}  # fmt: skip

    full = FULL | {"measure": "contains", "value": 1.0, "low": 0.8, "kv_bytes": 100, "n": 16}
    lost, kept = row(0.1, 0.9375, 10), row(0.25, 0.96, 25)
    said = evaluate.conclusion([full, lost, kept])
    assert said.startswith("Smallest safe choice: keydiff 25% (15 of 16 right, 16 with")
    lines = [line[-1]["text"] for line in evaluate._differences([full, lost, kept])]
    assert lines == ["not told apart, but 6.2 percentage points down", "not told apart"]


def test_a_table_is_kept_where_folded_headings_or_what_is_alike_make_room() -> None:
    say = Say()
    say.out = Console(width=60, highlight=False)
    columns = ["case", "reused_tokens", "max_abs_diff", "noise_floor", "dtype"]
    rows: list[list] = [[f"hit_{c}", 96, i * 1e-6, 4.23e-06, "float32"] for i, c in enumerate(("static", "one_token_off"))]  # fmt: skip
    with say.out.capture() as caught:
        tabled(say, "referee", columns, rows)
    lines = caught.get().splitlines()
    assert max(map(len, lines)) <= 60 and "hit_one_token_off |" in caught.get()
    assert (
        "reused_tokens" not in caught.get() and "dtype float32" not in lines[0]
    )  # folding is enough
    say.out = Console(width=42, highlight=False)
    with say.out.capture() as caught:
        tabled(say, "referee", columns, rows)
    assert "(reused tokens 96, noise floor" in caught.get().splitlines()[0]  # in every row
    assert "hit_one_token_off |" in caught.get() and caught.get().count("float32") == 1


def test_names_and_values_stand_one_below_the_other_where_no_table_fits() -> None:
    say = Say()
    say.out = Console(width=50, highlight=False)
    with say.out.capture() as caught:
        tabled(say, "t", ["what", "value"], [["id", "b" * 64], ["needs dtype", "float32"]])
    assert caught.get().splitlines()[1:] == [f"id:          {'b' * 64}", "needs dtype: float32"]


def test_a_bench_says_which_cache_is_fastest_at_the_longest_past() -> None:
    def row(cache: str, context: int, seconds: float | None, ratio: float | None) -> dict:
        return {"cache": cache, "dtype": "float32", "context": context, "branches": 1,
                "per_token_s": seconds, "ratio_to_dynamic": ratio}  # fmt: skip

    rows = [row("dynamic", 256, 0.001, 1.0), row("dynamic", 1024, 0.02, 1.0), row("view", 1024, 0.005, 4.0)]  # fmt: skip
    said = (
        "after 1,024 tokens in float32, view is the fastest: 5 ms a token, 4.0 times as fast as dynamic, "
        "another cache in 1 of all 2 settings; "
    )
    assert bench.fastest([*rows, row("manual", 1024, None, None)]) == said
    always = [*rows, row("view", 256, 0.0005, 2.0)]
    assert bench.fastest(always) == said.replace("another cache in 1 of", "and so it is in")
    assert (
        bench.fastest(rows[1:2])
        == "after 1,024 tokens in float32, dynamic is the fastest: 20 ms a token; "
    )
    assert bench.fastest([]) == ""


def test_a_restore_is_held_against_a_prefill_of_the_longest_past() -> None:
    row = {"context": 2048, "speedup": 4.0}
    rows = [{"context": 512, "speedup": 9.0}, row, {"context": 9999, "speedup": None}]
    said = "a restore is {} to the first token than a prefill of 2,048 tokens; "
    assert restores.conclusion(rows) == said.format("4.0 times faster")
    assert restores.conclusion([row | {"speedup": 0.5}]) == said.format("2.0 times slower")
    assert restores.conclusion(rows[2:]) == ""


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


def test_an_audit_shows_what_was_recorded_beside_what_came_again(tmp_path):
    results = {
        "recorded": {"verdict": "exact", "metrics": {"kl_max": 1e-12, "max_ulp": 3000}},
        "again": {"verdict": "exact", "metrics": {"kl_max": 2e-12, "max_ulp": 3000}},
    }
    for side, result in results.items():
        (tmp_path / f"{side}.json").write_text(json.dumps(result))
    told = {side: {"result.json": {"file": f"{side}.json"}} for side in results}
    held = {"metrics.kl_max": {"held_to": "at most 5e-12 apart", "why": "noise"}}
    one, two = audited.results(tmp_path, told)
    said, rows = audited.rows(one, two, held)
    assert "2 of 3" in said
    assert all(cell["kind"] == "n" for row in rows for cell in row[1:3]), "no screen breaks them"
    assert [[c["text"] if isinstance(c, dict) else c for c in row] for row in rows] == [
        ["verdict", "exact", "the same", "", ""],
        [
            "KL divergence per step, largest (nats)",
            "1e-12",
            "2e-12",
            "at most 5e-12 apart",
            "noise",
        ],
        ["largest difference in units in the last place", "3,000", "the same", "", ""],
    ]
    assert len(audited.rows(one, two, {})[1][0]) == 3


def test_two_figures_of_an_audit_have_as_many_digits_as_tell_them_apart():
    assert audited.apart(0.340000001, 0.351) == ("0.34", "0.351")
    assert audited.apart(1.20338070535834e-05, 1.20339e-05) == ("1.20338e-05", "1.20339e-05")
    assert audited.apart(12.71629788078059, 12.716297880780587) == ("12.7", "12.7 (3.6e-15 less)")


def test_a_fault_that_only_the_checked_line_shows_is_explained() -> None:
    row = {"fault": "buffer_reordered", "element": 4, "element_name": "token_ids", "strict": "refused", "why": "as before",
           "plain": "nothing visible", "shift": 422580.0, "expected": "", "cause": "", "evidence": "", "what": "",
           "said": [], **dict.fromkeys(heatmap.CHECKS, True)}  # fmt: skip
    note = ">nothing visible: as before</td>"
    assert note in heatmap._matrix([row]) and "min-width" not in heatmap._matrix([row])
    for other in ({"plain": "error"}, {"shift": 0.46}, {"fault": "none"}):
        assert note not in heatmap._matrix([row | other])
    long = row | {"why": "the cache answers as before; a recomputation does not"}
    assert "min-width:14rem" in heatmap._matrix([long]), "a sentence may break"


def test_the_faults_that_move_no_logit_are_counted_as_the_column_of_shifts_has_them() -> None:
    """The replay of the last token may name one of them; that is no logit of the continuation."""
    row = {"fault": "position_restarted", "element": 3, "element_name": "positions", "strict": "refused", "why": "w",
           "plain": "error", "shift": 0.46, "expected": "", "cause": "", "evidence": "", "what": "", "said": [],
           "proof": True, **dict.fromkeys(heatmap.CHECKS, False), "logits": True}  # fmt: skip
    moved = row | {"fault": "layer_swap", "shift": 3e5, "logits": False}
    dead = row | {"fault": "payload_truncated", "shift": None}
    rows = [row, row | {"logits": False, "digest": True}, moved, dead]
    title = "Faults that move no logit beyond the noise, and why they still matter"
    (block,) = (b for b in heatmap.sections(rows) if b["title"] == title)
    assert [r[1] for r in block["rows"]] == ["replay of the last token", "digest"]
    assert "and 2 move no logit beyond the noise" in faults.summary(rows)


def test_a_sentence_that_begins_with_a_name_leaves_it_as_it_is() -> None:
    said = {"verdict": "unjudged", "reason": "generate_whole reused nothing"}
    assert conclusion(said) == "generate_whole reused nothing."
    assert conclusion({**said, "reason": "nothing was reused"}) == "Nothing was reused."


def test_two_places_are_told_apart_by_the_last_parts_that_differ() -> None:
    assert words.apart(["/a/runs/chat/1", "/a/runs/chat/2"]) == ["1", "2"]
    assert words.apart(["runs/x/1/snapshot", "runs/y/1/snapshot"]) == ["x", "y"]
    assert words.apart(["runs/x/1", "runs/y/2"]) == ["1", "2"]
    assert words.apart(["runs/x", "runs/x/1"]) == ["x", "1"]
    assert words.apart(["runs/x", "runs/x"]) == ["x", "x"]
    assert words.apart(["/a/b/x.bin", "/x.bin"]) == ["b/x.bin", "x.bin"]
    assert words.apart(["runs/x"]) == ["runs/x"]


def test_words_between_backticks_are_code_and_nothing_else_is():
    told = html.page(
        "T", [html.section("S", text="pass `a.b=1` <now>, or `it")], "refused", "see `x`"
    )
    assert "pass <code>a.b=1</code> &lt;now&gt;, or `it" in told and "see <code>x</code>" in told
    assert "<code>&lt;b&gt;</code>" in html.page("T", [html.section("S", text="`<b>`")])


def test_two_long_texts_are_shown_where_they_differ() -> None:
    was, now = ("the tokens of the run, within rounding", "the tokens of the run, bit for bit")
    told = {"what": "conclusion", "recorded": was, "found": now}
    assert [audit._told(told, side, 24) for side in audit.COMPARED] == ["...within rounding", "...bit for bit"]  # fmt: skip
    assert audit._told(told, "recorded") == was, "where there is room, all of it"
    digests = {"what": "d", "recorded": "a" * 30 + "b", "found": "a" * 30 + "c"}
    assert not audit._told(digests, "found", 24).startswith("...")
