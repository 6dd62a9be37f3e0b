"""What another version of the code, or another machine, may say otherwise of a run, and what it may not:
each rule with the honest record that it lets pass and the forged twin that it must name. No field says by itself how
it is compared, the digest of the code least of all."""

import copy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.report.audit import figures
from harness.snapshot import record
from harness.task import audit
from harness.task.audit import derivation
from harness.task.audit.bounds import bounds
from harness.task.audit.difference import BLOCKS, changes, compare, explained

Result = dict[str, Any]


@pytest.fixture(scope="module")
def again(recorded: Path) -> Result:
    return record.read(recorded / "result.json")


@pytest.fixture
def older(again: Result) -> Result:
    """The same run as another machine recorded it, by another version of the code: in other words."""
    result = copy.deepcopy(again)
    result["environment"] |= {"code": "of another time", "cpu": "another"}
    result["conclusion"] = (
        f"The same, {derivation.speed(result, 0.0)}, {derivation.stored(result)}."
    )
    del result["sampler"]
    for path in result["soundness"]["paths"]:
        path["path"] = f"in other words, {path['path']}"
    return result


def named(recorded: Result, again: Result) -> set[str]:
    changed = changes(recorded["environment"], again["environment"])
    return {finding.what for finding in compare(recorded, again, changed)}


def test_an_honest_record_of_another_version_is_the_same(older: Result, again: Result) -> None:
    """Its words and what it does not say yet are no differences, there and on the same machine; either way round, but
    for a block that no run of this version writes."""
    assert named(older, again) == set()
    here = {**again["environment"], "code": "of another time"}
    assert named({**older, "environment": here}, again) == set()
    newer = {**older, "environment": again["environment"]}
    assert named({**again, "environment": older["environment"]}, newer) == {"sampler"}


def test_another_digest_of_the_code_allows_nothing(again: Result) -> None:
    """A commit that moves no figure needs no new records; one that does is no other machine."""
    other = copy.deepcopy(again)
    other["environment"]["code"] = "of another time"
    assert named(other, again) == set()
    changed = changes(other["environment"], again["environment"])
    assert [(c["what"], c["decisive"]) for c in changed] == [("code", False)]
    other["noise_floor"]["max_abs_diff"] *= 1 + 1e-12
    assert named(other, again) == {"noise_floor.max_abs_diff"}


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("emptied", [True, False])
def test_a_block_that_every_version_writes_was_taken_out(older, again, block, emptied) -> None:
    for record_ in (older, copy.deepcopy(again)):
        if emptied:
            record_[block] = None
        else:
            del record_[block]
        assert block in named(record_, again)


def rounded(result: Result) -> None:
    """As another order of the same sums leaves it."""
    for curve in result["curves"].values():
        curve["max_abs_diff"] = [1.5 * v for v in curve["max_abs_diff"]]
        curve["kl"] = [2.25 * v for v in curve["kl"]]
    for block in ("metrics", "noise_floor"):
        for key, power in (
            ("max_abs_diff", 1),
            ("mean_abs_diff", 1),
            ("kl_max", 2),
            ("kl_mean", 2),
        ):
            result[block][key] *= 1.5**power
    for key in ("restored", "plain", "restored_mean", "plain_mean"):
        result["oracle"][key] *= 1.5
    result["oracle"]["ratio"] = result["oracle"]["restored"] / result["oracle"]["plain"]
    errors = result["oracle"]
    result["reason"]["args"] = {key: errors[key] for key in ("restored", "plain")}
    result["size"]["stored_bytes"] += 64
    result["mutation"] |= dict.fromkeys(("digest_before", "digest_after"), "0" * 64)


@pytest.mark.parametrize("what", ["code", "cpu"])
def test_what_rounding_and_headers_move_is_the_same_elsewhere(again: Result, what: str) -> None:
    result = copy.deepcopy(again)
    rounded(result)
    result["environment"][what] = "another"
    result["conclusion"] = derivation.conclusion(result)
    assert bool(named(result, again)) is (what == "code")


def inner(*path: Any, to: Any) -> Callable[[Result], None]:
    """Change one leaf; `to` may be a function of the old value."""

    def edit(result: Result) -> None:
        node: Any = result
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = to(node[path[-1]]) if callable(to) else to

    return edit


def flat(result: Result) -> None:
    for curve in result["curves"].values():
        for key, steps in curve.items():
            curve[key] = [1e-9 for _ in steps]


def flat_but_one(result: Result) -> None:
    """Noise made low at all steps but the highest, of which the result speaks."""
    curve = result["curves"]["noise: without a cache"]
    high = max(curve["max_abs_diff"])
    curve["max_abs_diff"] = [v if v == high else 1e-12 for v in curve["max_abs_diff"]]
    curve["kl"] = [v if v == max(curve["kl"]) else v * 1e-9 for v in curve["kl"]] * 2


def scaled(result: Result) -> None:
    result["oracle"]["plain"] *= 1000
    result["oracle"]["ratio"] = result["oracle"]["restored"] / result["oracle"]["plain"]


def times(*path: Any, by: float) -> Callable[[Result], None]:
    return inner(*path, to=lambda value: type(value)(value * by))


