"""What a sweep says of points that are not what was asked for."""

import html
from pathlib import Path

from harness.report.sweep import choice, shortfall, summary
from harness.report.sweep import page as sweep
from harness.report.sweep.points import OWN, every

ROW = {"verdict": "diverged", "exit_code": 1, "reason": "r", "prune": "snapkv", "kl_mean": 0.13,
       "first_divergence": 1, "error_ratio": 3.8e5, "mutated": False, "point": "0"}  # fmt: skip


def test_which_failed_by_how_much_and_what_to_try() -> None:
    fine = ROW | {"verdict": "exact", "exit_code": 0, "prune": "none", "point": "1"}
    said = shortfall.sentence([ROW, fine], ["prune"], False)
    assert said == (
        "How far off: prune=snapkv: another token at step 2, mean KL 0.13 nats, error 3.8e+05 of rounding's own, "
        "2 allowed. Try to keep more of the context (a larger prune.ratio or prune.tokens)."
    )
    assert shortfall.sentence([fine], ["prune"], False) == ""
    assert shortfall.sentence([ROW | {"exit_code": 0}], ["prune"], False) == ""
    assert "How far off: prune=snapkv" in shortfall.sentence(
        [ROW | {"exit_code": 0}], ["prune"], True
    )
    many = [ROW | {"kl_mean": 0.1 * n, "seed": str(n)} for n in range(1, 6)]
    assert "; 2 more below" in shortfall.sentence(many, ["prune", "seed"], False)
    saved = [ROW | {"save": f} for f in ("gzip", "pickle")]  # a format moves no logit
    told = shortfall.sentence([*saved, many[1] | {"save": "gzip"}], ["prune", "save"], False)
    assert "prune=snapkv (2 points): another token" in told and "prune=snapkv save=gzip: " in told
    touched = ROW | {"prune": "none", "mutated": True, "cache": "dynamic"}
    assert "cache=cloned" in shortfall.sentence([touched], ["cache"], False)
    for moved in ({"prune": "snapkv"}, {"quantize": "int8"}):  # which no cache mends
        assert "cache=cloned" not in shortfall.sentence([touched | moved], ["cache"], False)
    assert shortfall.sentence([ROW | {"verdict": "refused"}], ["prune"], False) == ""


def test_codes_of_eight_bits_are_not_told_to_have_more() -> None:
    def tried(*changes: dict) -> str:
        rows = [ROW | {"prune": "none", "quantize": "int8"} | change for change in changes]
        return shortfall.sentence(rows, ["quantize"], False).partition("Try to ")[2]

    allow = "keep no codes (quantize=none), or allow what they change (compare.require=drifted)."
    assert tried({"verdict": "drifted"}) == allow
    every = allow.replace("=drifted", "=diverged")
    assert tried({"verdict": "drifted"}, {}) == every, "what lets all of them pass"
    both = tried(
        {"quantize": "int4", "verdict": "drifted"}, {"verdict": "drifted"}, {"quantize": "int4"}
    )
    assert "more bits" not in both, "eight were tried"
    assert tried({"verdict": "drifted", "quantize": "int4"}) == allow, "int8 drifts as well"
    assert tried({}) == tried({"quantize": "kivi", "quantize.bits": "8"}) == "keep no codes (quantize=none)."  # fmt: skip
    assert tried({"quantize": "int4"}) == "keep codes of more bits (quantize=int8)."
    assert tried({"prune": "snapkv", "verdict": "drifted"}).endswith("; or keep no codes (quantize=none).")  # fmt: skip


def test_a_point_that_writes_into_the_callers_cache_is_never_the_best() -> None:
    plain = {"exit_code": 0, "stored_bytes": 10, "answer": None}
    wrote = plain | {"verdict": "exact", "mutated": True, "point": "0"}
    read = plain | {"verdict": "equivalent", "mutated": False, "point": "1"}
    assert choice.best([wrote, read]) == [read]
    larger = wrote | {"stored_bytes": 20, "point": "2"}
    assert choice.best([wrote, larger]) == []
    assert choice.best([{**wrote, "mutated": False}, read]) == [{**wrote, "mutated": False}]


