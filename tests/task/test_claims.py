"""The claims: each settles to what its figures say, alone and in the collective run."""

import json

import pytest

from harness.config import conf_dir
from harness.task.claims.registry import ORDER, claim_named

# claims whose verdict does not depend on the clock
EXPECTED = {
    "isolation": "holds",
    "clone_cost": "holds",
    "manual_forward": "holds",
    "special_tokens": "holds",
    "position_fault": "holds",
    "position_reset": "refuted",
    "priming": "depends",
    "aliasing": "holds",
    "rebind": "depends",
    "precision": "depends",
    "batch_masking": "depends",
    "sliding_window": "depends",
    "cursor": "holds",
    "prune_quality": "holds",
    "prefix_fault": "holds",
    "recurrent_chunk": "refuted",
}


@pytest.fixture(scope="module")
def bench(session):
    from harness.task.claims.bench import Bench

    return Bench(session("task=claims", "threads=1"))


@pytest.mark.parametrize("name", EXPECTED)
def test_the_claim_settles(name, bench):
    settled = claim_named(name).settle(bench)
    assert settled.verdict == EXPECTED[name], settled.figures
    assert settled.because
    assert any(isinstance(v, int | float) for v in settled.figures.values())


@pytest.mark.parametrize("name", ("template_drift", "save_formats"))
def test_the_claim_that_needs_chance_or_a_clock_settles_somehow(name, bench):
    assert claim_named(name).settle(bench).verdict in ("holds", "refuted", "depends")


def test_one_claim_alone(harness):
    done = harness("experiment=isolation")
    assert done.code == 0, done.out
    (row,) = json.loads((done.folders[0] / "claims.json").read_text())
    assert (row["claim"], row["verdict"]) == ("isolation", "holds")
    assert row["figures"]["length_after_one_more"] == 65
    assert "isolation" in (done.folders[0] / "report.html").read_text()


def test_every_claim_has_an_experiment_of_its_name():
    options = {p.stem for p in (conf_dir() / "experiment").glob("*.yaml")}
    assert set(ORDER) | {"claims", "g99"} <= options


def test_an_unknown_claim_is_named(harness):
    done = harness("task=claims", "task.only=[isolatoin]")
    assert done.code == 2
    assert "isolation" in done.out


def test_a_wrong_position_is_what_the_verdict_hangs_on(bench, monkeypatch):
    """The twin: were positions ignored, `cursor` and `position_reset` would have to say so."""
    from harness.task.claims.bench import Bench

    honest = Bench.step

    def ignores_position(self, cache, ids, position, mask=None):
        return honest(self, cache, ids, cache.get_seq_length(), mask)

    monkeypatch.setattr(Bench, "step", ignores_position)
    assert claim_named("cursor").settle(bench).verdict == "refuted"
    assert claim_named("position_reset").settle(bench).verdict == "holds"


def test_the_recurrent_claim_flips_where_the_library_goes_on(bench, monkeypatch):
    """The twin: a release that goes on from the stored state (here: fed one by one inside)."""
    from harness.task.claims import recurrent_chunk

    honest = recurrent_chunk.error
    monkeypatch.setattr(recurrent_chunk, "error", lambda b, f, v, step: honest(b, f, v, 1))
    assert recurrent_chunk.settle(bench).verdict == "holds"


def test_the_reproduction_for_upstream_runs_as_it_stands(capsys):
    from harness.task.claims import recurrent_chunk

    code = recurrent_chunk.__doc__.partition(":\n\n")[2]
    exec("if True:\n" + code, {})
    one, four = (float(line.split()[1]) for line in capsys.readouterr().out.splitlines())
    assert one < 1e-6 < 1e-3 < four


@pytest.mark.slow
def test_all_claims_in_one_run(harness):
    done = harness("experiment=claims")
    assert done.code == 0, done.out
    rows = json.loads((done.folders[0] / "claims.json").read_text())
    assert [r["claim"] for r in rows] == list(ORDER)
