"""The facts of a sweep: what varied, which setting ranks first, what ties, and each kind of note."""

import json
from typing import Any

import pytest
from sweeps import EXACT, facts, rows

from harness.present import sweep as shown
from harness.report.sweep import write
from harness.results import points
from harness.results.sweep import NoteCode, Sweep


def codes(sweep: Sweep) -> dict[NoteCode, dict[str, Any]]:
    return {note.code: note.args for note in sweep.notes}


def test_the_nearest_is_recommended_within_5_percent_the_smaller() -> None:
    far = facts({"prune": "a", "kl_mean": 0.1}, {"prune": "b", "kl_mean": 0.2, "stored_bytes": 9})
    assert far.marked == ("0",) and far.best_point == "0"
    near = facts(
        {"prune": "a", "kl_mean": 0.1}, {"prune": "b", "kl_mean": 0.104, "stored_bytes": 9}
    )
    assert near.marked == ("1",), "as near, and smaller"
    same = facts({"prune": "a"}, {"prune": "b"}, {"prune": "c", "kl_mean": 0.9})
    assert same.marked == ("0", "1") and codes(same)["tied"] == {"settings": [{"prune": "b"}]}
    assert facts({"prune": "a"}, {"prune": "b"}).best is None, "where all tie none is best"


@pytest.mark.parametrize(
    "better, worse",
    [
        ({"exit_code": 0, "kl_mean": 0.9}, {"exit_code": 1, "kl_mean": 0.1}),
        ({"answer": "right", "kl_mean": 0.9}, {"answer": "wrong", "kl_mean": 0.1}),
        ({"mutated": False, "kl_mean": 0.9}, {"mutated": True, "kl_mean": 0.1}),
        ({"save": "torch", "kl_mean": 0.9}, {"save": "memory", "kl_mean": 0.1}),
        ({"verdict": "exact", "kl_mean": 0.0, "stored_bytes": 9e9}, {"verdict": "equivalent", "kl_mean": 1e-9}),
        ({"verdict": "equivalent", "kl_mean": 1e-9, "stored_bytes": 1}, {"verdict": "equivalent", "kl_mean": 1e-12}),
        ({}, {"verdict": "failed", "exit_code": 2, "kl_mean": None, "stored_bytes": None}),
    ],
)  # fmt: skip
def test_each_rank_comes_before_the_next(better, worse) -> None:
    for order in ((better, worse), (worse, better)):
        found = facts(*({"cache": str(id(one)), "save": "torch", **one} for one in order))
        assert found.marked == (str(order.index(better)),) or any(
            row["verdict"] == "failed" for row in found.points
        ), found.settings
        assert found.settings[0].points[0]["point"] == str(order.index(better))


def test_what_writes_into_the_callers_cache_and_a_control_are_never_recommended() -> None:
    all_write = facts(
        {"cache": "a", "mutated": True}, {"cache": "b", "mutated": True, "kl_mean": 0.5}
    )
    assert all_write.best is None and "all_mutate_cache" in codes(all_write)
    beside = facts({"prune": "random", "kl_mean": 0.1}, {"prune": "snapkv", "kl_mean": 0.2})
    assert beside.marked == ("1",) and codes(beside)["control_as_close"] == {"nats": 0.1}
    better = facts({"prune": "random", "kl_mean": 0.9}, {"prune": "snapkv", "kl_mean": 0.2})
    assert better.marked == ("1",) and "control_as_close" not in codes(better)


def test_the_full_cache_is_the_baseline_and_never_the_best() -> None:
    found = facts(EXACT, {"prune": "a"}, {"prune": "b", "kl_mean": 0.5})
    assert found.baseline and found.baseline.options == {"prune": "none"} and found.marked == ("1",)
    kept_all = facts(
        {"prune": "a", "kept_tokens": 97, **{"prune.ratio": "1"}}, {"prune": "b"}, {"prune": "c"}
    )
    assert kept_all.baseline and kept_all.baseline.points[0]["point"] == "0"
    caches = facts({**EXACT, "cache": "a"}, {**EXACT, "cache": "b", "stored_bytes": 9})
    assert caches.baseline is None and caches.marked == ("1",), "nothing was reduced"


