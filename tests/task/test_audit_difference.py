"""How a record is held to its second run, value by value: what rounding, another machine or another version may change in
it, and the forged twin that each rule must name."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.results.record import compare_of
from harness.snapshot import record
from harness.task.audit.difference import BLOCKS, changes, compare, explained, formed, machine

Result = dict[str, Any]


@pytest.fixture(scope="module")
def again(recorded: Path) -> Result:
    return record.read(recorded / "result.json")


@pytest.fixture
def elsewhere(again: Result) -> Result:
    """The same run as another machine recorded it."""
    result = copy.deepcopy(again)
    result["environment"]["cpu"] = "another"
    return result


def named(recorded: Result, again: Result) -> set[str]:
    return {finding.what for finding in compare(recorded, again, changes(recorded, again))}


def test_sentences_and_labels_and_what_came_later_are_no_facts(
    elsewhere: Result, again: Result
) -> None:
    for result in (elsewhere, copy.deepcopy(again)):
        result["conclusion"], result["reason"] = "Well done.", "in other words"
        result["text"]["account"] = [a | {"why": "so it is"} for a in result["text"]["account"]]
        for path in result["soundness"]["paths"]:
            path["path"] = f"in other words, {path['path']}"
        del result["sampler"]
        assert named(result, again) == set()
    assert named({**again, "sampler": {}, "certified_by": "us"}, again) == {"certified_by"}


def test_a_reason_with_a_code_is_a_fact(again: Result) -> None:
    reason = {"code": "within_rounding", "args": {"error": 1e-6}}
    coded = {**again, "reason": reason}
    assert named(coded, copy.deepcopy(coded)) == set()
    assert named({**again, "reason": reason | {"code": "logic"}}, coded) == {"reason.code"}
    assert named({**again, "reason": {**reason, "args": {"error": 2e-6}}}, coded) == {
        "reason.args.error"
    }


def test_another_digest_of_the_code_allows_nothing(again: Result) -> None:
    """A commit that moves no figure needs no new records; one that does is no other machine."""
    other = copy.deepcopy(again)
    other["environment"]["code"] = "of another time"
    assert named(other, again) == set()
    assert [(c["what"], c["decisive"]) for c in changes(other, again)] == [("code", False)]
    other["noise_floor"]["max_abs_diff"] *= 1 + 1e-12
    assert "noise_floor.max_abs_diff" in named(other, again)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("emptied", [True, False])
def test_a_block_that_every_run_writes_was_taken_out(elsewhere, again, block, emptied) -> None:
    for result in (elsewhere, copy.deepcopy(again)):
        if emptied:
            result[block] = None
        else:
            del result[block]
        assert block in named(result, again)


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
    result["size"]["stored_bytes"] += 64
    result["mutation"] |= dict.fromkeys(("digest_before", "digest_after"), "0" * 64)


def test_what_rounding_and_headers_move_is_the_same_elsewhere_alone(
    again: Result, elsewhere
) -> None:
    here = copy.deepcopy(again)
    rounded(here)
    rounded(elsewhere)
    assert named(elsewhere, again) == set() and "size.stored_bytes" in named(here, again)


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


def scaled(result: Result) -> None:
    result["oracle"]["plain"] *= 1000
    result["oracle"]["ratio"] = result["oracle"]["restored"] / result["oracle"]["plain"]


def times(*path: Any, by: float) -> Callable[[Result], None]:
    return inner(*path, to=lambda value: type(value)(value * by))


# what is forged -> (how, what the audit must name)
FORGED = {
    "stored bytes": (inner("size", "stored_bytes", to=1000), "size.stored_bytes"),
    "kept": (times("size", "kv_bytes", by=1.01), "size.kv_bytes"),
    "noise": (times("noise_floor", "max_abs_diff", by=1000), "noise_floor.max_abs_diff"),
    "less noise": (times("noise_floor", "mean_abs_diff", by=1e-3), "noise_floor.mean_abs_diff"),
    "noise's divergence": (times("noise_floor", "kl_mean", by=1e5), "noise_floor.kl_mean"),
    "agreement": (inner("noise_floor", "top1_agreement", to=0.1), "noise_floor.top1_agreement"),
    "oracle": (scaled, "oracle.plain"),
    "no oracle": (inner("oracle", "plain", to=None), "oracle.plain"),
    "ratio": (inner("oracle", "ratio", to=0.01), "oracle.ratio"),
    "curves": (flat, "metrics.max_abs_diff"),
    "served": (inner("cache", "served", to="cloned"), "cache.served"),
    "no paths": (inner("soundness", "paths", to=[]), "soundness.paths: how many"),
    "a path's error": (times("soundness", "paths", 2, "error", by=1e-3), "soundness.paths[2].error"),
    "a bound": (inner("soundness", "paths", 2, "bound", to=1e-30), "soundness.sound"),
    "a check": (inner("checks", 0, "outcome", to="not asked"), "checks[0].outcome"),
    "mutated": (inner("mutation", "digest_after", to="f" * 64), "mutation.digest_after"),
    "added": (inner("size", "compression", to=100), "size.compression"),
    "bit-equal": (inner("metrics", "bitwise_equal", to=True), "metrics.bitwise_equal"),
    "a metric taken out": (lambda r: r["metrics"].pop("kl_max"), "metrics.kl_max"),
    "a size taken out": (lambda r: r["size"].pop("kv_bytes"), "size.kv_bytes"),
    "exact": (inner("verdict", to="exact"), "verdict"),
    "metric": (inner("metrics", "kl_max", to=0.25), "metrics.kl_max"),
    "divergence": (inner("noise_floor", "first_divergence", to=3), "noise_floor.first_divergence"),
    "an element": (inner("elements", 3, "digest", to="0" * 64), "element"),
    "a token": (inner("text", "restored_ids", to=[1, 2]), "text.restored_ids"),
    "model": (inner("model", "name", to="llama-3-70b"), "model.name"),
    "an option": (inner("options", "cache", to="view"), "options.cache"),
    "required": (inner("required", to="drifted"), "required"),
}  # fmt: skip


@pytest.mark.parametrize("what", FORGED)
@pytest.mark.parametrize("here", [True, False], ids=["here", "elsewhere"])
def test_a_forged_value_is_named(elsewhere: Result, again: Result, what: str, here: bool) -> None:
    forged = copy.deepcopy(again) if here else elsewhere
    FORGED[what][0](forged)
    assert any(name.startswith(FORGED[what][1]) for name in named(forged, again))


@pytest.mark.parametrize("key, inside, outside", [("oracle.restored", 15.0, 17.0), ("size.stored_bytes", 1.04, 1.06)])  # fmt: skip
def test_the_bounds(elsewhere, again, key, inside, outside) -> None:
    block, _, last = key.partition(".")
    for factor, found in ((inside, False), (outside, True)):
        other = copy.deepcopy(elsewhere)
        other[block][last] = type(other[block][last])(again[block][last] * factor)
        assert (key in named(other, again)) is found
    noise = {"max_abs_diff": 1.0}
    assert explained("max_abs_diff", 3.0, 4.9, noise) and not explained(
        "max_abs_diff", 3.0, 5.1, noise
    )


@pytest.mark.parametrize("wanted, device", [("cpu", "cuda"), ("cuda", "cpu")])
def test_a_machine_that_cannot_be(again: Result, wanted, device) -> None:
    where = {"device": device, "gpu": None, "cuda": None, "versions": {"torch": "2.13.0"}}
    if device == "cuda":
        where |= {"gpu": "H200", "cuda": "13.0"}
    place = {"environment": where}
    assert list(machine(place)) == list(machine(place, "auto")) == []
    assert [f.what for f in machine(place, wanted)] == ["environment.device"]
    where["gpu"] = None if device == "cuda" else "H200"
    assert [f.what for f in machine(place)] == ["environment.gpu"]
    where["versions"]["torch"] = "2.13.0+cpu"
    assert device == "cpu" or len(list(machine(place))) == 2


def test_a_pruned_state_beside_itself_is_compared_where_it_was_asked(elsewhere, again) -> None:
    """The figures may be apart by the noise, the verdict not."""
    block = {"cache": "dynamic", "verdict": "equivalent", "required": "equivalent", "noise": 2e-5,
             "max_abs_diff": 1e-5, "kl_max": 1e-12, "top1_agreement": 1.0, "reason": "as it is"}  # fmt: skip
    asked = {**again, "itself": block}
    assert named(elsewhere, asked) == named(again, asked) == {"itself"}
    honest = {**block, "verdict": "exact", "max_abs_diff": 2e-5, "noise": 1.5e-5}
    assert named({**elsewhere, "itself": honest}, asked) == set()
    for key, forged in (
        ("verdict", "diverged"),
        ("max_abs_diff", 1.0),
        ("noise", 9.0),
        ("cache", "view"),
    ):
        for made in (elsewhere, again):
            assert f"itself.{key}" in named({**made, "itself": {**block, key: forged}}, asked)


def test_the_steps_of_a_loop_and_the_turns_of_a_chat_are_compared(elsewhere, again) -> None:
    steps = [{"step": 1, "token": 5, "probability": 0.9, "kept": 9}]
    said = [{"turn": 1, "answer": "5", "cached_s": 0.1, "snapshot": "a/turn-001"}]
    both = {"trace": steps, "turns": said}
    near = {"trace": [{**steps[0], "probability": 0.90000001}],
            "turns": [{**said[0], "cached_s": 9.0, "snapshot": "b/turn-001"}]}  # fmt: skip
    assert named({**elsewhere, **near}, {**again, **both}) == set()
    assert named({**again, **near}, {**again, **both}) == {"trace[0].probability"}
    for forged in (
        {"trace": [{**steps[0], "token": 6}]},
        {"trace": []},
        {"turns": [{**said[0], "answer": "6"}]},
    ):
        for made in (elsewhere, again):
            assert named({**made, **both, **forged}, {**again, **both})


@pytest.fixture(scope="module")
def refusal(shell, tmp_path_factory) -> Result:
    runs = tmp_path_factory.mktemp("refused")
    shell("fault=layer_swap", "steps=4", f"runs_dir={runs}", "name=refused", "track=none")
    (folder,) = (runs / "refused").iterdir()
    return record.read(folder / "result.json")


REFUSED = {
    "diagnosis.layer": inner("diagnosis", "layer", to=1),
    "diagnosis.cause": inner("diagnosis", "cause", to="rounding"),
    "diagnosis.picture": inner("diagnosis", "picture", 0, 0, to=0.5),
    "differences: how many": lambda r: r["differences"].pop(),
    "differences[0].element": inner("differences", 0, "element", to="3 kv_cache"),
    "known.size.tokens": inner("known", "size", "tokens", to=98),
    "element": inner("known", "elements", 1, "digest", to="0" * 64),
    "environment": lambda r: r.pop("environment"),
    "exit_code": inner("exit_code", to=0),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("here", [True, False], ids=["here", "elsewhere"])
def test_a_forged_refusal_is_named(refusal: Result, what: str, here: bool) -> None:
    forged = json.loads(json.dumps(refusal))
    if not here:
        forged["environment"]["threads"] = 77
        forged["diagnosis"]["picture"] = [
            [v * 1.5 for v in r] for r in forged["diagnosis"]["picture"]
        ]
    forged |= {"stages": [], "date": "later", "conclusion": "in other words"}
    assert named(forged, refusal) == set()
    REFUSED[what](forged)
    assert any(name.startswith(what) for name in named(forged, refusal)), named(forged, refusal)


def values(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from values(value, (*path, key))
    elif isinstance(tree, list) and tree:
        yield from values(tree[-1], (*path, len(tree) - 1))
    else:
        yield path, tree


WORDS = {"reason", "conclusion", "soundness.scale.against", "soundness.paths.path", "text.account.why",
         "checks.figures.path", "checks.figures.against"}  # fmt: skip
PLACES = {"snapshot.path", "options.track", "folder"}  # where it lies and is tracked


def test_no_value_of_a_result_is_beyond_the_audit(again: Result) -> None:
    """Each of them changed alone: but for times, words, and for where it was made and lies."""
    unseen = set()
    for path, value in values(again):
        other = not value if isinstance(value, bool) else f"{value} 7" if isinstance(value, str) else 777  # fmt: skip
        forged = copy.deepcopy(again)
        inner(*path, to=other)(forged)
        if path[0] not in ("environment", "time_s", "mlflow") and not [
            *formed(compare(forged, again, []))
        ]:
            unseen.add(".".join(str(part) for part in path if isinstance(part, str)))
    assert unseen <= WORDS | PLACES, unseen
    slower = {key: value and 2 * value for key, value in again["time_s"].items()}
    assert list(compare(again, {**again, "time_s": slower}, [])) == []


def test_every_fact_says_how_it_is_compared() -> None:
    """By its own field or the nearest that holds it; a figure that is measured anew by its name."""
    assert compare_of("metrics.kl_max") == "noise" and compare_of("size.tokens") == "exact"
    assert (
        compare_of("soundness.paths[2].error") == "noise"
        and compare_of("text.account[0].why") == "skip"
    )
    assert (
        compare_of("curves.restored.kl[3]") == "noise"
        and compare_of("quantization.seconds") == "time"
    )
    assert compare_of("time_s.load") == "time" and compare_of("something.new") is None
