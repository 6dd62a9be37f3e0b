"""Attacks by class, tried and caught: `make fuzz` prints the table (`--help`: sizes, workers).

Whatever is done to a snapshot or a record, the answer is a refusal in one message, soon, with nothing
run, written or contacted on the way. Where only its parent was damaged, a snapshot may also come
back bit for bit. Everything happens in one process per worker, in memory where there is a `/dev/shm`.
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2])]

import faulty  # noqa: E402
import store_damage  # noqa: E402
import torch  # noqa: E402
from store_states import FORMATS, assert_same, grown, make_state, settings  # noqa: E402

from harness import variants  # noqa: E402
from harness.errors import HarnessError  # noqa: E402
from harness.save import cipher, store  # noqa: E402
from harness.snapshot import manifest as manifests  # noqa: E402

SMALL = {"dtype": "bfloat16", "tokens": 10}
KEY = cipher.Key(b"fuzz" * 8)
WRITE, READ = store.Access(encrypt=KEY), store.Access(decrypt=KEY)
OUTSIDE = Path(__file__).parents[1] / "plugins" / "examples"
LANES = [*FORMATS, "my_zstd", "safetensors encrypted", "blosc2 encrypted"]
RESEALED = (store_damage.edit_manifest_and_id, store_damage.edit_row_and_id)
SECONDS = 20  # that one refusal may take
FORBIDDEN = {"os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect",
             "pickle.find_class", "ctypes.dlopen", "os.remove", "os.rename", "os.link", "os.symlink",
             "os.mkdir", "os.rmdir", "os.truncate", "os.chmod"}  # fmt: skip


class Watch:
    """What the interpreter reports while something hostile is read."""

    def __init__(self):
        self.on, self.seen = False, []
        sys.addaudithook(self._heard)

    def _heard(self, event, arguments):
        if not self.on:
            return
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & 3
        if event in FORBIDDEN or writes:
            self.seen.append(f"{event} {arguments[:1]}")

    @contextmanager
    def reading(self):
        self.on, self.seen = True, []
        try:
            yield self.seen
        finally:
            self.on = False


_watch = []


def watch():
    if not _watch:
        _watch.append(Watch())
    return _watch[0]


def missed(read, folder, same=None):
    """What is wrong with the answer to the hostile snapshot in `folder`; None for a clean refusal.
    same: a state that may come back instead."""
    start = time.monotonic()
    with watch().reading() as seen:
        try:
            state = read(folder)
        except HarnessError as problem:
            said = None if str(problem) and problem.exit_code in (2, 3) else "no message"
        except BaseException as problem:
            said = f"{type(problem).__name__} {problem}"
        else:
            said = "it was believed" if same is None else differs(state, same)
    if seen:
        return f"it did {seen[0]}"
    return said or (f"it took {time.monotonic() - start:.0f} s" * (time.monotonic() - start > SECONDS) or None)  # fmt: skip


def differs(state, same):
    try:
        assert_same(same, state)
    except AssertionError:
        return "another state came back"
    return None


@contextmanager
def examples():
    """The formats from outside can be chosen, and are trusted."""
    arguments, path = sys.argv, list(sys.path)
    sys.argv = [*arguments[:1], f"--config-dir={OUTSIDE / 'conf'}"]
    variants.trust(["my_zstd"], str(OUTSIDE))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = arguments, path
        variants.trust([], None)


class Family:
    """Parent, child and another snapshot of one lane, put right again after each attack."""

    def __init__(self, folder, lane):
        form, _, closed = lane.partition(" ")
        self.folder, self.access = folder, READ if closed else store.Access()
        write = WRITE if closed else store.Access()
        store.save(make_state(**SMALL), folder / "parent", settings(form), access=write)
        child = grown(store.load(folder / "parent", self.access)[0], 3, 500)
        assert store.save(child, folder / "child", settings(form), access=write)["lineage"]
        store.save(make_state(seed=77, **SMALL), folder / "other", settings(form), access=write)
        self.whole = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        self.states = {v: self.read(folder / v) for v in ("parent", "child")}

    def read(self, place):
        return store.load(place, self.access)[0]

    def harmless(self, victim, what):
        """The state that may come back after all: a file of equal contents that the same key
        encrypted, or another name for a format from outside, is no damage."""
        renamed = what.endswith(": payload_format") and "my_zstd" in self.folder.name
        again = what.startswith("from_another: ") and self.access.decrypt
        return self.states[victim] if renamed or again else None

    def attacked(self, victim, seed):
        """`(kind, what was done, what is wrong with the answer or None)`"""
        rng = random.Random(f"{self.folder.name} {victim} {seed}")
        what = store_damage.corrupt(self.folder / victim, self.folder / "other", rng)
        wrong = missed(self.read, self.folder / victim, self.harmless(victim, what))
        if victim == "parent" and not wrong and seed % 4 == 0:
            wrong = missed(self.read, self.folder / "child", self.states["child"])
        self.mend(victim)
        return what.partition(":")[0], what, wrong

    def mend(self, victim):
        shutil.rmtree(self.folder / victim)
        for path in self.folder.glob("aside-*"):
            path.unlink()
        (self.folder / victim / "tokenizer").mkdir(parents=True)
        for path, data in self.whole.items():
            if path.is_relative_to(self.folder / victim):
                path.write_bytes(data)


def snapshots(lane, victim, start, stop):
    with examples(), scratch() as place:
        family = Family(place / lane.replace(" ", "-"), lane)
        for seed in range(start, stop):
            kind, what, wrong = family.attacked(victim, seed)
            yield lane, f"{victim}: {kind}", wrong and f"{seed} {what}: {wrong}"
        family.read(place / family.folder.name / victim)  # mended: what was refused was the damage


def edits(kind, start, stop):
    """Manifests with one value changed; resealed ones with an id that fits again."""
    lane = "safetensors encrypted" if kind == "envelope" else "safetensors"
    with scratch() as place:
        family = Family(place / "edits", lane)
        path = family.folder / "parent" / manifests.NAME
        for seed in range(start, stop):
            rng = random.Random(f"{kind} {seed}")
            edit = rng.choice(RESEALED) if kind == "resealed" else store_damage.edit_manifest
            what = edit(family.folder / "parent", None, rng)
            if path.read_bytes() == family.whole[path]:
                continue
            wrong = missed(family.read, family.folder / "parent")
            yield "manifest", kind, wrong and f"{seed} {what}: {wrong}"
            path.write_bytes(family.whole[path])


@contextmanager
def scratch():
    above = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=above) as folder:
        yield Path(folder)


def count(attempts):
    """Tried by (lane, kind), and every miss in words."""
    tried, lost = Counter(), []
    for lane, kind, wrong in attempts:
        tried[lane, kind] += 1
        if wrong:
            lost.append((lane, kind, wrong))
    return tried, lost


def table(tried, lost):
    """A Markdown table: lanes of one kind of attack together."""
    gone = Counter((lane, kind) for lane, kind, _ in lost)
    rows = ["| attack on | tried | caught |", "|---|--:|--:|"]
    for what in dict.fromkeys((lane, kind.partition(":")[0]) for lane, kind in tried):
        held = [k for k in tried if (k[0], k[1].partition(":")[0]) == what]
        n, g = sum(tried[k] for k in held), sum(gone[k] for k in held)
        rows.append(f"| {what[0]}, {what[1]} | {n:,} | {n - g:,} |")
    n = sum(tried.values())
    rows.append(f"| all | {n:,} | {n - len(lost):,} |")
    kinds = Counter()
    for (_, kind), number in tried.items():
        kinds[kind.rpartition(": ")[2]] += number
    rows += ["", "By kind: " + ", ".join(f"{k} {n:,}" for k, n in sorted(kinds.items())) + "."]
    return "\n".join(rows)


def work(job):
    torch.set_num_threads(1)
    name, *arguments = job
    return count(globals()[name](*arguments))


def every(each, manifests_each, records_each, step=500):
    """The jobs of a whole run, small enough to share among workers."""
    cut = lambda n: [(a, min(a + step, n)) for a in range(0, n, step)]  # noqa: E731
    jobs = [("snapshots", lane, v, a, b) for lane in LANES for v in ("parent", "child") for a, b in cut(each)]  # fmt: skip
    jobs += [("disk", name, form) for name, form in faulty.CASES]
    jobs += [("edits", k, a, b) for k in ("unsealed", "resealed", "envelope") for a, b in cut(manifests_each)]  # fmt: skip
    return jobs + [("records", k, a, b) for k in ("unsealed", "resealed") for a, b in cut(records_each)]  # fmt: skip


def records(kind, start, stop):
    """Damage to the record of a run, see `fuzz_records.py`; its second run is made once per worker."""
    import fuzz_records

    with scratch() as place:
        yield from fuzz_records.attempts(place, kind, start, stop)


def disk(name, form):
    """A save or a load with every call failing once; see `faulty.py`."""
    with scratch() as place:
        yield from faulty.attempts(place, name, form)


def run(jobs, workers):
    tried, lost, start = Counter(), [], time.monotonic()
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        for number, (more, gone) in enumerate(pool.map(work, jobs), 1):
            tried, lost = tried + more, lost + gone
            if number % 20 == 0:
                said = f"{number}/{len(jobs)} jobs, {len(lost)} missed, {time.monotonic() - start:.0f} s"  # fmt: skip
                print(said, table(tried, lost), file=sys.stderr, sep="\n", flush=True)
    return tried, lost


def main():
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--snapshots", type=int, default=10_000, help="per lane and end of a lineage")
    ask.add_argument("--manifests", type=int, default=8_000, help="of each of three kinds")
    ask.add_argument("--records", type=int, default=4_000, help="of each of two kinds")
    ask.add_argument("--only", choices=("snapshots", "edits", "disk", "records"), help="one class")
    ask.add_argument("--workers", type=int, default=os.cpu_count())
    told = ask.parse_args()
    jobs = every(told.snapshots, told.manifests, told.records)
    tried, lost = run([j for j in jobs if told.only in (None, j[0])], told.workers)
    print(table(tried, lost))
    for lane, kind, wrong in lost[:50]:
        print(f"MISSED {lane}, {kind}: {wrong}")
    return int(bool(lost))


if __name__ == "__main__":
    sys.exit(main())
