"""Why one of two runs alike is red, what it said, and what its snapshot needs: all on its own page."""

from harness.present import sweep as shown
from harness.results.sweep import sweep_of
from harness.snapshot.words import FORCED
from harness.track import contents, description

RESULT = {
    "task": "resume", "verdict": "diverged", "required": "equivalent", "reason": "step 2 chooses another token",
    "conclusion": "Another thought.", "curves": {"restored": {"kl": [1.0]}}, "folder": "runs/x", "elements": [],
    "metrics": {}, "noise_floor": {}, "text": {"continuation": " k is `5`", "restored": " k is 35"},
    "snapshot": {"id": "aa", "path": "a"}, "next": {"id": "bb", "path": "b", "beside": ["a"]},
}  # fmt: skip


def test_a_run_that_missed_what_was_required_says_so(tmp_path) -> None:
    note = description.note(RESULT, "1f", tmp_path)
    assert "this is diverged: exit code 1. compare.require=diverged lets it through" in note
    assert "What was said (uninterrupted): `' k is '5''`" in note
    assert f"What the restored run chooses {FORCED}: `' k is 35'`" in note
    assert "needs `a` beside it, which the run of `tags.snapshot_id = 'aa'` has" in note
    tags = contents.tags(RESULT, tmp_path)
    assert (tags["required"], tags["exit_code"]) == ("equivalent", "1")


def test_one_that_met_it_says_what_it_was_and_one_that_judged_nothing_says_neither(
    tmp_path,
) -> None:
    met = {**RESULT, "verdict": "exact", "next": None}
    assert contents.tags(met, tmp_path)["exit_code"] == "0"
    note = description.note(met, "1f", tmp_path)
    assert "Required: equivalent or better" in note and "beside it" not in note
    saved = {**RESULT, "curves": None, "next": None, "verdict": "unjudged"}
    assert not {"required", "exit_code"} & contents.tags(saved, tmp_path).keys()
    assert "Required" not in description.note(saved, "1f", tmp_path)


def test_a_refusal_is_found_by_its_exit_code_and_a_run_by_what_computed_it(tmp_path) -> None:
    made = {
        "device": "cpu",
        "versions": {"torch": "2.13.0", "transformers": "5.23.0", "mlflow": "3"},
    }
    refused = {**RESULT, "verdict": "refused", "exit_code": 3, "curves": None, "environment": made}
    tags = contents.tags(refused, tmp_path)
    assert tags["exit_code"] == "3" and tags["device.served"] == "cpu"
    assert (tags["torch"], tags["transformers"]) == ("2.13.0", "5.23.0")
    none = {**refused, "environment": {**made, "device": "none"}}
    assert "torch" not in contents.tags(none, tmp_path), "it loaded no model"
    part = contents.of_part({"task": "evaluate", "environment": {**made, "git": {"dirty": True}}})
    assert part["git_dirty"] == "true" and part["torch"] == "2.13.0"


def test_a_sweep_ends_with_the_code_of_its_worst_point_and_says_which(tmp_path) -> None:
    def line(*ended: tuple[str, int]) -> str:
        points = [{"point": f"{i}", "folder": "", "verdict": verdict, "exit_code": code, "reason": ""}
                  for i, (verdict, code) in enumerate(ended)]  # fmt: skip
        return " ".join(shown.exits(sweep_of(tmp_path, points)))

    assert line(("equivalent", 0), ("diverged", 1)) == "1: 1 of 2 points are worse than required"
    worst = line(("diverged", 1), ("diverged", 1), ("refused", 3))
    assert worst == "3: 1 of 3 points came to no end"
    assert line(("exact", 0), ("failed", 2), ("failed", 2)).startswith("2: 2 of 3 points")
    assert not line(("exact", 0))
