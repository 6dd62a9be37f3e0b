"""`task=resume` saves first and judges only what is worth the time."""

import json


def test_the_snapshot_is_written_before_anything_is_compared(harness, place, monkeypatch) -> None:
    assert harness("task=save", "text=let k be 5 .", "out=a").code == 0

    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.pipeline.line.judge", stopped)
    done = harness("task=resume", "snapshot=a", "text= what is k ?", "steps=4", "out=b")
    assert done.code == 130
    assert json.loads((place / "b" / "manifest.json").read_text())["tokens"] > 4


def test_beyond_the_budget_it_is_unjudged_and_says_how_to_judge(harness) -> None:
    assert harness("task=save", "text=let k be 5 .", "out=a").code == 0
    arguments = ("task=resume", "snapshot=a", "text= what is k ?", "steps=4")
    done = harness(*arguments, "compare.budget_s=0")
    assert done.code == 0 and done.result["verdict"] == "unjudged"
    assert "compare.budget_s" in done.result["reason"] and "snapshot=a" in done.result["reason"]
    assert harness(*arguments).result["verdict"] in ("exact", "equivalent")
