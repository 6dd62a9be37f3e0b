"""An evaluation's record, run again: the honest one is the same, and whoever edits an answer, a row or an interval
and renews the seal is told, with everything that follows edited too or not."""

import csv
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.pipeline.evaluation.progress import Progress
from harness.pipeline.evaluation.record import Evaluation
from harness.report import sweep
from harness.results import points as facts
from harness.snapshot import record
from harness.snapshot.result import write_json
from harness.task.audit import evaluation, replay
from harness.task.audit import sweep as sweeps
from harness.task.audit.checked import checked

ASK = ("task=evaluate", "prompt=recall", "prompt.distance=24", "prompt.samples=3", "steps=4",
       "task.prunes=[random]", "task.quantizers=[none,int8]", "task.budgets=[0.25]",
       "task.asked=[after]", "name=told")  # fmt: skip


Row = dict[str, Any]


def of(folder: Path) -> Evaluation:
    return Evaluation.read(record.read(folder / "result.json"), folder.joinpath)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[Path, Path, Path]:
    """A record, its audit, and the same in float64. Where the answers of a stopped evaluation lie, all of
    the record's lie forged: nobody may go on from there."""
    from harness import __main__ as front

    place = tmp_path_factory.mktemp("evaluated")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr(Progress, "end", lambda self: None)

        def run(name: str, *arguments: str) -> Path:
            line = ["harness", *arguments, "track=none", f"hydra.run.dir={place / name}"]
            patch.setattr(sys, "argv", line)
            assert front.main() == 0
            return place / name

        told = run("told", *ASK)
        (store,) = place.glob("runs/.evaluate/*.jsonl")
        kept = [json.loads(line) for line in store.read_text().splitlines() if line]
        forged = [[key, q, [{**a, "said": "no"} for a in said]] for key, q, said in kept]
        store.write_text("\n".join(map(json.dumps, forged)))
        return told, run("audit", "task=audit", f"run={told}"), run("exact", *ASK, "dtype=float64")


@pytest.fixture
def copy(runs, tmp_path) -> Path:
    return Path(shutil.copytree(runs[0], tmp_path / "told"))


