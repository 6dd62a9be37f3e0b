"""What a restore saves, measured: rows, the same first token, and bytes that are really compared."""

import json
import time

import pytest

from harness.task.bench import restore as restore_bench
from tests.task.gpu_record import SMALL

SHAPE = [f"model.config.{name}={value}" for name, value in SMALL.items()]
ASKED = ["task=restore_bench", "device=cpu", *SHAPE, "task.contexts=[40,80]", "task.repeats=2"]


def test_a_row_per_context_with_the_first_token_of_the_live_run(harness):
    done = harness(*ASKED)
    assert done.code == 0, done.out
    rows = json.loads((done.folders[0] / "bench.json").read_text())
    assert [row["context"] for row in rows] == [40, 80]
    for row in rows:
        assert row["same_first_token"] is True and row["reason"] is None
        assert 0 <= row["first_apart"] < 1e-3 < row["first_gap"]
        assert row["kv_bytes"] == 2 * 2 * 2 * 16 * 4 * row["context"]
        whole = row["load_s"] + row["to_device_s"] + row["first_token_s"]
        assert row["restored_s"] == pytest.approx(whole)
    assert not (done.folders[0] / "snapshot").exists()
    assert "the first token is the same in each" in done.reason
    page = (done.folders[0] / "report.html").read_text()
    assert "To the first token, ms" in page and "prefill, ms" in page and "prefill, s<" not in page


def test_what_is_prepared_once_is_in_no_figure(harness, monkeypatch):
    """Each thing that is timed takes half a second more when it is done first."""
    from harness.capture import prefill

    def once(work):
        left = iter([0.5])

        def done(*arguments, **settings):
            time.sleep(next(left, 0.0))
            return work(*arguments, **settings)

        return done

    monkeypatch.setattr("harness.capture.prefill", once(prefill))
    monkeypatch.setattr(restore_bench.store, "save", once(restore_bench.store.save))
    monkeypatch.setattr(restore_bench.store, "load", once(restore_bench.store.load))
    monkeypatch.setattr(restore_bench, "raw_write", once(restore_bench.raw_write))
    monkeypatch.setattr(restore_bench, "build_decoder", once(restore_bench.build_decoder))
    done = harness(*ASKED[:-2], "task.contexts=[40]", "task.repeats=1")
    (row,) = json.loads((done.folders[0] / "bench.json").read_text())
    slow = {name: seconds for name, seconds in row.items() if name.endswith("_s") and seconds > 0.4}
    assert not slow, slow


def test_a_byte_that_changed_on_the_way_stops_it(harness, monkeypatch):
    def changed(place):
        state, manifest = load(place)
        state.layers[0].key.view(-1)[0] += 1
        return state, manifest

    load = restore_bench.store.load
    monkeypatch.setattr(restore_bench.store, "load", changed)
    done = harness(*ASKED)
    assert done.code != 0 and "came back changed" in done.out


def test_the_same_past_gives_the_same_bits_again(harness):
    done = harness("task=repeat", "task.batches=[2]", "task.runs=2", "task.tokens=40", "steps=2")
    assert done.code == 0, done.out
    rows = json.loads((done.folders[0] / "repeat.json").read_text())
    assert [(r["cache"], r["recorded"], r["batch"]) for r in rows] == [
        (cache, recorded, size)
        for cache, recorded in (
            ("dynamic", False),
            ("view", False),
            ("manual", True),
            ("manual", False),
        )
        for size in (1, 2)
    ]
    assert all(row["bitwise_equal"] for row in rows)
    assert all(row["same_as_alone"] for row in rows if row["batch"] == 1)


def test_a_first_token_that_is_another_is_told_with_how_near_it_was():
    from harness.report.bench import first_tokens

    same = {"context": 8192, "same_first_token": True, "first_apart": 0.01, "first_gap": 0.2}
    other = {"context": 32768, "same_first_token": False, "first_apart": 0.03, "first_gap": 0.02}
    assert first_tokens([same]) == "the first token is the same in each"
    assert first_tokens([{**same, "same_first_token": None}]) == "no first token was measured"
    told = first_tokens([same, other])
    assert "the same in 1 of 2" in told
    assert "at 32,768 the two likeliest are 0.02 apart, the two runs 0.03" in told
