"""Pages: what is shown is what was measured, nothing of it is run or fetched, and tables fit."""

import json
import re
from pathlib import Path

import pytest
from rich.console import Console

from harness.report import badge, footer, html
from harness.report.picture import plots
from harness.report.referee import page as referee
from harness.report.terminal.console import Say, tabled
from harness.snapshot import words
from harness.snapshot.result import ORDER

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


def test_a_model_of_somebody_has_the_name_of_its_folder_and_a_mapping_is_never_an_empty_cell() -> (
    None
):
    result = {
        "task": "evaluate", "options": {"model": "path", "cache": "auto", "prompt": "recall"},
        "model": {"name": "qwen"}, "evaluation": {"questions": 24},
        "environment": {"device": "cpu", "dtype": "bfloat16", "variables": {"OMP_NUM_THREADS": "1"},
                        "versions": {"torch": "2"}, "git": {}, "command": ["python", "-m", "harness", "steps=8"]},
    }  # fmt: skip
    assert footer.title(result) == "evaluate: qwen, cache auto"
    resolved = {**result, "cache": {"served": "manual", "passed_over": {}}}
    assert footer.title(resolved) == "evaluate: qwen, cache auto (manual)"
    resolved["options"] = {**result["options"], "cache": "manual"}
    assert footer.title(resolved) == "evaluate: qwen, cache manual"
    assert footer.under(result) == "bfloat16 on cpu, 24 prompts of recall"
    both = footer.under({**result, "bench": {"dtypes": ["float32", "bfloat16"]}})
    assert both.startswith("float32 and bfloat16 on cpu")
    assert (
        footer.under({"environment": {"device": "none", "date": "2026-11-23T08:00:00"}})
        == "2026-11-23 08:00"
    )
    assert footer.under({"date": "2026-11-23T08:00:00", "stages": []}) == "2026-11-23 08:00"
    environment, again = footer.sections(result, Path())
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
    assert footer.title(result, tmp_path) == "experiment: tiny, cache view"
    (tmp_path / ".hydra").mkdir()
    words = ["prune=none", "prompt.seed=2", "prune.ratio=0.5", "steps=6", "name=n", "text='a b'"]
    (tmp_path / ".hydra" / "overrides.yaml").write_text(json.dumps(words))
    assert (
        footer.title(result, tmp_path) == "experiment: tiny, cache view, prune none, prompt.seed 2"
    )
    assert footer.under(result, point=tmp_path).endswith(", 2026-11-23")  # which other points share
    said = footer.under(result, tmp_path)
    assert (
        said == "float32 on cpu, prompt text, steps 6, 2026-11-23 08:00"
    )  # no ratio of what was not pruned, and the text in place of an option that was not read
    (tmp_path / ".hydra" / "overrides.yaml").write_text(json.dumps([*words[:-1], "text=null"]))
    assert footer.under(result, tmp_path).startswith("float32 on cpu, prompt recall, ")
    resumed = {**result, "environment": {"command": ["python", "-m", "harness", "-m", "resume=x"]}}
    assert "steps 6" in footer.title(resumed, tmp_path)
    alone = {
        **result,
        "task": "evaluate",
        "environment": {"command": ["python", "-m", "harness", "steps=6"]},
    }
    assert footer.title(alone, tmp_path) == "n (evaluate): tiny, cache view"
    assert footer.named("ev", alone, tmp_path) == "ev (evaluate): tiny"
    assert footer.named("evaluate", alone, tmp_path) == "evaluate: tiny"
    bent = {**alone, "task": "faults", "options": {**result["options"], "fault": "swap"}}
    assert footer.named("faults", bent, tmp_path) == "faults: tiny, fault swap"
    assert footer.named("ev", {**alone, **result}, tmp_path).endswith("prune none, prompt.seed 2")


def test_a_point_of_a_sweep_is_run_alone_by_a_command_of_its_own(tmp_path) -> None:
    typed = ["python", "-m", "harness", "-m", "prune=knorm,tova", "steps=8"]
    where = {"versions": {}, "git": {}, "command": typed}
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "overrides.yaml").write_text("[prune=tova, steps=8]")
    audit = "python -m harness task=audit run=r"
    _, said = footer.sections({"environment": where}, tmp_path, [audit])
    whole, alone, last = said["pre"].splitlines()
    assert whole.endswith("-m prune=knorm,tova steps=8") and last == audit
    assert (
        alone == "python -m harness prune=tova steps=8" and "the second this point" in said["text"]
    )
    _, said = footer.sections({"environment": where}, tmp_path / "elsewhere", [audit])
    assert len(said["pre"].splitlines()) == 2 and not said["text"]
    assert not footer.sections({"environment": {**where, "command": typed[:3]}}, tmp_path, [audit])[
        1
    ]["text"]
    for more, says in ([], "out=a is taken by then: give another."), (["overwrite=true"], ""):
        out = {**where, "command": [*typed[:3], "task=save", "out=a", *more]}
        assert footer.sections({"environment": out}, tmp_path / "elsewhere")[1]["text"] == says


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


def test_two_places_are_told_apart_by_the_last_parts_that_differ() -> None:
    assert words.apart(["/a/runs/chat/1", "/a/runs/chat/2"]) == ["chat/1", "chat/2"]
    assert words.apart(["runs/x/1/snapshot", "runs/y/1/snapshot"]) == ["x", "y"]
    assert words.apart(["runs/x/1", "runs/y/2"]) == ["x/1", "y/2"]
    assert words.apart(["runs/x", "runs/x/1"]) == ["runs/x", "x/1"]
    assert words.apart(["runs/x", "runs/x"]) == ["x", "x"]
    assert words.apart(["/a/b/x.bin", "/x.bin"]) == ["b/x.bin", "x.bin"]
    assert words.apart(["runs/x"]) == ["runs/x"]


def test_words_between_backticks_are_code_and_nothing_else_is():
    told = html.page(
        "T", [html.section("S", text="pass `a.b=1` <now>, or `it")], "refused", "see `x`"
    )
    assert "pass <code>a.b=1</code> &lt;now&gt;, or `it" in told and "see <code>x</code>" in told
    assert "<code>&lt;b&gt;</code>" in html.page("T", [html.section("S", text="`<b>`")])
