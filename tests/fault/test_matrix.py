"""The whole matrix once, on the shipped model: every row is held to the table."""

import json

import pytest
from table import CASES, CAUSE

from harness.fault.base import Fault
from harness.fault.registry import every
from harness.report.faults import still
from harness.task.faults import plain
from harness.track import contents, metrics

COLUMN = {"v": "validation", "d": "digest", "i": "identity", "l": "logits"}


@pytest.fixture(scope="module")
def matrix(tmp_path_factory):
    """Rows of faults.json by fault, and the command's exit code, result and page."""
    from harness.report.terminal.console import Say
    from harness.task import faults

    folder = tmp_path_factory.mktemp("faults")
    outcome = faults.run(_config(), folder, Say(quiet=True))
    rows = json.loads((folder / "faults.json").read_text())
    return outcome, {row["fault"]: row for row in rows}, folder


def _config(*overrides):
    from hydra import compose, initialize_config_dir

    from harness import config

    config.register()
    with initialize_config_dir(str(config.conf_dir()), version_base="1.3"):
        return config.typed(compose("config", ["task=faults", "track=none", "steps=6", *overrides]))


def test_the_table_lists_every_fault():
    known = [row.name for fault in every().values() for row in fault.rows()]
    assert [*CASES, "none"] == sorted(known, key=[*CASES, "none"].index)


@pytest.mark.parametrize("name", CASES)
def test_the_fault_is_named_by(name, matrix):
    row = matrix[1][name]
    missing = [COLUMN[c] for c in CASES[name] if not row[COLUMN[c]]]
    assert not missing, row
    assert row["plain"] in (plain.ERROR, plain.WRONG, plain.DRIFT, plain.NOTHING)


def test_the_table_says_the_cause_of_every_fault():
    rows = [row for fault in every().values() for row in fault.rows() if row.name != "none"]
    assert {row.name: row.expected for row in rows} == CAUSE


def test_the_diagnosis_names_the_cause(matrix):
    outcome, rows, _ = matrix
    wrong = {name: rows[name]["cause"] for name in CAUSE if rows[name]["cause"] != CAUSE[name]}
    assert len(wrong) <= 0.05 * len(CAUSE), wrong
    assert all(rows[name]["evidence"] for name in CAUSE)
    right = len(CAUSE) - len(wrong)
    assert f"cause right in {right} of {len(CAUSE)}" in outcome.reason
    assert "0 false alarms in 200 clean runs" in outcome.reason


def test_coverage_and_seconds_are_said(matrix):
    assert "Known field bugs: 22 of 24" in matrix[0].reason
    took = {check: sum(r[f"{check}_s"] for r in matrix[1].values()) for check in COLUMN.values()}
    told = matrix[0].reason.split("Time: ")[1]
    assert all((f"{check} " in told) == (took[check] >= 0.05) for check in took)


def test_the_control_is_clean_and_nothing_goes_undetected(matrix):
    outcome, rows, _ = matrix
    control = rows["none"]
    assert not any(control[c] for c in COLUMN.values())
    assert control["plain"] == plain.NOTHING
    assert control["verdict"] in ("exact", "equivalent")
    assert outcome.exit_code == 0, outcome.reason


def test_its_record_counts_what_was_found(matrix):
    """Its verdict is the control's, and no tag."""
    result = json.loads((matrix[2] / "result.json").read_text())
    told = {key: value for key, value, _ in metrics.metrics(result) if key.startswith("faults/")}
    seen = sum(any(row[c] for c in COLUMN.values()) for row in matrix[1].values())
    right = int(matrix[0].reason.split("cause right in ")[1].split()[0])
    assert told == {"faults/total": len(CASES), "faults/caught": seen, "faults/missed": len(CASES) - seen,
                    "faults/false_alarms": 0, "faults/diagnosed": right}  # fmt: skip
    tags = contents.tags(matrix[2], result)
    assert tags["outcome"] == "every fault caught" and "verdict" not in tags


def test_of_every_fault_that_moves_no_logit_it_is_said_why_it_matters(matrix):
    quiet = [r for r in matrix[1].values() if r["fault"] != "none" and still(r)]
    assert quiet and [r["fault"] for r in quiet if not r["why"]] == []


def test_logits_alone_catch_whatever_moves_a_logit_beyond_the_noise(matrix):
    for row in matrix[1].values():
        if row["shift"] is not None and row["shift"] > 16:
            assert row["logits"], row


def test_a_plain_script_mostly_goes_on_talking(matrix):
    silent = [r for r in matrix[1].values() if r["plain"] in (plain.WRONG, plain.DRIFT)]
    assert len(silent) > 30


def test_faults_that_move_no_logit_say_why_they_matter(matrix):
    for row in matrix[1].values():
        if row["fault"] != "none" and row["shift"] is not None and not row["logits"]:
            assert row["why"] or row["validation"], row["fault"]


def test_the_page_shows_every_fault_and_fetches_nothing(matrix):
    page = (matrix[2] / "report.html").read_text()
    assert all(name in page for name in CASES)
    assert "://" not in page.replace("http://www.w3.org", "")
    assert not (matrix[2] / "scratch").exists()