def answers(edit: Callable[[list[Row]], object]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        lines = of(folder).answers
        edit(lines)
        (folder / "answers.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    return apply


def rows(**values: Any) -> Callable[[Path], None]:
    """The row of right answers of the pruned cell, edited."""

    def apply(folder: Path) -> None:
        table = json.loads((folder / "evaluate.json").read_text())
        row = next(r for r in table if r["prune"] == "random" and r["measure"] == "contains")
        row.update(values)
        write_json(folder / "evaluate.json", table)

    return apply


def coded(folder: Path) -> None:
    result = record.read(folder / "result.json")
    result["evaluation"]["code"] = "cannot_tell"
    write_json(folder / "result.json", result)


def averaged(edit: Callable[[Path], None]) -> Callable[[Path], None]:
    """The same, with every row that its answers give."""

    def apply(folder: Path) -> None:
        edit(folder)
        write_json(folder / "evaluate.json", of(folder).averages)

    return apply


def reseal(folder: Path) -> None:
    """As who has the code does."""
    result, sealed = record.read(folder / "result.json"), record.read(folder / record.NAME)
    record.seal(folder, result, sealed["config"], sealed["packages"])


def right(lines: list[Row]) -> None:
    """An answer that was wrong, right."""
    line = next(one for one in lines if not one["contains"])
    whole = next(one for one in lines if one["question"] == line["question"])
    line |= {key: whole[key] for key in ("said", "ids", "exact", "contains", "divergence_step")}


def marked(lines: list[Row]) -> None:
    next(one for one in lines if not one["contains"])["contains"] = 1.0


def likely(lines: list[Row]) -> None:
    lines[-1]["nll"] *= 0.5


def left_out(lines: list[Row]) -> None:
    lines[:] = [line for line in lines if line["question"] != "2/after"]


def asked(folder: Path) -> None:
    path = folder / "questions.jsonl"
    path.write_text(path.read_text().replace("what", "who", 1))


ALL = {"value": 1.0, "low": 0.9, "high": 1.0, "delta": 0.0, "delta_low": -0.1, "delta_high": 0.1}
# what is forged -> (how, what the audit must name)
FORGED = {
    "an answer": (answers(lambda lines: lines[-1].update(said=" k is 5 .")), "answers.jsonl: 2/after"),
    "an answer and all that follows": (averaged(answers(right)), ": said"),
    "a mark": (averaged(answers(marked)), "contains"),
    "a likelihood": (averaged(answers(likely)), "nll"),
    "a row": (rows(value=1.0), "evaluate.json: random 25%, auto, asked after contains: value"),
    "a whole row": (rows(**ALL), "contains: value"),
    "an interval": (rows(low=0.5), "contains: low"),
    "a difference's interval": (rows(delta_low=-0.001), "contains: delta_low"),
    "bytes": (rows(kv_bytes=1.0), "contains: kv_bytes"),
    "a code": (coded, "evaluation.code"),
    "an answer left out": (answers(lambda lines: lines.pop(-1)), "answers.jsonl: answers"),
    "a question left out": (averaged(answers(left_out)), "answers.jsonl: answers"),
    "an answer twice": (answers(lambda lines: lines.append(lines[-1])), "answers.jsonl: answers"),
    "a question": (asked, "questions.jsonl: 0"),
    "no form": (answers(lambda lines: lines[0].pop("ids")), "result.json"),
}  # fmt: skip


def test_the_record_is_the_same_and_the_second_run_went_on_from_nothing(runs) -> None:
    told, again, _ = runs
    document = json.loads((again / "audit.json").read_text())
    assert (document["verdict"], document["compared"]) == ("same", "bitwise")
    assert document["differences"] == [] and list(checked(again)) == []
    ours, second = (finite_answers(folder) for folder in (told, again / "again" / "run"))
    assert ours == second and not any(line["said"] == "no" for line in second)
    assert {"evaluate.json", "answers.jsonl", "questions.jsonl"} <= set(
        record.read(told / record.NAME)["files"]
    )


def test_what_the_answers_do_not_give_is_named_without_a_second_run(copy) -> None:
    assert list(evaluation.following(of(copy))) == []
    answers(marked)(copy)
    named = {f.what: (f.recorded, f.found) for f in evaluation.following(of(copy))}
    ((_, values),) = [(k, v) for k, v in named.items() if k.startswith("answers.jsonl: ")]
    assert values == (1.0, 0.0) and any("contains: value" in what for what in named)


def test_the_auditors_evidence_holds_the_answers(runs, tmp_path) -> None:
    """Whoever edits those of the second run is told what the report does not say."""
    audit = Path(shutil.copytree(runs[1], tmp_path / "audit"))
    assert list(checked(audit)) == []
    (path,) = audit.glob("evidence-*-again-answers.jsonl")
    path.write_text(path.read_text().replace('"said": " ', '"said": "', 1))
    document = record.read(audit / "audit.json")
    (told,) = document["evidence"].values()
    told["again"]["answers.jsonl"] = record.digest_bytes(path.read_bytes())
    write_json(audit / "audit.json", document)
    named = [f.what for f in checked(audit) if "the report does not say so" in f.explanation]
    assert any(": answers.jsonl: 0/after" in what for what in named), named


RENEWED = {
    "again": ("sweep.csv", "answers.csv"),
    "without it": ("sweep.csv",),
    "an older sweep": (),
}


@pytest.mark.parametrize("sealed", ["as it was", *RENEWED])
def test_the_table_of_cells_of_a_sweep_says_what_its_points_say(runs, tmp_path, sealed) -> None:
    """Also where who edited it renewed the seal, or left it out."""
    points = [Path(shutil.copytree(runs[0], tmp_path / n)) for n in "01"]
    sweep.write(tmp_path, facts.rows(points), 2)
    seal(tmp_path, points, "answers.csv", "sweep.csv")
    assert list(sweeps.summary(tmp_path, points)) == []
    table = tmp_path / "answers.csv"
    honest = table.read_text()
    lines = [*csv.reader(honest.splitlines())]
    lines[1][lines[0].index("contains")] = "0.123"
    table.write_text("".join(",".join(line) + "\n" for line in lines))
    if sealed != "as it was":
        seal(tmp_path, points, *RENEWED[sealed])
    named = {f.what: f.recorded for f in sweeps.summary(tmp_path, points)}
    assert named.pop("answers.csv: contains") == "0.123"
    assert [*named] == ["answers.csv"] * (sealed == "as it was")
    table.write_text(honest.rstrip().rpartition("\n")[0] + "\n")
    assert "answers.csv: rows" in [f.what for f in sweeps.summary(tmp_path, points)]


def seal(folder: Path, points: list[Path], *names: str) -> None:
    """The document of a sweep that ended with these files; with no name, as one had none."""
    files = {name: record.digest_bytes((folder / name).read_bytes()) for name in names}
    records = {p.name: record.read(p / record.NAME)["id"] for p in points}
    told = {"sealed": {"records": records, **files}} if names else {}
    write_json(folder / "sweep.json", {"finished": len(points), **told})


def finite_answers(folder: Path) -> list[Row]:
    return [{k: v for k, v in line.items() if k != "per_token_s"} for line in of(folder).answers]


@pytest.mark.parametrize("what", FORGED)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
def test_a_forged_evaluation_differs(runs, copy, what: str, elsewhere: bool) -> None:
    """And where the forger claims another processor: rounding explains none of it."""
    _, again, exact = runs
    if elsewhere:
        moved(copy)
    FORGED[what][0](copy)
    reseal(copy)
    named = judged(copy, again / "again" / "run", exact)
    assert any(FORGED[what][1] in name for name in named), named


def moved(folder: Path) -> None:
    """What may change the last bit is claimed to be another."""
    result = record.read(folder / "result.json")
    result["environment"]["cpu"] = "another"
    write_json(folder / "result.json", result)


def judged(point: Path, fresh: Path, third: Path) -> list[str]:
    """What an audit names; `third` in place of its run in another precision."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "rerun", lambda *_: {point: third})
        findings, changed = replay.reproduced(point, fresh)
        if replay.rounded(point, fresh, changed):
            findings += replay.floors(None, {point: fresh}, point, point)[point][0]
    return [finding.what for finding in findings]


def test_elsewhere_what_rounding_moves_is_the_same_and_near_ties_are_told(runs, copy) -> None:
    _, again, exact = runs
    fresh = again / "again" / "run"
    moved(copy)
    assert judged(copy, fresh, exact) == []
    averaged(answers(lambda lines: [rounded(line) for line in lines]))(copy)
    assert judged(copy, fresh, exact) == []
    was, now, third = map(of, (copy, fresh, exact))
    assert evaluation.apart(was, now) and not evaluation.apart(now, now)
    assert evaluation.rounding(was, now, third) == ([], {})
    findings, _ = evaluation.rounding(was, now, None)
    assert len(findings) == len(was.answers) and "no floor" in findings[0].explanation
    answers(right)(copy)
    near = [{**a, "margin": 0.0} for a in now.answers]
    tie = evaluation.rounding(of(copy), replace(now, answers=near), third)
    assert tie[0] == [] and [*tie[1]] == [f"1 of {len(near)} answers"]


def rounded(line: Row) -> None:
    line["nll"] *= 1 + 2**-25
