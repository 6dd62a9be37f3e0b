"""An evaluation that is stopped says what it keeps, and goes on from there."""

import json
import re

import pytest
from stopping import Running, folders

SMALL = ("task=evaluate", "prompt=recall", "prompt.distance=32", "steps=5")


def rows_of(done) -> list[dict]:
    return json.loads((done.folders[0] / "evaluate.json").read_text())


def test_a_stopped_evaluation_goes_on_where_it_was(harness, place, monkeypatch) -> None:
    from harness.pipeline import evaluation as evaluate

    small = (*SMALL, "prompt.samples=3", "task.prunes=[random]", "task.budgets=[0.5]")
    whole = harness(*small, "name=whole")
    real, count = evaluate.answers, []

    def stopped(*given):
        count.append(1)
        if len(count) == 4:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(evaluate, "answers", stopped)
    with pytest.raises(BaseException):  # noqa: B017  told to stop
        harness(*small, "name=whole", "seed=0")
        raise KeyboardInterrupt
    assert len(list(place.glob("runs/.evaluate/*.jsonl"))) == 1
    count.clear()
    count += [1] * 9
    again = harness(*small, "name=whole")
    assert again.result["evaluation"]["resumed"] == 3 and len(count) == 9 + 3
    assert not list(place.glob("runs/.evaluate/*.jsonl"))
    drop = ("per_token_s",)
    strip = lambda done: [{k: v for k, v in r.items() if k not in drop} for r in rows_of(done)]  # noqa: E731
    assert strip(whole) == strip(again)


def test_an_evaluation_out_of_time_says_what_it_keeps(harness, place, monkeypatch) -> None:
    from harness.errors import TooLong
    from harness.pipeline import evaluation as evaluate

    real, count = evaluate.answers, []

    def late(*given):
        count.append(1)
        if len(count) == 4:  # a prompt is asked after and before pruning
            raise TooLong(3)
        return real(*given)

    monkeypatch.setattr(evaluate, "answers", late)
    done = harness(*SMALL, "prompt.samples=3", "task.prunes=[random]", "task.budgets=[0.5]")
    (kept,) = place.glob("runs/.evaluate/*.jsonl")
    assert done.code == 1 and "stopped after limit_s=3" in done.out
    where = f"the same command goes on from there ({kept.relative_to(place)})"
    assert f"kept: the answers to 1 of 3 prompts; {where}." in done.out


EVALUATION = ("task=evaluate", "prompt=recall", "prompt.samples=40", "task.prunes=[keydiff]", "task.budgets=[0.5]",
              "steps=4", "track=none")  # fmt: skip


def answered(running: Running) -> bool:
    """Whether an evaluation has answered a second prompt."""
    return any(len(p.read_text().split("\n\n")) > 2 for p in running.place.glob("runs/.evaluate/*"))


@pytest.mark.slow
def test_told_to_end_it_says_how_many_answers_are_kept_and_where(place) -> None:
    asked = [*EVALUATION, "task.asked=[after]"]
    said = Running(place, *asked).stop(answered)
    (kept,) = place.glob("runs/.evaluate/*.jsonl")
    many, where = re.search(r"; kept: the answers to (\d+) of 40 prompts; (.*)\.$", said).groups()
    assert where == f"the same command goes on from there ({kept.relative_to(place)})"
    assert 1 < int(many) < 40 and "nothing was written" not in said and not folders(place)
    again = Running(place, *asked)
    assert again.process.wait(120) == 0 and f"{many} were answered before" in again.err
    assert not kept.exists()