def test_an_exact_point_further_from_float64_than_an_equivalent_one_is_explained() -> None:
    exact = ROW | {"verdict": "exact", "error_ratio": 0.39, "exit_code": 0}
    other = ROW | {"verdict": "equivalent", "error_ratio": 0.36, "exit_code": 0, "point": "1"}
    told = every([exact, other], ["prune"], {}, {}, False)["text"]
    assert OWN[1:] in told
    nearer = exact | {"error_ratio": 0.3}
    assert OWN[1:] not in every([nearer, other], ["prune"], {}, {}, False)["text"]


def test_the_page_says_it_below_its_conclusion(tmp_path) -> None:
    rows = [
        ROW | {"outcome": "diverged", "answer": None, "noise_kl_max": None, "point": str(i)}
        for i in (0, 1)
    ]
    rows[1] |= {"prune": "random", "kl_mean": 0.2}
    said = html.unescape(sweep.drawn(tmp_path, rows, 2, "s"))
    assert '<p class="soft">How far off: prune=snapkv: another token at step 2' in said


def test_no_budget_and_no_code_mends_a_point_that_did_not_come_back() -> None:
    """The twin came back as saved: there a larger budget may help."""
    lost = ROW | {"restore": "diverged"}
    said = shortfall.sentence([lost, ROW | {"restore": "equivalent"}], ["prune"], False)
    assert said.startswith("Not back as saved: prune=snapkv. How far off: "), said
    assert said.count("another token") == 1 and "keep more of the context" in said, "the twin alone"
    alone = shortfall.sentence([lost], ["prune"], False)
    assert "keep more of the context" not in alone and "under Diagnosis" in alone, alone


def test_what_came_back_as_saved_is_said_to_have_and_what_moved_it():
    coded = ROW | {"prune": "none", "quantize": "int4", "restore": "equivalent"}
    said = shortfall.sentence([coded, coded], ["quantize"], False)
    assert "They came back as saved: quantizing alone moved their logits. Try to" in said
    both = coded | {"prune": "knorm"}
    assert "It came back as saved: pruning and quantizing alone moved its logits." in (
        shortfall.sentence([both], ["prune"], False)
    )
    assert "came back" not in shortfall.sentence([coded, ROW], ["prune"], False), "unknown of one"
    lost = coded | {"restore": "drifted"}
    told = shortfall.sentence([coded, lost], ["quantize"], False)
    assert told.startswith("Not back as saved: quantize=int4. ") and "It came back as saved" in told
    bent = [ROW | {"restore": "diverged", "fault": "swap", "prune": p} for p in ("a", "b")]
    sound = [{**row, "restore": "exact", "fault": "none", "exit_code": 0} for row in bent]
    told = shortfall.sentence([*bent, *sound], ["prune", "fault"], False)
    assert (
        told
        == "Not back as saved: both with fault=swap. The page of such a point says more under Diagnosis."
    )


def test_audits_that_differ_are_called_so_and_their_pages_list_it_under_differences() -> None:
    row = {"verdict": "diverged", "outcome": "differs", "exit_code": 1, "reason": "edited", "task": "audit"}  # fmt: skip
    rows = [row | {"run": name, "point": str(i)} for i, name in enumerate("AB")]
    said = shortfall.sentence(rows, ["run"], False)
    assert said.endswith("Try to follow what the page of such a point lists under Differences.")
    assert shortfall.differing(rows) == "2 of 2 differ."
    same = rows[0] | {"verdict": "exact", "outcome": "same", "exit_code": 0}
    assert shortfall.differing([same, rows[1]]) == "1 of 2 differs."
    assert shortfall.differing([same]) == "None of 1 differs."
    assert shortfall.differing([ROW, rows[1]]) == ""
    told = "\n".join(summary.closing(Path("s"), rows, 2, []))
    assert "conclusion:   2 of 2 differ. Varied: run." in told, told
    assert "2 points are worse than required (.../0, .../1: differs)" in told, told
