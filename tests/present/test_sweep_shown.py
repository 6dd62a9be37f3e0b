"""How a sweep looks: console, page and the table for MLflow show the same facts, and notes can be codes."""

import re
from typing import get_args

from sweeps import EXACT, facts, rows

import harness
from harness.present import messages
from harness.present import sweep as shown
from harness.present.table import markdown
from harness.report.sweep import drawn, tone
from harness.results import metric
from harness.results.sweep import NoteCode


def labelled(sweep) -> dict[str, str]:
    told = shown.closing(sweep)
    return dict([*told.lines, *told.after])


def test_every_note_has_its_sentence_and_no_other_code_has_one() -> None:
    assert set(messages.NOTES) - {"damage_missed"} == set(get_args(NoteCode))
    assert len(get_args(NoteCode)) <= 12


def test_console_page_and_server_have_the_recommended_point_the_notes_and_the_rule(
    tmp_path,
) -> None:
    sweep = facts(EXACT, {"prune": "a"}, {"prune": "random", "kl_mean": 0.1}, folder=tmp_path)
    lines, page = labelled(sweep), drawn(sweep, "s")
    words, sentence, table, best = shown.described(sweep)
    assert best == "1" and words == lines["verdicts"] == "1 exact, 2 diverged"
    for text in (lines["best"], sentence, page):
        assert (
            "Nearest to the full cache: prune=a" in text
            and "Baseline, the full cache: prune=none" in text
        )
    for text in (str(shown.closing(sweep).lines), sentence, page):
        assert "No nearer than chance: the control, prune=random, has 0.1 nats." in text
    assert lines["ranking"] == messages.RANKING and "Ranked by: points below" in page
    assert table.splitlines()[0].startswith("| point | prune | verdict |")
    assert re.search(r'<td[^>]*class="[^"]*soft best nearest"', page)


def test_a_sweep_with_points_that_came_to_no_end_says_why_and_how_to_go_on(tmp_path) -> None:
    failed = {
        "prune": "b",
        "verdict": "failed",
        "outcome": "failed",
        "exit_code": 2,
        "reason": "no such file",
    }
    sweep = facts({"prune": "a"}, failed, folder=tmp_path)
    lines, page = labelled(sweep), drawn(sweep, "s")
    assert "1 failed: no such file" in str(shown.closing(sweep).lines)
    assert (
        lines["exit code"] == "2: 1 of 2 points came to no end" and "resume=" in lines["run again"]
    )
    assert "What failed" in page and "no such file" in page and "1 of 2 not as required" in page
    part = facts({"prune": "a"}, {"prune": "b", "exit_code": 1}, asked=5, folder=tmp_path)
    lines = labelled(part)
    assert lines["missing"] == "3 of 5" and "resume=" in lines["go on with"]
    assert lines["exit code"] == "1: 1 of 2 points are worse than required"
    assert "Missing" in drawn(part, "s") and shown.outcome(part).startswith("2 of 5 points: ")
    assert "exit code" not in labelled(facts({"prune": "a"}, {"prune": "b"}, folder=tmp_path))


def test_notes_are_codes_where_codes_are_asked_for(tmp_path, monkeypatch) -> None:
    sweep = facts({"seed": "1"}, {"seed": "2"}, folder=tmp_path)
    assert "The seed draws nothing with sampling=greedy." in shown.notes(sweep)
    monkeypatch.setenv("HARNESS_MESSAGES", "codes")
    assert "seed_inert" in shown.notes(sweep)
    assert "seed_inert" in drawn(sweep, "s") and "draws nothing" not in drawn(sweep, "s")


def test_a_registered_metric_is_called_by_its_label(tmp_path, monkeypatch) -> None:
    @harness.metric(label="Jensen-Shannon divergence", unit="nats")
    def js(restored, reference, next_ids):
        """Of the next token."""

    monkeypatch.setitem(metric._KNOWN, "mine.js", js)
    sweep = facts({"prune": "a", "js": 0.1}, {"prune": "b", "js": 0.2}, folder=tmp_path)
    for text in (
        drawn(sweep, "s"),
        markdown(shown.table(sweep, ())),
        str(shown.closing(sweep).table),
    ):
        assert "Jensen-Shannon divergence" in text
    assert "js" not in sweep.axes


def test_pruned_points_as_allowed_are_grey_and_what_misses_its_requirement_is_red() -> None:
    good, bad = rows({}, {"exit_code": 1})
    assert tone(good) == "soft" and tone(bad) == "bad"
    (codes,) = rows({"quantize": "kivi", "prune": "none", "kept_tokens": 97})
    assert tone(codes) == "soft", "what codes alone changed is as free"
    (plain,) = rows({"kept_tokens": 97, "prune": "none"})
    assert tone(plain) == "bad", "nothing was to change it"


def test_seeds_are_pooled_into_a_line_per_setting_with_median_and_worst(tmp_path) -> None:
    sweep = facts(
        *({"prune": p, "seed": s, "kl_mean": kl, "exit_code": code} for p, s, kl, code in
          (("a", "1", 0.1, 0), ("a", "2", 0.2, 0), ("a", "3", 0.3, 0), ("b", "1", 0.5, 0), ("b", "2", 0.6, 0), ("b", "3", 0.7, 1))),
        folder=tmp_path,
    )  # fmt: skip
    best = shown.recommended(sweep)
    assert "KL, mean (nats) median 0.2, worst 0.3" in best and "3 of 3 as required" in best
    block = drawn(sweep, "s").partition("Over the seeds")[2]
    assert "3 of 3" in block and "2 of 3" in block
