"""Verdicts, comparisons and continuations name the state they are about, and say when it has changed."""

from begin import TEXT

from harness.task.ui import picture


def test_an_answer_says_when_its_branch_has_changed_since(thought):
    one = thought()
    one.begin(TEXT)
    one.verdict(2)
    one.go_on("cache view", 4)
    one.compare("A", "B")
    one.switch("A")

    def pictures() -> list[str]:
        return [picture.judged(one), picture.compared(one), picture.went(one)]

    assert not any("From before" in shown for shown in pictures())
    one.step()  # the twin: what has gone on says so
    judged, compared, went = pictures()
    assert "branch A has changed since" in judged and "compare again" in compared
    assert "From before" not in went  # branch B is where it was
