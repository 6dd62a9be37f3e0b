"""A task that measures many things and judges none leaves its table and its figures on the server."""

import json

import pytest
from stores import client

from harness.snapshot import table
from harness.track import description, metrics

ROWS = [
    {"cache": "view", "context": 128, "per_token_s": 0.5, "same": True, "reason": None},
    {"cache": "manual", "context": 128, "per_token_s": None, "same": False, "reason": "no room"},
]
BLOCK = table.block("bench", ["cache", "context", "per_token_s", "same", "reason"], ["cache", "context"], "fast")  # fmt: skip


def test_a_table_is_told_row_by_row_and_compared_by_what_tells_its_rows_apart(tmp_path):
    """The twins: no such file, a file elsewhere, and a task without a table."""
    (tmp_path / "bench.json").write_text(json.dumps(ROWS))
    result = {"task": "bench", "table": BLOCK, "verdict": "unjudged", "reason": "measured"}
    assert list(metrics.tabled(tmp_path, result)) == [("per_token_s/view 128", 0.5, 0)]
    lines = description._tabled(result, tmp_path)
    assert lines[0] == "| cache | context | per_token_s | same | reason |"
    assert lines[3] == "| manual | 128 | - | no | no room |"
    assert table.word(result) == "fast"
    for block in ({**BLOCK, "file": "../bench.json"}, {**BLOCK, "file": "gone.json"}, {}):
        other = {**result, "table": block}
        assert description._tabled(other, tmp_path) == [] == list(metrics.tabled(tmp_path, other))


@pytest.mark.parametrize(
    "typed, word, figure",
    [
        (["task=repeat", "task.runs=2", "task.batches=[2]", "task.caches=[manual]", "steps=2"], "4 of 4 bit for bit", "max_abs_diff/manual True 1 2"),
        (["task=restore_bench", "model=tiny", "task.contexts=[64]", "task.repeats=1"], None, "speedup/64"),
        (["task=claims", "task.only=[isolation,cursor]"], "2 hold", None),
    ],
)  # fmt: skip
def test_benches_and_claims_have_their_table_on_the_server(harness, place, typed, word, figure):
    done = harness(*typed, track="mlflow")
    assert done.code == 0, done.out
    run = client(place / "runs").get_run(done.result["mlflow"]["run_id"])
    tags, note = run.data.tags, run.data.tags["mlflow.note.content"]
    assert word is None or (tags["outcome"] == word and run.info.run_name.endswith(f": {word}"))
    assert figure is None or figure in run.data.metrics, run.data.metrics.keys()
    assert "|---|" in note and "more rows" not in note
    assert not {"prompt", "sampling", "compare", "prune"} & run.data.params.keys()


def test_a_bench_is_not_given_what_it_does_not_read(harness):
    """The twin: what one reads of such a group."""
    assert "save=gzip is not read by task=format_bench" in harness("task=format_bench", "save=gzip").out  # fmt: skip
    assert "prompt=recall is not read by task=restore_bench" in harness("task=restore_bench", "prompt=recall").out  # fmt: skip
    done = harness("task=restore_bench", "model=tiny", "prompt.chunk=64", "task.contexts=[64]", "task.repeats=1")  # fmt: skip
    assert done.code == 0, done.out
