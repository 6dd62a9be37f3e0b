"""`task=resume` saves first and judges only what is worth the time."""

import json
import re
import shlex

import pytest

from harness.cache.cloned import Cloned
from harness.snapshot import record
from harness.task.audit.difference import compare


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
    assert "compare.budget_s=0; compare.require=equivalent asks" in done.reason
    assert "UNJUDGED: nothing was compared" in done.out and "exit code 0" in done.out
    (offered,) = [line for line in done.out.splitlines() if line.startswith("to judge:")]
    words = shlex.split(offered.partition("-m harness ")[2] or offered.partition("harness ")[2])
    assert words[:4] == list(arguments) and words[-1] == "compare.require=equivalent"
    audited = harness("task=audit", f"run={done.folders[0]}", "snapshot=a")
    assert audited.code == 0, audited.out  # no second estimate: it is not judged there either
    asked = harness(*words)
    assert asked.code == 0 and asked.result["verdict"] in ("exact", "equivalent")
    assert harness("task=audit", f"run={asked.folders[0]}", "snapshot=a").code == 0
    assert harness(*arguments).result["verdict"] in ("exact", "equivalent")


def test_a_verdict_that_was_asked_for_is_never_left_out_in_silence(harness) -> None:
    assert harness("task=save", "text=let k be 5 .", "out=a").code == 0
    arguments = ("task=resume", "snapshot=a", "text= what is k ?", "steps=4", "compare.limit=5")
    done = harness(*arguments)
    assert done.code == 0 and done.result["verdict"] == "unjudged"
    done = harness(*arguments, "compare.require=equivalent")
    assert done.code == 2 and "has 6 tokens, more than compare.limit=5" in done.out
    slow = [*arguments[:4], "compare=lossy", "compare.budget_s=0"]
    assert harness(*slow).result["verdict"] == "unjudged"  # the option's own word asks for nothing


def test_who_writes_on_is_told_what_has_to_stay_beside_it(harness) -> None:
    assert harness("task=save", "text=let k be 5 .", "out=a").code == 0
    done = harness("task=resume", "snapshot=a", "text= what is k ?", "steps=4", "out=b")
    assert done.result["next"]["beside"] == ["a"] and "b (needs a beside it)" in done.out


def test_it_goes_back_and_says_how(harness) -> None:
    assert harness("task=save", "model=tiny_hybrid", "out=a").code == 0
    assert harness("task=resume", "snapshot=a", "model=tiny_hybrid", "steps=6", "out=b").code == 0
    tokens = harness("task=resume", "snapshot=b", "model=tiny_hybrid", "steps=1").result["size"][
        "tokens"
    ]
    back = ("task=resume", "snapshot=b", "model=tiny_hybrid", "steps=4", "text= no , what is m ?")
    done = harness(*back, f"at={tokens - 3}", "out=c", "report.verbose=true")
    assert done.code == 0 and done.result["verdict"] in ("exact", "equivalent")
    told = done.result["back"]
    assert (told["how"], told["source"], told["replayed_tokens"]) == ("checkpoint", "a", 3)
    assert f"back at token {tokens - 3} of {tokens}" in done.out
    assert re.search(
        r"snapshot: +b\nwritten: +c( .*)?\n", done.out
    )  # what was read, and what was written
    assert harness("task=verify", "snapshot=c").code == 0


def test_a_place_that_is_not_there_is_one_line(harness) -> None:
    assert harness("task=save", "text=let k be 5 .", "out=a").code == 0
    for at, said in (("0", "too small"), ("999", "is not a place in this state")):
        done = harness("task=resume", "snapshot=a", f"at={at}", "steps=2")
        assert done.code == 2 and said in done.out


@pytest.mark.parametrize("model", ["tiny", "tiny_gemma3"])
def test_the_verdict_is_on_the_next_snapshot_too(harness, monkeypatch, model) -> None:
    """A cache that decodes rightly and hands back wrong keys: without a state to go on from nothing shows."""
    arguments = ("task=resume", f"model={model}", "snapshot=a", "steps=4", "cache=cloned")
    assert harness("task=save", f"model={model}", "text=let k be 5 .", "out=a").code == 0
    sound = harness(*arguments, "out=b")
    assert sound.code == 0 and len(sound.result["text"]["token_ids"]) == 5
    real = Cloned.new_kv

    def rolled(self, index, tokens):
        key, value = real(self, index, tokens)
        return key.roll(1, 2), value

    monkeypatch.setattr(Cloned, "new_kv", rolled)
    for more in ([], ["out=c"]):
        broken = harness(*arguments, *more)
        assert broken.code == 1 and broken.result["verdict"] in ("drifted", "diverged")