def test_settings_are_pooled_over_what_was_asked() -> None:
    found = facts(
        {"prune": "a", "seed": "1", "kl_mean": 0.1}, {"prune": "b", "seed": "1", "kl_mean": 0.2},
        {"prune": "a", "seed": "2", "kl_mean": 0.5}, {"prune": "b", "seed": "2", "kl_mean": 0.2},
    )  # fmt: skip
    assert [s.options["prune"] for s in found.settings] == ["b", "a"] and found.marked == ("1", "3")
    assert found.best_point == "" and found.alike == ["1", "3"]
    assert found.settings[1].distance == 0.3 and codes(found)["few_prompts"] == {"n": 2}
    lacks = facts({"prune": "a", "seed": "1"}, {"prune": "b", "seed": "1", "kl_mean": 0.2}, {"prune": "b", "seed": "2", "kl_mean": 0.2})  # fmt: skip
    assert lacks.settings[0].options["prune"] == "b" and lacks.settings[1].missing == 1
    asked = facts({"text": "a"}, {"text": "b", "kl_mean": 0.2})
    assert asked.best is None, "other questions are no settings"


def test_every_kind_of_note_has_its_facts() -> None:
    below = facts({"prune": "a", "exit_code": 1}, {"prune": "b", "kl_mean": 0.5})
    assert codes(below)["below_requirement"] == {"n": 1, "of": 2, "points": ["prune=a"]}
    assert below.marked == ("1",), "as required comes before near"
    stopped = facts({"prune": "a", "verdict": "failed", "exit_code": 2, "reason": "runs/s/0/x is gone"},
                    {"prune": "b", "verdict": "failed", "exit_code": 2, "reason": "runs/s/1/x is gone"}, {"prune": "c"})  # fmt: skip
    assert codes(stopped)["stopped"] == {
        "points": ["0", "1"],
        "verdict": "failed",
        "reason": {"code": "summary", "args": {"message": ".../x is gone"}},
    }
    wrong = facts({"prune": "a", "answer": "wrong"}, {"prune": "b", "answer": "wrong"})
    assert "no_answer_right" in codes(wrong)
    assert "no_answer_right" not in codes(
        facts({"prune": "a", "answer": "wrong"}, {"prune": "b", "answer": "right"})
    )
    assert "seed_inert" in codes(facts({"seed": "1"}, {"seed": "2"}))
    assert "seed_inert" not in codes(facts({"seed": "1"}, {"seed": "2", "kl_mean": 0.5})), (
        "it draws something"
    )
    idle = facts({"quantize": "none"}, {"quantize": "int8"}, {"quantize": "int4", "kl_mean": 0.5})
    assert codes(idle)["quantizer_idle"] == {"quantizers": ["int8"]}
    tie = {**EXACT, "verdict": "equivalent", "cache": "a", "first_divergence_from_1": 3}
    near = codes(facts(tie, {**tie, "cache": "b", "first_divergence_from_1": None}))
    assert near["near_tie"] == {"points": ["cache=a"]}


def test_damage_is_noticed_or_not_and_nothing_is_recommended() -> None:
    found = facts(
        {"fault": "none", "verdict": "exact", "restore": "exact"}, {"fault": "bit_flip", "verdict": "refused", "exit_code": 3},
        {"fault": "layer_swap", "restore": "diverged"}, {"fault": "noise", "restore": "equivalent"},
        {"fault": "gone", "verdict": "failed", "exit_code": 2},
    )  # fmt: skip
    assert codes(found)["damage"] == {"noticed": 2, "of": 3, "missed": ["fault=noise"]}
    assert found.best is None


def test_a_search_recommends_its_front_by_the_first_objective(tmp_path) -> None:
    (tmp_path / "multirun.yaml").write_text(
        "hydra: {sweeper: {direction: [maximize, minimize]}}\nreport: {objectives: [evaluate.contains, evaluate.kv_bytes]}\n"
    )
    made = [{"verdict": "unjudged", "outcome": "done", "prune.ratio": ratio, "evaluate.contains": right, "evaluate.kv_bytes": size}
            for ratio, right, size in (("0.9", 1.0, 3072), ("0.4", 1.0, 1024), ("0.6", 0.5, 2048))]  # fmt: skip
    found = facts(*made, folder=tmp_path)
    assert found.searched and [r["point"] for r in found.front] == ["1"] and found.marked == ("1",)
    assert found.sought == [
        "evaluate.contains",
        "evaluate.kv_bytes",
    ] and "limit_not_reached" not in codes(found)
    made[2]["evaluate.contains"] = 1.0
    limit = codes(facts(*made, folder=tmp_path))["limit_not_reached"]
    assert limit == {"option": "prune.ratio", "side": "below", "value": 0.4}


