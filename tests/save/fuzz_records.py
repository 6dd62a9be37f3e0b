"""Records of a run, damaged, and edited and then sealed again; no model runs but for the record itself.

Unsealed damage must show against the seal. A resealed edit must show against the second run of the same
configuration, unless it edits what no second run can say (`MEASURED`).
"""

import atexit
import contextlib
import copy
import io
import json
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import store_damage

from harness import config
from harness.results.record import compare_of
from harness.snapshot import record
from harness.task.audit import evidence, replay

KINDS = [store_damage.flip_bit, store_damage.flip_bytes, store_damage.truncate,
         store_damage.extend, store_damage.zero_block, store_damage.delete, store_damage.swap_files]  # fmt: skip
FREE = {"harness.log", "hydra.yaml", "pending.json"}  # claim nothing
# what is measured anew each time, or says where the record lies; and the words drawn from the rest
MEASURED = ("time_s", "folder", "mlflow", "environment.", "stored_bytes", "snapshot.path", "per_token",
            "_s", "exit_code", "bytes", "soundness.", "options.track", "waived")  # fmt: skip
CFG = SimpleNamespace(plugins=config.PluginsConfig(), track=SimpleNamespace(name="none"),
                      runs_dir="runs", trusted=[])  # fmt: skip
_made = []


def runs():
    """A record and its second run, made once in this process."""
    if not _made:
        above = Path(tempfile.mkdtemp(prefix="fuzz-record-"))
        atexit.register(shutil.rmtree, above, ignore_errors=True)
        from harness import __main__ as front

        before, here = sys.argv, Path.cwd()
        os.chdir(above)
        try:
            for name in ("one", "two"):
                sys.argv = ["harness", "steps=4", "prompt=text", "text=let k be 5 .", "track=none",
                            "sampling=sample", f"hydra.run.dir={above / name}"]  # fmt: skip
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):  # fmt: skip
                    assert front.main() == 0
        finally:
            sys.argv = before
            os.chdir(here)
        _made.extend([above / "one", above / "two"])
    return _made


def attempts(place, kind, start, stop):
    one, two = runs()
    whole = {p: p.read_bytes() for p in one.rglob("*") if p.is_file()}
    honest = record.read(one / "result.json")
    assert list(evidence.verified(one, CFG)) == [] and not replay.reproduced(one, two)[0]
    for seed in range(start, stop):
        rng = random.Random(f"record {kind} {seed}")
        if kind == "unsealed":
            what, wrong = damaged(one, whole, rng)
        else:
            what, wrong = edited(one, two, honest, rng)
        if what:
            yield "record", kind, wrong and f"{seed} {what}: {wrong}"
        for path in one.rglob("*"):
            if path.is_file() and path not in whole:
                path.unlink()
        for path, data in whole.items():
            path.parent.mkdir(exist_ok=True)
            if not path.is_file() or path.read_bytes() != data:
                path.unlink(missing_ok=True)
                path.write_bytes(data)


def damaged(one, whole, rng):
    """One file of the record damaged, its seal left as it is."""
    change = rng.choice(KINDS)
    what = f"{change.__name__} {change(one, one, rng)}"
    now = {p: p.read_bytes() for p in one.rglob("*") if p.is_file()}
    told = {p for p in {*now, *whole} if now.get(p) != whole.get(p) and p.name not in FREE}
    if all(_same(whole.get(p), now.get(p)) for p in told if p.name in ("result.json", record.NAME)):
        told -= {p for p in told if p.name in ("result.json", record.NAME)}
    if not told:
        return "", None
    return what, None if list(evidence.verified(one, CFG)) else "it was believed"


def _same(was, now):
    try:
        return json.loads(was) == json.loads(now)
    except (TypeError, ValueError):
        return False


def edited(one, two, honest, rng):
    """One value of the result changed, everything sealed again."""
    result = copy.deepcopy(honest)
    where, holder, key = store_damage._somewhere(result, rng)
    where = where[1:]
    if any(part in where for part in MEASURED) or compare_of(where) in ("time", "skip"):
        return "", None
    holder[key] = store_damage._other_value(holder[key], rng)
    sealed = record.read(one / record.NAME)
    try:
        record.seal(one, result, sealed["config"], sealed["packages"])
    except (ValueError, UnicodeEncodeError):
        return "", None  # no record can say this
    if record.read(one / "result.json") == honest:
        return "", None
    found = list(evidence.verified(one, CFG)) or replay.reproduced(one, two)[0]
    return f"{where}", None if found else "it was believed"