def test_a_resumed_run_that_wrote_its_next_snapshot_audits_as_the_same(harness, place) -> None:
    assert harness("task=save", "text=let k be 5 .", "out=a").code == 0
    resumed = harness(
        "task=resume", "snapshot=a", "text= what is k ?", "steps=4", "out=b", "report.verbose=true"
    )
    assert resumed.code == 0
    (run,) = (place / "runs" / "resume").iterdir()
    audit = harness("task=audit", f"run={run}", "name=audit", "snapshot=a")
    assert audit.code == 0, audit.out
    (again,) = place.glob("runs/audit/*/again/run")
    results = [record.read(p / "result.json") for p in (run, again)]
    assert results[0]["next"]["digest"] == results[1]["next"]["digest"]
    streamed, size = results[0]["text"]["streamed"], results[0]["next"]["size"]
    assert streamed.startswith(" what is k ?") and f"{streamed}\n" in resumed.out
    said = streamed.removeprefix(" what is k ?")
    assert "read:         ' what is k ?'" in resumed.out
    assert f"continuation: {said!r} (4 tokens generated)" in resumed.out
    assert f"{size['tokens']} tokens ({results[0]['size']['tokens']} were restored)" in resumed.out
    results[0]["next"]["digest"] = "0" * 64  # what it wrote, written again, is something else
    assert [d.what for d in compare(*results, [])] == ["next.digest"]
    page = (run / "report.html").read_text()
    assert "literal:" not in page.split("Run it again")[1][:800] and "text= what is k ?" in page


def test_a_figure_over_a_limit_is_never_the_limit_itself():
    from types import SimpleNamespace as Of

    from harness.present.messages import worded
    from harness.task.resume import _unjudged

    cfg = Of(compare=Of(budget_s=20.0, limit=9, require="equivalent"))
    said = _unjudged(cfg, 0, Of(seconds=20.31))
    assert said["args"]["takes_s"] > said["args"]["budget"] == 20
    assert "would take about 20.31 s, more than compare.budget_s=20" in worded(said)
    cfg.compare.require_pruned = "diverged"
    said = _unjudged(cfg, 0, Of(seconds=30), "require_pruned")
    assert said["args"]["ask"] == "compare.require_pruned=diverged", "as the line `to judge:` says"


def test_an_out_that_the_snapshot_is_built_on_is_refused_before_anything_is_loaded(
    harness, place
) -> None:
    assert harness("task=save", "text=let k be 5 .", "out=1").code == 0
    for number, text in ((2, " what"), (3, " is")):
        going = ("task=resume", f"snapshot={number - 1}", f"text={text}", "steps=1")
        assert harness(*going, f"out={number}").code == 0
    again = ("task=resume", "snapshot=3", "text= k", "steps=1", "overwrite=true")
    for parent, above in ((1, "2, 3 are"), (2, "3 is")):
        done = harness(*again, f"out={parent}")
        assert done.code == 2 and f"{parent} holds what {above} built on" in done.out
        assert "model tiny" not in done.out and " k" not in done.out.splitlines()
    assert harness("task=save", "snapshot=3", "compact=true", "out=3", "overwrite=true").code == 0
    assert harness(*again, "out=2").code == 0


def test_another_dtype_is_told_before_the_weights_are_read(harness, place) -> None:
    assert harness("task=save", "text=let k be 5 .", "out=a").code == 0
    going = ("task=resume", "snapshot=a", "steps=1")
    said = "saved in float32, and run in bfloat16 it will be refused: dtype=float32 fits"
    done = harness(*going, "dtype=bfloat16")
    assert done.code == 3 and done.out.index(said) < done.out.index("model tiny")
    assert "it will be refused" not in harness(*going).out
    assert "it will be refused" not in harness(*going, "dtype=bfloat16", "restore.strict=false").out
