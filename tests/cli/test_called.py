"""An option of one's own that inherits one of ours is read as that one, and recorded by its own name."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from harness.cli import point
from harness.config import Config, called
from harness.config.compose import typed
from harness.errors import ConfigProblem

INHERITS = "defaults: [snapkv, _self_]\nwindow: 32\n"


@pytest.fixture
def own(place):
    def write(group, name, text):
        (place / "conf" / group).mkdir(parents=True, exist_ok=True)
        (place / "conf" / group / f"{name}.yaml").write_text(text)
        return "--config-dir", str(place / "conf")

    return write


def test_it_has_its_own_name_in_records_tables_and_audits(harness, process, own):
    """The twin: the shipped option beside it."""
    where = own("prune", "my_snap", INHERITS)
    done = harness("-m", *where, "prune=snapkv,my_snap", "prune.ratio=0.25", "steps=3", "name=ms")
    assert done.code == 0 and " prune=my_snap" in done.out, done.out
    assert [r["options"]["prune"] for r in done.results] == ["snapkv", "my_snap"]
    sealed = [json.loads((f / "record.json").read_text())["config"] for f in done.folders]
    assert [c["called"] for c in sealed] == [{}, {"prune": "my_snap"}]
    assert [c["prune"]["name"] for c in sealed] == ["snapkv", "snapkv"]
    assert [c["prune"]["window"] for c in sealed] == [8, 32]
    sweep = done.folders[0].parent
    assert "Nearest to the full cache by mean KL: prune=" in done.out
    assert "Sweep of prune" in (sweep / "sweep.html").read_text("utf-8")
    audit = harness("task=audit", f"run={sweep}")
    assert audit.code == 0, audit.out
    again = process("-m", f"resume={sweep}")
    assert again.code == 0 and not again.folders, "nothing is run twice"


def test_a_name_without_a_class_is_refused_with_what_to_leave_out(harness, own):
    """The twin: the same file without it."""
    where = own("prompt", "mine", "defaults: [jsonl, _self_]\nname: mine\npath: q.jsonl\n")
    done = harness(*where, "prompt=mine", "steps=2")
    assert done.code == 2 and "mine inherits prompt=jsonl and gives itself another name" in done.out
    assert "Leave `name` out of" in done.out
    own("prompt", "mine", "defaults: [jsonl, _self_]\npath: q.jsonl\n")
    line = {"context": "let k be 5 .", "question": "what is k ?", "expected": "5"}
    Path("q.jsonl").write_text(json.dumps(line))
    done = harness(*where, "prompt=mine", "steps=2")
    assert done.code == 0 and done.result["options"]["prompt"] == "mine", done.out


def test_a_record_from_before_there_was_such_a_key_is_the_same_configuration(compose):
    cfg = compose("track=none")
    before = json.loads(json.dumps(asdict(cfg)))
    before.pop(called.KEY)
    assert point.same(cfg, before)
    cfg.called = {"prune": "mine"}
    assert not point.same(cfg, before) and called.KEY in Config.__dataclass_fields__


@pytest.mark.parametrize("names", [{"prune": "none"}, {"task": "mine"}, {"prompt": "recall"}])
def test_no_record_calls_an_option_by_the_name_of_another(compose, names):
    """The twin: a name of one's own. An audit runs a record again by what it holds, and would repeat the lie."""
    cfg = OmegaConf.structured(compose("track=none", "prune=knorm"))
    tree = OmegaConf.create(OmegaConf.to_container(cfg))
    tree.called = {"prune": "mine"}
    assert typed(tree, record=True).called == {"prune": "mine"}
    tree.called = names
    with pytest.raises(ConfigProblem, match="no name of an option of your own"):
        typed(tree, record=True)
