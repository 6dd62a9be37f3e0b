"""A pruned or a quantized state beside itself under another cache: no shipped cache is blamed, and one that
does not continue what it was given is, although a pruning alone may make other tokens."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cache.library import LibraryDecoder
from harness.cache.manual import Manual
from harness.cache.registry import decoder, others
from harness.config import CacheConfig
from harness.fault.registry import fault_named
from harness.pipeline.line import Line
from harness.present.conclusion import conclusion
from harness.present.messages import worded
from harness.snapshot import words
from harness.snapshot.result import GOOD, told_apart

TEXT = "text='let k be 5 . let m be 7 . the bird sang in the tree . what is k ?'"
SMALLER = (
    "prune=snapkv prune.ratio=0.5",
    "prune=keydiff prune.ratio=0.5 prune.budget=adaptive",
    "prune=sink_window prune.ratio=0.5 prune.positions=reindexed",
    "prune=snapkv prune.ratio=0.5 prune.at=4 prune.budget=adaptive",
    "prune=keydiff prune.ratio=0.5 quantize=int4",
)
BROKEN = """
from harness.cache import LibraryDecoder


class Restarted(LibraryDecoder):
    def forward(self, ids, positions):
        return super().forward(ids, positions - positions.min())


class Swapped(LibraryDecoder):
    def working_copy(self, cache):
        layer = cache.layers[1]
        layer.keys, layer.values = layer.keys.flip(1), layer.values.flip(1)
        return cache


class Healthy(LibraryDecoder):
    def forward(self, ids, positions):
        return super().forward(ids, positions)