def added(result: Result) -> None:
    result["size"]["compression"] = 100


# what is forged -> (how, what the audit must name)
FORGED = {
    "stored bytes": (inner("size", "stored_bytes", to=1000), "size.stored_bytes"),
    "noise": (times("noise_floor", "max_abs_diff", by=1000), "noise_floor.max_abs_diff"),
    "less noise": (times("noise_floor", "mean_abs_diff", by=1e-3), "noise_floor.mean_abs_diff"),
    "noise's divergence": (times("noise_floor", "kl_mean", by=1e5), "noise_floor.kl_mean"),
    "agreement": (inner("noise_floor", "top1_agreement", to=0.1), "noise_floor.top1_agreement"),
    "oracle": (scaled, "oracle.plain"),
    "curves": (flat, "metrics.max_abs_diff"),
    "a curve": (flat_but_one, "curves"),
    "served": (inner("cache", "served", to="cloned"), "cache.served"),
    "no paths": (inner("soundness", "paths", to=[]), "soundness.paths"),
    "a path's error": (times("soundness", "paths", 2, "error", by=1e-3), "soundness.paths[2].error"),
    "a bound": (inner("soundness", "paths", 2, "bound", to=1e-30), "soundness.sound"),
    "mutated": (inner("mutation", "digest_after", to="f" * 64), "mutation.digest_after"),
    "added": (added, "size.compression"),
    "bit-equal": (inner("metrics", "bitwise_equal", to=True), "metrics.bitwise_equal"),
    "exact": (inner("verdict", to="exact"), "verdict"),
    "divergence": (inner("noise_floor", "first_divergence", to=3), "noise_floor.first_divergence"),
    "a GPU": (inner("environment", "gpu", to="NVIDIA H200"), "environment.gpu"),
    "a device": (inner("environment", "device", to="cuda"), "environment.cuda"),
    "model": (inner("model", "name", to="llama-3-70b"), "model.name"),
}  # fmt: skip


@pytest.mark.parametrize("what", FORGED)
@pytest.mark.parametrize("code", [True, False], ids=["other words", "other machine"])
def test_what_another_version_cannot_say_otherwise(
    older: Result, again: Result, what: str, code: bool
) -> None:
    if not code:
        older = copy.deepcopy(again)
        older["environment"]["cpu"] = "another"
    FORGED[what][0](older)
    assert FORGED[what][1] in named(older, again)


@pytest.mark.parametrize(
    "said, claim",
    [
        ("Same thought: every logit is bit-equal, 200 times faster.", "200 times faster"),
        ("The same on an H200 in bfloat16 with 128k tokens.", "128"),
        ("The same, 1 KiB.", "1 KiB"),
        ("The same (error 0.001 of rounding's own, 2 allowed).", "0.001"),
        ("Bit for bit: every logit is bit-equal.", "bit-equal"),
    ],
)
def test_a_sentence_in_other_words_claims_no_other_figures(
    older: Result, again: Result, said: str, claim: str
) -> None:
    findings = list(derivation.sentence({**older, "conclusion": said}))
    assert claim in [f.recorded for f in findings if f.what == "conclusion"]
    assert "conclusion" in named({**older, "conclusion": said}, again)


def test_figures_that_the_record_has_may_be_said_in_any_words(older: Result) -> None:
    """A speed too that this version would not speak of, since it was measured in too short a time."""
    tokens, ratio = older["size"]["tokens"], older["oracle"]["ratio"]
    said = f"All {tokens} tokens, {ratio:.2g} of float64's rounding, 2 allowed"
    speed = derivation.speed(older, 0.0)
    assert list(derivation.sentence({**older, "conclusion": f"{said}, {speed}."})) == []


@pytest.mark.parametrize("wanted, device", [("cpu", "cuda"), ("cuda", "cpu")])
def test_a_device_that_the_configuration_does_not_ask_for(again: Result, wanted, device) -> None:
    there = {"device": device, "gpu": "H200", "cuda": "13.0", "versions": {"torch": "2.13.0"}}
    here = {"device": device, "gpu": None, "cuda": None, "versions": {"torch": "2.13.0"}}
    place = {"environment": there if device == "cuda" else here}
    assert list(derivation.machine(place)) == list(derivation.machine(place, "auto")) == []
    assert [f.what for f in derivation.machine(place, wanted)] == ["environment.device"]
    there["versions"]["torch"] = "2.13.0+cpu"
    assert device == "cpu" or list(derivation.machine(place))


def test_names_are_not_explained_by_noise(older: Result, again: Result) -> None:
    older["model"]["name"] = older["options"]["model"] = older["required"] = "llama"
    changed = changes(older["environment"], again["environment"])
    findings = [*compare(older, again, changed)]
    assert {f.what for f in findings} == {"model.name", "options.model", "required"}
    assert all("configuration does not give" in f.explanation for f in findings)


