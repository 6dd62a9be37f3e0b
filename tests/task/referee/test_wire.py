"""Faults on the wire: a server that lies on cache hits is found out, an honest one never is."""

import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from crossing import crossed

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "engine"))
from toy import FAULTS, Toy, serving

IDS = [(i * i + 3 * i + 5) % 61 for i in range(96)]
GOOD = {"exact", "equivalent"}
GET = "import sys, urllib.request as u; u.urlopen(sys.argv[1])"


@pytest.fixture
def judged(harness, place):
    """`(done, rows by case)` of a referee over a Toy."""

    def run(toy: Toy, *more: str, ids=IDS, steps: int = 16) -> tuple:
        with serving(toy) as url:
            place.joinpath("get.py").write_text(GET)
            root = f"{sys.executable} get.py {url.removesuffix('/v1')}"
            given = [m.replace("ROOT", root) for m in more]
            done = harness("task=referee", "engine=openai", f"engine.url={url}", f"steps={steps}",
                           f"prompt.ids=[{','.join(map(str, ids))}]", *given)  # fmt: skip
        rows = json.loads((done.folders[0] / "referee.json").read_text()) if done.folders else []
        return done, {r["case"]: r for r in rows}

    return run


SERVERS = {
    "salts": {},
    "never sent before": {"salts": False, "together": True},
    "shares at once": {"salts": False},
    "keeps one": {"salts": False, "keeps": 1, "fixed": True},
}


@pytest.mark.parametrize("server", SERVERS)
def test_an_honest_server_passes(judged, server) -> None:
    done, rows = judged(Toy(**SERVERS[server]))
    assert done.code == 0, done.out
    assert rows["hit"]["verdict"] in GOOD and rows["hit"]["reused_tokens"] >= len(IDS) - 1
    if "cold_again" in rows:
        assert rows["cold_again"]["verdict"] in GOOD and rows["cold_again"]["reused_tokens"] < 12
    assert not {rows["other_prompt"]["verdict"], rows["one_token_off"]["verdict"]} & GOOD
    assert done.result["verdict"] in GOOD


@pytest.mark.parametrize(
    "fault, server", crossed([f for f in FAULTS if f != "empty_restore"], [*SERVERS])
)
def test_every_fault_is_found(judged, fault, server) -> None:
    done, rows = judged(Toy(fault, **SERVERS[server]))
    assert done.code == 1, done.out
    assert rows["hit"]["verdict"] in ("drifted", "diverged"), rows["hit"]
    assert rows["hit"]["first_beyond"] is not None and rows["hit"]["first_beyond"] < 64
    assert "cold_again" not in rows or rows["cold_again"]["verdict"] in GOOD


def test_a_server_that_keeps_one_prompt_is_cold_after_another(judged) -> None:
    """What a call of one token rounds otherwise than one of many, the floor has seen in cold runs. The twin
    is never cold again: answers from its cache lie close together, and tell nothing of that."""
    done, rows = judged(Toy(salts=False, keeps=1, fixed=True))
    row = rows["hit"]
    assert "after another prompt" in done.out and rows["cold_again"]["verdict"] in GOOD
    assert row["verdict"] == "equivalent" and 1e-5 < row["noise_floor"] < 1e-3, row
    _, rows = judged(Toy(salts=False, fixed=True), "task.repeats=1")
    assert rows["hit"]["verdict"] not in GOOD and rows["hit"]["noise_floor"] < 1e-5, rows["hit"]
    assert "engine.flush=COMMAND tells" in rows["hit"]["reason"] and "tells" not in row["reason"]
    assert rows["hit"]["code"] == "beyond" and rows["hit"]["args"]["narrow"] is True


def test_a_server_that_reuses_what_was_never_sent_is_suspected(judged) -> None:
    done, _ = judged(Toy("claims", salts=False))
    assert done.code == 1 and done.result["verdict"] == "unjudged"
    assert "which is itself suspicious" in done.reason, done.reason


def test_a_restore_of_nothing_that_claims_reuse_is_found(judged) -> None:
    done, rows = judged(Toy("empty_restore"), "engine.evict='ROOT/evict'")
    assert done.code == 1
    assert rows["hit"]["verdict"] in GOOD and rows["restored"]["verdict"] == "diverged"


def test_a_restore_that_does_nothing_is_no_pass(judged) -> None:
    done, rows = judged(Toy(), "engine.evict='ROOT/flush'")
    assert done.code == 1 and "nothing was reused" in done.out
    assert rows["restored"]["verdict"] == "unjudged" and rows["hit"]["verdict"] in GOOD