"""
OWN = "--config-dir", "mine/conf", "plugins.path=mine"


@pytest.fixture
def mine(place: Path) -> None:
    folder = place / "mine" / "conf" / "cache"
    folder.mkdir(parents=True)
    (place / "mine" / "its_own.py").write_text(BROKEN)
    for name in ("Restarted", "Swapped", "Healthy"):
        option = f"_target_: its_own.{name}\nname: {name.lower()}\n"
        (folder / f"{name.lower()}.yaml").write_text(option)


def line_of(session, *overrides: str) -> tuple[Line, object]:
    opened = session(*overrides)
    line = Line(replace(opened, times={}), fault_named(opened.cfg.fault), record={})
    state = line.capture(steps=opened.cfg.steps)
    at = opened.cfg.prune.at
    small = line.quantize(line.prune(state) if at == "prefill" else state)
    return line, (state, line.restore(line.save(small)))


@pytest.mark.parametrize("smaller", SMALLER)
def test_no_shipped_cache_is_blamed(session, smaller) -> None:
    dtype = "bfloat16" if "quantize" in smaller else "float32"
    given = (TEXT, "prompt=text", "steps=8", "save=memory", f"dtype={dtype}", *smaller.split())
    for cache in ("dynamic", "manual", "view"):
        line, (state, restored) = line_of(session, *given, f"cache={cache}")
        made = line.judge(restored, state)
        assert made.itself["verdict"] in GOOD and not made.broken, (cache, made.itself)
        assert made.itself["cache"] != cache
        assert 0 < made.itself["noise"] < (1e-3 if dtype == "float32" else 1)


def test_a_whole_state_is_not_asked(session) -> None:
    line, (state, restored) = line_of(session, TEXT, "prompt=text", "steps=2", "save=memory")
    made = line.judge(restored, state)
    assert made.itself == {} and "itself" not in made.record()


def test_who_is_asked_shares_no_forward_with_who_is_judged(session, monkeypatch) -> None:
    """A fault in what all caches of one kind share is not excused by another of that kind."""
    opened = session(TEXT, "prompt=text")
    state = opened.capture(opened.encoded(), opened.sampler()).state
    for name in ("dynamic", "cloned", "deepcopy", "static"):
        assert others(decoder(opened.loaded, state, CacheConfig(name=name)))[0] == "manual"
    for name in ("auto", "manual", "view"):
        assert others(decoder(opened.loaded, state, CacheConfig(name=name)))[0] == "dynamic"
    given = (TEXT, "prompt=text", "steps=6", "save=memory", "prune=snapkv", "prune.ratio=0.5")
    for kind, cache in ((LibraryDecoder, "dynamic"), (Manual, "manual")):
        real = kind.forward
        with monkeypatch.context() as patched:
            patched.setattr(
                kind, "forward", lambda self, ids, at, real=real: real(self, ids, at + 9)
            )
            line, (state, restored) = line_of(session, *given, f"cache={cache}")
            made = line.judge(restored, state)
        assert made.broken and made.itself["cache"] in ("manual", "dynamic"), made.itself


def test_a_fault_on_what_a_pruning_kept_is_no_pruning(harness) -> None:
    given = TEXT, "prompt=text", "steps=4", "prune=snapkv", "prune.ratio=0.5", "save=memory"
    for fault in ("layer_swap", "head_permutation", "stale_values"):
        done = harness(*given, f"fault={fault}")
        assert done.code == 1, (fault, done.out)
        told = "The pruned state did not come back as it was saved: "
        assert done.result["conclusion"].startswith(told), "the first thing to know"
        swapped = done.result["conclusion"].startswith(f"{told}layers 0 and 1 are exchanged; ")
        assert swapped is (fault == "layer_swap")
        assert "Restore: as saved" not in done.out, done.out
    done = harness(*given)
    assert done.code == 0 and "did not come back" not in done.out
    said = done.result["conclusion"]
    assert said.startswith("Restore: as saved, "), said
    assert done.result["itself"]["against"] == "saved"
    apart = told_apart(said)
    assert re.match(
        r"Pruning: (another token than the full cache's at \d+ of 4 steps|the tokens of)", apart
    ), apart
    assert "tokens kept, " in said and "Another thought" not in said, said
    assert conclusion({**done.result, "itself": None}) == apart


@pytest.mark.parametrize("fault", ["layer_swap", "head_permutation", "stale_values"])
def test_a_pruned_snapshot_from_elsewhere_holds_what_its_ids_give(session, fault) -> None:
    given = TEXT, "prompt=text", "steps=4", "prune=snapkv", "prune.ratio=0.5", "save=memory"
    for damage in ("none", fault):
        line, (state, restored) = line_of(session, *given, f"fault={damage}")
        line.made = None  # nobody here knows what was saved
        made = line.judge(restored, state)
        stored = {check.name: check.outcome for check in made.checks}["stored"]
        assert (stored == "failed") is made.broken is (damage != "none"), made.itself


WENT = {
    "position_off_by_one": ("position", "next_position is 27 where 26 was saved"),
    "logits_of_another_step": ("logits", " of logits are others"),
    "weights_replaced": ("identity", "every tensor did, so the model that goes on is another"),
}


@pytest.mark.parametrize("fault", WENT)
def test_what_a_pruning_left_comes_back_as_it_was_saved(harness, fault) -> None:
    """What no K/V shows: where the next token goes, what chooses the first, the model itself."""
    given = TEXT, "prompt=text", "steps=4", "prune=snapkv", "prune.ratio=0.5", "save=memory"
    cause, seen = WENT[fault]
    done = harness(*given, f"fault={fault}", "restore.strict=false", "restore.verify=digest")
    told, block = done.result["diagnosis"], done.result["itself"]
    assert done.code == 1 and block["verdict"] in ("drifted", "diverged"), done.out
    assert (
        seen in worded(block["reason"]) and "did not come back as" in done.result["conclusion"]
    ), block
    assert told["cause"] == cause and block["against"] == "saved", told
    page = (done.folders[0] / "report.html").read_text("utf-8")
    assert "the state before it was saved, under cache=" in page


def test_a_pruned_and_quantized_state_is_called_both(session) -> None:
    given = TEXT, "prompt=text", "steps=2", "prune=snapkv", "prune.ratio=0.5", "quantize=int8"
    line, (state, restored) = line_of(session, *given, "save=memory")
    made = line.judge(restored, state)
    assert worded(made.itself["reason"]).startswith(
        "as the pruned and quantized state before it was saved"
    )
    assert made.diagnosis["evidence"].startswith("pruned and quantized on purpose: ")
    assert words.on_purpose(made.diagnosis)


@pytest.mark.parametrize(
    "smaller",
    ["prune=snapkv prune.ratio=0.5", pytest.param("quantize=int8", marks=pytest.mark.slow)],
)
def test_a_broken_cache_is_told_from_a_pruning(harness, mine, smaller) -> None:
    harness("task=save", TEXT, "out=whole", "prompt=text")
    harness("task=prune", "snapshot=whole", "out=small", "steps=2", *smaller.split())
    whose = "pruned" if "prune" in smaller else "quantized"
    for cache in ("restarted", "swapped", "healthy"):
        given = "snapshot=small", "text= what is k ?", "steps=6", f"cache={cache}"
        done = harness(*OWN, "task=resume", *given)
        block, told = done.result["itself"], done.result["diagnosis"]
        if cache == "healthy":
            assert block["verdict"] in GOOD and "itself is not continued" not in done.out
            assert done.code == (0 if whose == "pruned" else 1) and "on purpose" in told["evidence"]
            continue
        assert done.code == 1 and block["verdict"] in ("drifted", "diverged"), done.out
        sentence = f"the {whose} state itself is not continued by cache={cache}"
        assert sentence in worded(block["reason"])
        assert done.result["conclusion"].startswith(f"T{sentence[1:]}"), "the first thing to know"
        assert told["cause"] == "cache" and "on purpose" not in told["evidence"]

        assert f"cache={block['cache']}" in (done.folders[0] / "report.html").read_text("utf-8")


def test_a_broken_cache_on_the_main_line_and_where_it_prunes_as_it_goes(harness, mine) -> None:
    for smaller in ("prune.ratio=0.5", "prune.tokens=12 prune.at=4"):
        given = (TEXT, "prompt=text", "steps=10", "prune=snapkv", *smaller.split())
        done = harness(*OWN, *given, "cache=restarted")
        assert done.code == 1 and done.result["itself"]["verdict"] == "diverged", done.out
        assert (
            done.result["required"] == "diverged" and done.result["diagnosis"]["cause"] == "cache"
        )
        assert harness(*OWN, *given, "cache=healthy").code == 0


def test_as_api_it_too(session) -> None:
    import harness

    opened = session(TEXT, "prompt=text")
    state = harness.capture_text(opened.loaded, "let k be 5 . let m be 7 . the bird sang .")
    small = harness.prune_state(opened.loaded, state, "snapkv", ratio=0.5)
    made = harness.judge(opened.loaded, small, steps=6, cache="manual")
    assert made.itself["verdict"] in GOOD and made.itself["cache"] == "dynamic"


def test_branches_of_a_pruned_snapshot_are_resumed_and_judged(harness) -> None:
    harness("task=save", TEXT, "prompt=text", "prune=snapkv", "prune.ratio=0.5", "out=small")
    done = harness("task=resume", "snapshot=small", "steps=3", "cache=dynamic", "cache.branches=2")
    assert done.code == 0 and done.result["itself"]["verdict"] in GOOD, done.out