@pytest.mark.parametrize("was, now", [("</body>", "7 times faster</body>"), ("ought", "ink")])
def test_the_headline_of_a_page_of_another_version(recorded, older, tmp_path, was, now) -> None:
    """And its speeds; the rest of it is said not to be compared."""
    text = (recorded / "report.html").read_text("utf-8")
    older["conclusion"] = record.read(recorded / "result.json")["conclusion"]
    assert was in text and "report.html" not in [f.what for f in derivation.page(recorded, older)]
    point = Path(shutil.copytree(recorded, tmp_path / "older"))
    (point / "report.html").write_text(text.replace(was, now), "utf-8")
    assert [f.what for f in derivation.page(point, older)] == ["report.html"]


def test_a_record_of_other_code_is_the_same_bit_for_bit(
    recorded: Path, harness, tmp_path: Path
) -> None:
    point = Path(shutil.copytree(recorded, tmp_path / recorded.name))
    result, sealed = record.read(point / "result.json"), record.read(point / record.NAME)
    result["environment"]["code"], result["folder"] = "of another time", str(point)
    drawn = (point / "report.html").read_text("utf-8")
    (point / "report.html").write_text(drawn.replace("</main>", "<br></main>"), "utf-8")
    record.seal(point, result, sealed["config"], sealed["packages"])
    done = harness("task=audit", f"run={point}", "name=older")
    assert done.code == 0 and "not compared" not in done.out, done.out
    assert "every figure and token" in done.out.lower() and "bitwise" in done.out, done.out
    result["size"]["stored_bytes"] += 1
    record.seal(point, result, sealed["config"], sealed["packages"])
    (fresh,) = tmp_path.glob("runs/older/*/again/run")
    assert "size.stored_bytes" in [f.what for f in audit.reproduced(point, fresh)[0]]


def test_a_pruned_state_beside_itself_is_compared_where_it_was_asked(
    older: Result, again: Result
) -> None:
    """The figures may be apart by the noise, the verdict not."""
    block = {"cache": "dynamic", "verdict": "equivalent", "required": "equivalent", "noise": 2e-5,
             "max_abs_diff": 1e-5, "kl_max": 1e-12, "top1_agreement": 1.0, "reason": "as it is"}  # fmt: skip
    asked = {**again, "itself": block}
    assert named(older, asked) == named(again, asked) == {"itself"}
    assert named(asked, copy.deepcopy(asked)) == set()
    honest = {**block, "verdict": "exact", "max_abs_diff": 2e-5, "noise": 1.5e-5}
    assert named({**older, "itself": honest}, asked) == set()
    for key, forged in (
        ("verdict", "diverged"),
        ("max_abs_diff", 1.0),
        ("noise", 9.0),
        ("cache", "view"),
    ):
        for made in (older, again):
            assert f"itself.{key}" in named({**made, "itself": {**block, key: forged}}, asked)


@pytest.mark.parametrize(
    ("key", "inside", "outside"),
    [
        ("oracle.restored", 15.0, 17.0),
        ("oracle.plain", 1 / 15.0, 1 / 17.0),
        ("size.stored_bytes", 1.04, 1.06),
        ("size.kv_bytes", 1.0, 1.01),
    ],
)
def test_a_bound_that_an_audit_states_is_the_one_that_it_holds_a_figure_to(
    older, again, key, inside, outside
) -> None:
    """Just inside it nothing is found of the figure, just outside it is named; the same for a metric."""
    block, _, last = key.partition(".")
    held = bounds(older, again, changes(older["environment"], again["environment"]))
    for factor, found in ((inside, False), (outside, True)):
        other = copy.deepcopy(older)
        other[block][last] = type(other[block][last])(again[block][last] * factor)
        assert (key in named(other, again)) is found
    said = {"oracle": "at most 16 times larger or smaller", "stored_bytes": "within 5%"}
    assert held[key]["held_to"] == said.get(block, said.get(last, "equal"))
    assert held["metrics.bitwise_equal"]["held_to"] == "not compared"
    was, noise = older["metrics"]["max_abs_diff"], again["noise_floor"]
    most = float(held["metrics.max_abs_diff"]["held_to"].split()[2])
    assert explained("max_abs_diff", was, was + 0.98 * most, [noise])
    assert not explained("max_abs_diff", was, was + 1.02 * most, [noise])
    assert bounds(again, again, []) == {}


def test_every_row_that_is_another_names_what_it_was_held_to(again: Result) -> None:
    """Rows of lists as well: digests, steps, noise, yardstick; those that are the same name nothing."""
    other = copy.deepcopy(again)
    rounded(other)
    other["environment"]["threads"] = 99
    other["elements"][0]["digest"] = "f" * 64
    other["soundness"]["scale"]["error"] *= 1.5
    held = bounds(other, again, changes(other["environment"], again["environment"]))
    _, rows = figures.rows(other, again, held)
    apart = [row for row in rows if row[2] and row[2] != figures.short("the same")]
    names = [row[0] for row in apart]
    assert {*figures.LISTS.values()} & {*names} == {
        figures.LISTS[key] for key in ("elements", "curves", "noise_floor", "soundness")
    }
    assert all(row[3] and row[4] for row in apart), apart
    assert not any(row[3] for row in rows if row not in apart)
    assert {*figures.lists(again)} <= {*held}