def test_an_offloaded_cache_that_comes_back_passes(judged) -> None:
    done, rows = judged(Toy(), "engine.evict='ROOT/evict'")
    assert done.code == 0, done.out
    assert rows["restored"]["verdict"] in GOOD and rows["restored"]["reused_tokens"] >= 95


def test_no_reuse_is_no_pass(judged) -> None:
    done, rows = judged(Toy(reuse=False))
    assert done.code == 1 and rows["hit"]["verdict"] == "unjudged"
    assert "nothing was reused" in done.out


@pytest.fixture
def timed(judged, monkeypatch):
    """`judged` by a clock that counts the tokens which the server computes, so that no chance is in it."""

    def run(toy: Toy, *more: str, **how) -> tuple:
        counted = SimpleNamespace(perf_counter=lambda: toy.work)
        monkeypatch.setattr("harness.engine.openai.time", counted)
        return judged(toy, *more, **how)

    return run


def test_reuse_that_is_not_reported_is_told_by_time(timed) -> None:
    """Weaker evidence, and said so; where nothing is reused, time does not tell and it is no pass."""
    done, rows = timed(Toy(reports=False), ids=IDS * 3)
    assert done.code == 0 and rows["hit"]["verdict"] in GOOD, done.out
    assert "by time alone" in rows["hit"]["evidence"] and rows["hit"]["reused_tokens"] is None
    done, rows = timed(Toy("off_by_one", reports=False), ids=IDS * 3)
    assert done.code == 1 and rows["hit"]["verdict"] in ("drifted", "diverged")
    done, rows = timed(Toy(reports=False, reuse=False))
    assert done.code == 1 and rows["hit"]["verdict"] == "unjudged"
    assert "does not say" in rows["hit"]["reason"]


@pytest.mark.parametrize(
    "case, key",
    [("restored", "evict"), pytest.param("restarted", "restart", marks=pytest.mark.slow)],
)
def test_time_tells_of_a_cache_that_was_away(timed, case, key) -> None:
    """`/evict` moves it away and back, `/flush` is the twin: it empties the cache, and time says so."""
    done, rows = timed(Toy(reports=False), f"engine.{key}='ROOT/evict'", "task.repeats=1", steps=6)
    assert done.code == 0 and rows[case]["verdict"] in GOOD, done.out
    assert "by time alone" in rows[case]["evidence"] and rows[case]["reused_tokens"] is None
    done, rows = timed(Toy(reports=False), f"engine.{key}='ROOT/flush'", "task.repeats=1", steps=6)
    assert done.code == 1 and rows[case]["verdict"] == "unjudged", done.out
    assert "time does not tell" in rows[case]["evidence"] and rows["hit"]["verdict"] in GOOD


def test_a_server_that_says_nothing_and_ignores_salts(timed) -> None:
    """Then nothing is cold, and the report says what would be: with that, time tells."""
    silent = {"reports": False, "salts": False}
    done, rows = timed(Toy(**silent), "task.repeats=1", steps=4)
    assert done.code == 1 and rows["hit"]["verdict"] == "unjudged"
    assert "engine.flush" in rows["hit"]["evidence"], rows["hit"]
    done, rows = timed(Toy(**silent), "engine.flush='ROOT/flush'", "task.repeats=1", steps=4)  # fmt: skip
    assert done.code == 0 and "by time alone" in rows["hit"]["evidence"], rows["hit"]


@pytest.mark.parametrize(
    "ratios, told", [([0.3] * 9, True), ([0.3] * 7 + [1.1] * 2, False), ([1.0] * 9, False)]
)
def test_what_time_tells(ratios, told) -> None:
    from harness.task.referee.clock import interval

    assert interval(ratios, 1).told is told


def test_an_engine_that_times_nothing_tells_nothing() -> None:
    from harness.engine import Answer
    from harness.task.referee.clock import reuse

    untimed = SimpleNamespace(resume=lambda *_: Answer((1,), ({1: 0.0},), None))
    untimed.evaluate, untimed.save, untimed.restore = untimed.resume, id, id
    assert not reuse(untimed, "hit", [1, 2]).told


def test_a_flaky_fault_is_a_rate(judged) -> None:
    toy = Toy("dropped_block", every=5)  # a hit is saved and resumed: two requests and more
    done, rows = judged(toy, "task.repeats=6")
    row = rows["hit"]
    assert done.code == 1 and row["repeats"] == 6 and 0 < row["bad"] < 6
    assert row["rate_low"] < row["bad"] / 6 < row["rate_high"]


