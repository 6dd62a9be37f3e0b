"""Damage by class, tried and caught: `make fuzz` prints the table. Sizes: FUZZ_SNAPSHOTS (per format
and lineage) and FUZZ_MANIFESTS; resealed manifests and unsealed ones are counted apart."""

import os
import random
import shutil
import time
from collections import Counter

import pytest
import store_damage
from store_states import FORMATS, grown, make_state, settings

from harness.errors import HarnessError
from harness.save import store

SMALL = {"dtype": "bfloat16", "tokens": 10}
RESEALED = (store_damage.edit_manifest_and_id, store_damage.edit_row_and_id)
SECONDS = 20  # that one damaged snapshot may take


def refused(folder):
    """Whether a load ends with one plain message, soon. Raises what is no refusal."""
    start = time.monotonic()
    try:
        store.load(folder)
        return False
    except HarnessError as problem:
        return bool(str(problem)) and time.monotonic() - start < SECONDS


def table(tried, missed):
    rows = [f"{'attack':<44}{'tried':>8}{'caught':>8}"]
    rows += [
        f"{what:<44}{n:>8}{n - len(missed.get(what, [])):>8}" for what, n in sorted(tried.items())
    ]
    lost = sum(map(len, missed.values()))
    return "\n".join([*rows, f"{'all':<44}{sum(tried.values()):>8}{sum(tried.values()) - lost:>8}"])


def snapshots(folder, count):
    """`count` damaged snapshots of each format, of each end of a lineage."""
    for form in FORMATS:
        parent = make_state(**SMALL)
        store.save(parent, folder / form / "parent", settings(form))
        child = grown(store.load(folder / form / "parent")[0], 3, 500)
        assert store.save(child, folder / form / "child", settings(form))["lineage"]
        store.save(make_state(seed=77, **SMALL), folder / form / "other", settings(form))
        for victim in ("parent", "child"):
            for seed in range(count):
                scratch = shutil.copytree(folder / form, folder / "x")
                rng = random.Random(f"{form} {victim} {seed}")
                what = store_damage.corrupt(scratch / victim, scratch / "other", rng)
                yield f"{form} {victim}", what.partition(":")[0], scratch / victim, f"{seed} {what}"
                shutil.rmtree(scratch)


def damaged_manifests(folder, count):
    """`count` manifests with one value changed, every other one with its id made to fit again."""
    store.save(make_state(**SMALL), folder / "s", settings())
    whole = (folder / "s" / "manifest.json").read_bytes()
    for seed in range(count):
        rng = random.Random(f"manifest {seed}")
        kind = rng.choice(RESEALED) if seed % 2 else store_damage.edit_manifest
        (folder / "s" / "manifest.json").write_bytes(whole)
        what = kind(folder / "s", None, rng)
        same = (folder / "s" / "manifest.json").read_bytes() == whole
        if same:
            continue
        yield "manifest", "resealed" if seed % 2 else "unsealed", folder / "s", f"{seed} {what}"


def attacked(attempts):
    """Tried and missed, by class."""
    tried, missed = Counter(), {}
    for where, kind, folder, what in attempts:
        tried[f"{where}: {kind}"] += 1
        if not refused(folder):
            missed.setdefault(f"{where}: {kind}", []).append(what)
    print(f"\n{table(tried, missed)}")
    return tried, missed


def run(folder, each, edits):
    tried, missed = attacked(snapshots(folder / "files", each))
    more, others = attacked(damaged_manifests(folder / "edits", edits))
    assert not missed and not others, {**missed, **others}
    return sum(tried.values()) + sum(more.values())


def test_a_few_hundred_attacks_are_all_caught(tmp_path):
    assert run(tmp_path, 12, 150) >= 12 * 2 * len(FORMATS) + 140


def test_a_miss_is_counted(tmp_path):
    """The twin: what is not damaged at all is no catch, or the table would say nothing."""
    store.save(make_state(**SMALL), tmp_path / "s", settings())
    tried, missed = attacked([("sound", "nothing", tmp_path / "s", "nothing was done")])
    assert missed == {"sound: nothing": ["nothing was done"]} and "1       0" in table(
        tried, missed
    )


@pytest.mark.slow
def test_every_attack_is_caught(tmp_path):
    """At full size: `make fuzz`."""
    each, edits = (
        int(os.environ.get(f"FUZZ_{n}", d))
        for n, d in (("SNAPSHOTS", "10000"), ("MANIFESTS", "8000"))
    )
    run(tmp_path, each, edits)
