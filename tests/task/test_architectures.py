"""The table of families: each is met as a user's folder, and what is wrong or refused is said."""

import json
from dataclasses import replace

from harness.pipeline.line import Line


def table(done) -> dict[tuple[str, str], dict]:
    rows = json.loads((done.folders[0] / "architectures.json").read_text())
    return {(row["family"], row["cache"]): row for row in rows}


def test_a_family_goes_through_the_door_of_a_users_folder(harness) -> None:
    done = harness(
        "experiment=architectures", "task.families=[llama,rwkv]", "task.caches=[dynamic]"
    )
    assert done.code == 0, done.out
    rows = table(done)
    taken, refused = rows["llama", "auto"], rows["rwkv", "auto"]
    assert (taken["save"], taken["resume"]) == ("done", "done")
    assert taken["outcome"] == taken["verdict"] in ("exact", "equivalent")
    assert rows["llama", "dynamic"]["save"] == "done"
    assert (refused["save"], refused["verdict"]) == ("refused", "refused")
    assert "'rwkv'" in refused["reason"]


def test_a_thought_that_comes_back_wrong_and_a_crash_are_no_success(harness, monkeypatch) -> None:
    """The corrupted twin: keys and values of two layers are exchanged between restore and resume."""
    go_on = Line.go_on

    def exchanged(self, restored, *given, **more):
        first, second = restored.state.layers
        layers = (
            replace(first, segments=second.segments),
            replace(second, segments=first.segments),
        )
        return go_on(self, replace(restored, state=replace(restored.state, layers=layers)), *given, **more)  # fmt: skip

    asked = ("experiment=architectures", "task.families=[llama]", "task.caches=[dynamic]")
    monkeypatch.setattr(Line, "go_on", exchanged)
    done = harness(*asked)
    row = table(done)["llama", "auto"]
    assert row["verdict"] in ("drifted", "diverged") and done.code == 1
    monkeypatch.setattr(Line, "go_on", lambda *given, **more: 1 // 0)
    done = harness(*asked)
    row = table(done)["llama", "auto"]
    assert (row["save"], row["resume"], row["verdict"]) == ("done", "failed", "failed")
    assert "ZeroDivisionError" in row["reason"] and done.code == 1