@pytest.mark.parametrize("toy, ids", [({}, [7] * 64), ({"constant": True}, IDS)])
def test_a_control_that_passes_takes_every_verdict_away(judged, toy, ids) -> None:
    """The control's twin: where a wrong state is the right one, or each prompt has the same answer, nothing is shown."""
    done, rows = judged(Toy(**toy), ids=ids)
    assert done.code == 1 and done.result["verdict"] == "unjudged", done.out
    assert {(r["verdict"], r["code"]) for r in rows.values()} == {("unjudged", "control_passed")}
    assert rows["hit"]["was"] in GOOD and rows["other_prompt"]["was"] in GOOD
    worst = done.result["referee"]["worst"]
    assert worst["code"] == "control_passed" and worst["args"]["control"] == "other_prompt"
    said = (done.folders[0] / "referee.md").read_text()
    assert "though it is wrong" in said and "no case of this report counts" in said


@pytest.mark.parametrize("count", [-5, 10**6, len(IDS) + 1])
def test_a_count_that_cannot_be_shows_nothing(judged, count) -> None:
    done, rows = judged(Toy(counts=count), "task.repeats=1")
    assert done.code == 1 and done.result["verdict"] == "unjudged", done.out
    assert rows["hit"]["code"] == "impossible_count" and rows["hit"]["args"]["reused"] == count
    assert not {rows["other_prompt"]["verdict"], rows["one_token_off"]["verdict"]} & GOOD


def test_exchanged_rows_show_where_only_part_is_shared(judged) -> None:
    """The whole past is the same sum in another order; the twin keeps them in place."""
    done, rows = judged(Toy("rows_exchanged"), "task.repeats=1")
    assert done.code == 1 and rows["hit"]["verdict"] in GOOD, done.out
    assert (
        rows["part"]["verdict"] in ("drifted", "diverged")
        and rows["part"]["reused_tokens"] == len(IDS) // 2
    )
    done, rows = judged(Toy(), "engine.evict='ROOT/evict'", "task.repeats=1")
    assert done.code == 0 and rows["part"]["verdict"] in GOOD, done.out
    assert rows["part"]["evidence"].endswith("after restored")


def test_a_count_that_cannot_be_of_a_cold_run(judged) -> None:
    """The server honours no salt, and cold runs are those whose counts look small."""
    done, rows = judged(Toy(counts=-5, salts=False), "task.repeats=1")
    assert done.code == 1 and {r["code"] for r in rows.values()} == {"impossible_count"}, done.out


def test_a_restore_of_less_than_the_hit_is_none(judged) -> None:
    """Every number is right, and most tokens were read again: that shows nothing of what was stored."""
    done, rows = judged(Toy(brings=40), "engine.evict='ROOT/evict'", "task.repeats=1")
    assert done.code == 1 and rows["hit"]["verdict"] in GOOD, done.out
    assert (rows["restored"]["verdict"], rows["restored"]["code"]) == ("unjudged", "reused_less")
    assert rows["restored"]["args"] == {"reused": 40, "hit": len(IDS) - 1}


def test_a_restore_is_held_against_the_hit_too(judged, monkeypatch) -> None:
    """Rounding that comes of another cut into calls makes the floor wide; where what is brought back computes as the
    hit does, it differs by what repeats do. The twin is off by more than that, and by less than the floor."""
    monkeypatch.setattr("harness.engine.openai.OpenAI.alike", ("restored",))
    done, rows = judged(Toy(fixed=True), "engine.evict='ROOT/evict'")
    assert done.code == 0 and 0 <= rows["restored"]["hit_diff"] < 1e-5, done.out
    assert rows["restored"]["noise_floor"] > 5 * rows["restored"]["hit_floor"]
    lying = Toy("coarse_restore", fixed=True)
    done, rows = judged(lying, "engine.evict='ROOT/evict'", "task.cases=[restored]")
    row = rows["restored"]
    assert done.code == 1 and rows["hit"]["verdict"] in GOOD, (
        "the hit is asked where something is held against it"
    )
    assert row["max_abs_diff"] < 2 * row["noise_floor"] and row["oracle_error"] is None
    assert (row["verdict"], row["code"]) == ("drifted", "apart_from_hit"), row
    monkeypatch.setattr("harness.engine.openai.OpenAI.alike", ())
    done, rows = judged(Toy("coarse_restore", fixed=True), "engine.evict='ROOT/evict'", "task.repeats=1")  # fmt: skip
    assert (
        rows["restored"]["hit_diff"] > 1e-4
        and rows["restored"]["hit_floor"] == rows["restored"]["noise_floor"]
    )