def test_a_diagnosis_that_guesses_is_counted_as_wrong():
    """The twin: the same cause for every fault is right only where it is."""
    from harness.task.faults import accuracy

    rows = [
        {"fault": name, "cause": "rounding", "expected": cause} for name, cause in CAUSE.items()
    ]
    right, wrong = accuracy.top1(rows)
    assert right == list(CAUSE.values()).count("rounding")
    assert len(wrong) == len(CAUSE) - right
    assert "layer_swap (rounding for layer)" in accuracy.line(rows)
    (swapped,) = (row for row in rows if row["fault"] == "layer_swap")
    assert accuracy.line([swapped]) == "Diagnosis: the wrong cause, rounding for layer"
    assert accuracy.line([swapped | {"cause": "layer"}]) == "Diagnosis: the right cause, layer"
    assert "%" not in accuracy.line(rows) and "%)" in accuracy.line(rows, 3)


def test_a_sick_run_among_the_clean_ones_raises_an_alarm(session, monkeypatch):
    """The twin of no false alarm: one number too many, and the line says so."""
    from harness.fault import edit
    from harness.task.faults import accuracy

    honest = accuracy.healthy
    monkeypatch.setattr(
        accuracy, "healthy",
        lambda *given: edit.layers(honest(*given), lambda k: k + 0.1 * (k == k.max())),
    )  # fmt: skip
    said = accuracy.alarms(session(), 3)
    assert len(said) >= 3
    assert "false alarms in 3 clean runs" in accuracy.line([], 3, said)


def test_a_fault_that_nobody_notices_fails_the_task(tmp_path, monkeypatch):
    """The twin: a fault that damages nothing cannot be caught, and the task must say so."""
    from harness.fault import registry
    from harness.report.terminal.console import Say
    from harness.task import faults

    class Harmless(Fault):
        name, element, bed = "harmless", 1, "plain"

    known = {"none": every()["none"], "harmless": Harmless()}
    monkeypatch.setattr(registry, "every", lambda: known)
    monkeypatch.setattr(faults, "every", lambda: known)
    outcome = faults.run(_config(), tmp_path, Say(quiet=True))
    assert outcome.exit_code == 1
    assert "1 fault, harmless: not noticed" in outcome.reason
    assert ">not caught</span>" in (tmp_path / "report.html").read_text()


def test_the_first_sentence_says_how_many_faults_no_restore_refuses():
    """The twin: `all noticed` alone sounds as if nothing damaged were ever restored."""
    from harness.task.faults import noticed

    def row(fault, strict, *by):
        checks = ("validation", "digest", "identity", "logits")
        return {"fault": fault, "strict": strict, **{c: c in by for c in checks}}

    refused, late = row("a", "refused", "digest"), row("b", "diverged", "logits")
    unseen = row("c", "exact")
    said = noticed([refused, refused, late], [], True)
    where = ", 2 by a restore that refuses them, 1 only by what is said after it"
    assert said == f"3 faults: all noticed{where}"
    assert noticed([refused, refused], [], True) == "2 faults: all noticed"
    third = noticed([refused, refused, late, unseen], ["c"], True)
    assert third == f"4 faults: 3 noticed{where}; 1 not: c"


def test_one_fault_is_asked_and_the_last_word_is_what_was_found(harness):
    """The twin of `verdict: EQUIVALENT` below a table of faults, and a name that is none."""
    asked = ("task=faults", "track=none", "steps=2", "compare.oracle=false")
    done = harness(*asked, "task.only=[layer_swap]")
    assert done.code == 0 and "EQUIVALENT" not in done.out, done.out
    found = "1 fault, layer_swap: noticed by logits (the next token's scores)"
    assert done.out.startswith(f"{found}.") and done.out.count(found) == 1  # not told twice
    assert done.result["verdict"] in ("exact", "equivalent")  # of the control
    page = (done.folders[0] / "report.html").read_text()
    assert ">caught</span>" in page and "every fault" not in page and "%)" not in done.out
    assert "Diagnosis: the right cause, layer." in done.out and "How many each check" not in page
    assert "What the plain script does" not in page and "why they still matter" not in page
    assert "logits (does the restored state give the next tokens" in page
    wrong = harness(*asked, "task.only=[layer_swp]")
    assert wrong.code == 2 and "Did you mean 'layer_swap'?" in wrong.out


@pytest.mark.parametrize("bed, row", [("plain", "layer_swap"), ("windowed", "window_ignored")])
def test_a_check_that_cries_whatever_happens_is_told_bed_by_bed(tmp_path, monkeypatch, bed, row):
    """It notices the fault, and would notice none just as well: on that bed, or on copies alone."""
    from harness.compare.identity import Difference
    from harness.report.terminal.console import Say
    from harness.task import faults
    from harness.task.faults import columns

    real = columns.identity

    def crying(session, state, sampler):
        windowed = any(layer.window for layer in state.layers)
        other = windowed if bed == "windowed" else session.loaded is not shared
        return (
            [Difference("2 weights", "norm", "a", "b")] if other else real(session, state, sampler)
        )

    cfg = _config(f"fault={row}")
    shared = faults.Session.open(faults.one_thread(cfg), tmp_path, Say(quiet=True)).loaded
    monkeypatch.setattr(columns, "identity", crying)
    outcome = faults.run(cfg, tmp_path, Say(quiet=True))
    assert outcome.verdict == "failed" and f"NOT clean ({bed})" in outcome.reason, outcome.reason
    page = (tmp_path / "report.html").read_text()
    assert "not every fault caught" in page and ">not caught<" not in page, "it was noticed"
