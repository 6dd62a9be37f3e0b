"""Every handler of the page once, without a browser: it answers with controls of the page and no problem."""

from types import SimpleNamespace

import pytest

from harness.task.ui.session import PageSession
from harness.task.ui.snapshots import SnapshotStore
from harness.task.ui.tabs import Tabs


def test_every_handler_answers(session, tmp_path):
    gradio = pytest.importorskip("gradio")
    from harness.task.ui.handlers import Page
    from harness.task.ui.layout import Controls

    opened = session("task=ui")
    store = SnapshotStore(tmp_path / "shelf", opened.cfg.save)
    tabs = Tabs(lambda: PageSession(opened, store, tmp_path), store.folder, opened.cfg.save)
    with gradio.Blocks() as blocks:
        page = Page(tabs, 4, Controls("facts", "let k be 5 .", 4, "recall", "", ["cache view"]))
        page.listen(blocks)
    first = page._open("", None, SimpleNamespace(session_hash="x"))
    one = first[page.c.session]
    assert {*first} <= {*page.everything, *page.c.typed.values()}

    def do(act, *values) -> str:
        pieces = list(page._handled(act)(one, *values))
        assert pieces and all({*piece} <= {*page.everything} for piece in pieces)
        return pieces[-1][page.c.status]

    assert "problem" in do(page._save, "../evil") and "problem" in do(page._step)
    for act, *values in (
        (page._begin, "let k be 5 . the bird sang . what is"),
        (page._step,), (page._run, 3), (page._add, " k ?"), (page._sample, "sample", 1.0, 0, 1.0, 1.0),
        (page._prune, "keep_last", 6, True), (page._quantize, "int8"), (page._save, "one"), (page._load, "one"),
        (page._fork,), (page._compare, "A"), (page._switch, "A"), (page._back, 5), (page._go_on, "cache view", 3),
        (page._judge,), (page._close,), (page._stop,), (page._watch,),
        (page._evaluate, ["knorm"], [0.5], [], "recall", "", 2, True), (page._enough,),
    ):  # fmt: skip
        assert "problem" not in do(act, *values), act.__name__
    assert all({*piece} <= {*page.asked} for piece in page._scored(one))
    again = page._open(first[page.c.tab], "typed", SimpleNamespace(session_hash="y"))
    assert again[page.c.session] is one and again[page.c.prompt] == "typed"
    (lost,) = page._handled(page._step)(None)
    assert "Session not found" in lost[page.c.status]