def test_an_end_before_the_first_token_is_a_short_answer(judged) -> None:
    """Nothing to compare, and no claim that the server cannot be asked; its twin ends later."""
    ask = {"prompt": IDS, "max_tokens": 16, "logprobs": 1}
    said = Toy().complete(ask)["choices"][0]["logprobs"]["tokens"]
    first, later = (
        int(t.removeprefix("token_id:")) for t in (said[0], next(t for t in said if t != said[0]))
    )
    done, rows = judged(Toy(ends=first))
    assert done.code == 1 and rows["hit"]["verdict"] == "unjudged", done.out
    assert "before its first token" in done.reason
    done, rows = judged(Toy(ends=later))
    assert done.code == 0 and 0 < rows["hit"]["steps"] < 16, done.out


def test_a_server_that_refuses_what_it_does_not_know(judged) -> None:
    toy = Toy(refuses=("seed", "cache_prompt"), most=5, salts=False)
    done, rows = judged(toy)
    assert done.code == 0, done.out
    assert rows["hit"]["verdict"] in GOOD


def test_the_key_is_sent_and_never_recorded(judged, monkeypatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    toy = Toy()
    done, _ = judged(toy)
    assert {h["Authorization"] for h in toy.headers} == {"Bearer sk-very-secret"}
    for file in done.folders[0].rglob("*"):
        assert file.is_dir() or b"sk-very-secret" not in file.read_bytes()
    assert "sk-very-secret" not in done.out


def test_a_report_to_paste(judged, harness, place) -> None:
    """Its command, run as it stands while the server still lies, comes to the same verdict."""
    toy = Toy("off_by_one")
    done, _ = judged(toy)
    said = (done.folders[0] / "referee.md").read_text()
    assert "| hit | diverged |" in said and "noise" in said.lower()
    pages = [file.name for file in done.folders[0].glob("*.html")]
    assert pages == ["report.html"], "its contents stand once"
    (line,) = [x for x in said.splitlines() if x.startswith("python -m harness")]
    with serving(toy) as url:
        again = [
            f"engine.url={url}" if a.startswith("engine.url=") else a for a in shlex.split(line)[3:]
        ]
        second = harness(*again)
    assert second.code == 1 and second.result["verdict"] == done.result["verdict"], second.out


@pytest.mark.parametrize(
    "given, says",
    [
        (["engine=openai"], "engine.url=http"),
        (["engine=openai", "engine.url=http://127.0.0.1:9/v1"], "nothing answers"),
        (["engine=openai", "engine.url=ftp://x"], "no http address"),
        (["engine=openai", "engine.url=http://me:pw@127.0.0.1/v1"], "password"),
        (["engine=openia"], "Did you mean 'openai'"),
    ],
)
def test_mistakes(harness, given, says) -> None:
    done = harness("task=referee", *given)
    assert done.code == 2 and says in done.out and "Traceback" not in done.out


def test_where_it_goes_wrong(judged) -> None:
    """A dropped block hurts from the length on at which the block is whole."""
    done, _ = judged(Toy("dropped_block"))
    rows = done.result["referee"]["scan"]
    beyond = [r["reused_tokens"] for r in rows if r["beyond"]]
    right = [r["reused_tokens"] for r in rows if not r["beyond"]]
    assert right and beyond and max(right) < 32 <= min(beyond)
    assert "wrong from" in (done.folders[0] / "referee.md").read_text()


@pytest.mark.parametrize(
    "bad, says",
    [
        ({16, 32, 64, 128}, "0 modulo 16"),
        ({17, 33, 65}, "1 modulo 16"),
        (set(), "right at all"),
        (set(range(200)), "every reused length"),
        (set(range(40, 200)), "wrong from"),
        ({15, 33}, "no block size"),
    ],
)
def test_what_a_scan_concludes(bad, says) -> None:
    from harness.task.referee.scan import conclusion

    lengths = (8, 15, 16, 17, 31, 32, 33, 50, 63, 64, 65, 128)
    rows = [{"reused_tokens": n, "beyond": n in bad} for n in lengths]
    assert says in conclusion(rows)