def test_only_what_was_swept_varies() -> None:
    own = facts({"prune": "a", "js": 0.1}, {"prune": "b", "js": 0.2})
    assert own.axes == ("prune",), "a figure, be it of somebody's own metric, is no option"
    failed = facts(
        {"cache": "view"}, {"cache": None, "prune": "b", "verdict": "failed", "exit_code": 2}
    )
    assert failed.axes == ("prune",), "a point that could not be composed knows only what was typed"


def test_the_restore_is_a_column_beside_what_was_judged(recorded) -> None:
    result = {"itself": {"verdict": "equivalent", "against": "saved"}}
    assert points._restore(result) == {"restore": "equivalent"}
    assert points._restore({"itself": {"verdict": "equivalent", "against": "restored"}}) == {}
    row = points.row_of(recorded)
    assert row["verdict"] == points.rows([recorded])[0]["verdict"]
    assert points._plain_restore(row) == row["verdict"]
    assert points._plain_restore({**row, "quantize": "int8"}) is None, "codes are no fault of it"
    assert points._plain_restore({**row, "kept_tokens": 1}) is None


def test_the_table_reads_back_as_it_was_written(tmp_path) -> None:
    made = rows({"prune": "a"}, {"prune": "b", "mutated": None})
    write(tmp_path, made, 2)
    assert points.read_csv(tmp_path) == points.as_text(made)


FULL = ("none", 1.0, 1.0, 400_000, 0.0)


def evaluations(folder, *cells: tuple[str, float, float, int, float]) -> Sweep:
    """A sweep of evaluations: of each the cell beside the full cache (policy, budget, share right, bytes, lost)."""
    made = []
    for number, cell in enumerate(cells):
        (folder / str(number)).mkdir()
        lines = [
            {"prune": prune, "quantize": "none", "budget": budget, "cache": "auto", "asked": "after", "measure": measure,
             "value": value, "low": 0.0, "high": 1.0, "n": 4, "kv_bytes": held, "per_token_s": 0.001, "delta": -lost,
             "delta_low": -lost - 0.3, "delta_high": 0.0 if not lost else -lost}
            for prune, budget, right, held, lost in (FULL, cell)
            for measure, value in (("contains", right), ("nll", 1.0), ("kl", lost))
        ]  # fmt: skip
        (folder / str(number) / "evaluate.json").write_text(json.dumps(lines))
        made.append({"point": str(number), "verdict": "unjudged", "outcome": "done", "exit_code": 0, "reason": "r",
                     "task": "evaluate", "task.prunes": f"[{cell[0]}]"})  # fmt: skip
    return write(folder, made, None)


def test_of_evaluations_the_smallest_safe_cell_is_recommended_else_the_nearest(tmp_path) -> None:
    found = evaluations(tmp_path, ("snapkv", 0.25, 0.5, 100_000, 0.5), ("keydiff", 0.5, 1.0, 200_000, 0.0),
                        ("knorm", 0.25, 1.0, 150_000, 0.0))  # fmt: skip
    assert found.best_point == "2" and found.sought == ["cell.contains", "cell.kv_bytes", "cell.kl"]
    assert shown.outcome(found) == "2 of 3 safe: knorm 25%"
    assert shown.recommended(found).startswith(
        "Smallest safe cell: knorm 25% with task.prunes=[knorm]"
    )
    table = points.read_csv(tmp_path, points.CELLS)
    assert len(table) == 6 and table[1]["prune"] == "snapkv" and table[1]["contains"] == "0.5"
    (tmp_path / "lost").mkdir()
    none = evaluations(
        tmp_path / "lost", ("snapkv", 0.25, 0.25, 100_000, 0.75), ("knorm", 0.25, 0.5, 100_000, 0.5)
    )
    assert none.best_point == "1" and shown.recommended(none).startswith(
        "No safe cell; nearest: knorm 25%"
    )
    assert shown.outcome(none) == "none of 2 safe: knorm 25%"
