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
    assert settled.because and settled.answer.endswith(".")
    layout = claim_named(name).layout
    assert set(settled.figures) <= {*layout.names, *layout.cells()}, "each has a name in words"
    assert any(isinstance(v, int | float) for v in settled.figures.values())


@pytest.mark.parametrize("name", ("template_drift", "save_formats", "turn_latency"))
def test_the_claim_that_needs_chance_or_a_clock_settles_somehow(name, bench):
    settled = claim_named(name).settle(bench)
    assert settled.verdict in ("holds", "refuted", "depends") and settled.answer
    layout = claim_named(name).layout
    assert set(settled.figures) <= {*layout.names, *layout.cells()}, "each has a name in words"


def turns(growth: float, wide: float) -> list[float]:
    """Seconds of 40 turns that grow by a share from first to last, and scatter by another."""
    return [1 + growth * i / 39 + wide * ((i * 7) % 10 - 4.5) / 9 for i in range(40)]


def test_a_noisy_clock_makes_no_claim_of_time_hold():
    """What could be a growth that the clock cannot tell is no constant time: the noisier, the less is settled."""
    from harness.task.claims import turn_latency

    def verdict(cached, plain):
        settled = turn_latency.settled(cached, plain, {})
        return settled.verdict, settled.answer

    grows = turns(2.0, 0.02)
    assert verdict(turns(0.0, 0.02), grows)[0] == "holds"
    assert verdict(turns(0.0, 3.0), grows)[0] == "depends"
    assert "too coarse" in verdict(turns(0.3, 3.0), grows)[1]
    hidden = verdict(turns(0.3, 0.5), grows)
    assert hidden[0] == "depends" and hidden[1].startswith("On the clock: turns this short do not")
    slow = verdict(turns(0.4, 0.02), grows)
    assert slow[0] == "depends" and slow[1].startswith("On how long the chat is: cached turns grew")
    within = verdict(turns(0.05, 0.1), grows)
    assert within[0] == "holds" and within[1].startswith("Not told apart from constant: ")
    assert verdict(turns(0.0, 0.02), turns(0.0, 0.02))[0] == "refuted"
    assert verdict(turns(3.0, 0.02), grows)[0] == "refuted"


def test_several_claims_are_a_table_that_leads_to_each_and_names_the_model_of_each(harness):
    from harness.task.claims import counted

    done = harness("task=claims", "task.only=[aliasing,sliding_window,prune_quality]")
    said = "3 claims settled: 2 hold, 1 depends"
    assert done.reason == said
    assert counted(["refuted"] * 2 + ["holds"]) == "1 holds, 2 refuted"
    rows = json.loads((done.folders[0] / "claims.json").read_text())
    assert [row["model"].partition(":")[0] for row in rows] == ["tiny", "mistral", "tiny"]
    page = (done.folders[0] / "report.html").read_text()
    assert page.count('<details id="') == 3, "each is folded"
    for row in rows:
        assert f'href="#{row["claim"]}"' in page and f'<details id="{row["claim"]}">' in page
    assert "<code>cache2 = cache</code> shares memory" in page and "`cache2" not in page
    assert page.count('class="verdict fair"><i aria-hidden="true">\u25d0</i> depends</span>') == 1
    assert "Measured with: mistral: small and seeded" in page
    drawn = page.partition('<details id="prune_quality">')[2].partition("</details>")[0]
    assert drawn.count("<svg") == 3 and "<td" in drawn and "kept 100 per cent" not in drawn


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
    assert recurrent_chunk.recurrent_chunk(bench).verdict == "holds"


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
