"""A disk that fails, fills, writes short or dies at the k-th call: every outcome is old, new or a refusal.

The calls of `os` that a save or a load makes are counted by a shim; `trial` lets the k-th of them go
wrong. What the state of the disk is afterwards is asked without the shim.
"""

import errno
import os
import shutil
import threading
from contextlib import contextmanager

from store_states import assert_same, grown, make_state, settings

from harness.errors import HarnessError
from harness.save import atomic, cipher, store

WRITES = ("open", "write", "fsync", "rename", "mkdir", "link", "unlink", "rmdir")
READS = ("open", "fstat", "scandir", "listdir", "preadv", "pread", "fdopen")
KEY = cipher.Key(b"disk" * 8)
SMALL = {"dtype": "bfloat16", "tokens": 10}
OLD, NEW = make_state(seed=1, **SMALL), make_state(seed=2, **SMALL)


class Shim:
    """While `installed`, the calls are counted; the one with number `at` goes wrong in `way`."""

    def __init__(self, names, way=None, at=None):
        self.names, self.way, self.at = names, way, at
        self.calls, self.hit = 0, None
        self._lock = threading.Lock()

    @contextmanager
    def installed(self):
        honest = {name: getattr(os, name) for name in self.names}
        exchange = atomic.exchange
        try:
            for name, call in honest.items():
                setattr(os, name, self._wrapped(name, call))
            if "rename" in self.names:
                atomic.exchange = self._wrapped("exchange", exchange)
            yield self
        finally:
            for name, call in honest.items():
                setattr(os, name, call)
            atomic.exchange = exchange

    def _wrapped(self, name, call):
        def counted(*arguments, **named):
            if (wrong := self._wrong(name)) is None:
                made = call(*arguments, **named)
                return _File(made, self) if name == "fdopen" else made
            if wrong == "short" and name == "write":
                return call(
                    arguments[0], memoryview(arguments[1])[: max(1, len(arguments[1]) // 2)]
                )
            if wrong == "kill":
                os._exit(9)
            number = errno.ENOSPC if wrong == "full" else errno.EIO
            raise OSError(number, os.strerror(number))

        return counted

    def _wrong(self, name):
        with self._lock:
            self.calls += 1
            if self.calls - 1 != self.at or (self.way == "short" and name not in ("write", "read")):
                return None
            self.hit = name
            return self.way


class _File:
    """A file whose reads are counted too."""

    def __init__(self, file, shim):
        self._file, self._shim = file, shim
        for name in ("read", "readinto"):
            setattr(self, name, self._reading(getattr(file, name)))

    def _reading(self, call):
        def counted(*arguments):
            wrong = self._shim._wrong("read")
            if wrong == "short":
                return call(*arguments)[:-1] if call.__name__ == "read" else 0
            if wrong is not None:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return call(*arguments)

        return counted

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        self._file.close()


class Scenario:
    """What a save finds and what it is to leave: a first save, a replacement, or a commit (a segment
    beside its parent). `form` may end with `encrypted`."""

    def __init__(self, folder, name, form="safetensors"):
        self.name, self.folder, self.state = name, folder / "place", folder / "state"
        form, _, closed = form.partition(" ")
        self.settings = settings(form)
        self.settings.sync = True
        key = KEY if closed else None
        self.write = store.Access(overwrite=name == "replace", encrypt=key)
        self.read = store.Access(decrypt=key)
        self.target, self.old, self.new = self.folder / "s", None, NEW
        self.folder.mkdir(parents=True)
        if name == "replace":
            store.save(OLD, self.target, self.settings, access=self.write)
            self.old = self.loaded()
        if name in ("commit", "load"):
            store.save(OLD, self.folder / "parent", self.settings, access=self.write)
            self.new = grown(store.load(self.folder / "parent", self.read)[0], 3, 500)
        if name == "load":
            store.save(self.new, self.target, self.settings, access=self.write)
        self.before = {p: p.read_bytes() for p in self.folder.rglob("*") if p.is_file()}

    def reset(self):
        shutil.rmtree(self.folder)
        shutil.rmtree(self.state, ignore_errors=True)
        self.folder.mkdir()
        for path, data in self.before.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def act(self):
        if self.name == "load":
            return self.loaded()
        return store.save(self.new, self.target, self.settings, access=self.write)

    def loaded(self):
        return store.load(self.target, self.read)[0]

    @property
    def names(self):
        return READS if self.name == "load" else WRITES

    def calls(self):
        """How many calls there are when nothing goes wrong."""
        self.reset()
        with Shim(self.names).installed() as shim:
            self.act()
        return shim.calls

    def trial(self, way, at):
        """`(call that went wrong, what is wrong with the outcome or None)`"""
        self.reset()
        os.environ["XDG_STATE_HOME"] = str(self.state)
        shim, said = Shim(self.names, way, at), None
        if way == "kill":
            child = os.fork()
            if child == 0:
                with shim.installed():
                    self.act()
                os._exit(0)
            os.waitpid(child, 0)
            return "any", self.outcome(True)
        try:
            with shim.installed():
                back = self.act()
        except HarnessError as problem:
            said = str(problem)
            if not said or problem.exit_code not in (2, 3):
                return shim.hit, f"exit {problem.exit_code}: {said}"
        except BaseException as problem:
            return shim.hit, f"{type(problem).__name__} {problem}"
        removing = shim.hit in ("unlink", "rmdir") or (shim.hit == "open" and said is None)
        if self.name == "load":
            return shim.hit, None if said else self.unlike(back, self.new)
        return shim.hit, self.outcome(removing, said)

    def outcome(self, may_leave, said=None):
        """What is wrong with what lies there, and with what the next save makes of it. may_leave: the
        writer was killed, or what went wrong was the removal itself."""
        left = [p.name for p in self.folder.iterdir() if p.name not in ("s", "parent")]
        if left and not may_leave:
            return f"left {left}"
        there = self.target.exists()
        if there or self.old is not None:
            try:
                back = self.loaded()
            except HarnessError as problem:
                return f"neither old nor new: {problem}"
            wanted = [s for s in (self.old, self.new) if s is not None]
            if all(self.unlike(back, state) for state in wanted):
                return "another state is there"
        elif not said and not may_leave:
            return "it said nothing, and nothing is there"
        store.save(self.new, self.target, self.settings, access=store.Access(True, encrypt=self.write.encrypt))  # fmt: skip
        left = [p.name for p in self.folder.iterdir() if p.name not in ("s", "parent")]
        notes = list(self.state.rglob("writing/*"))
        if left or notes:
            return f"the next save did not remove {left or notes}"
        return self.unlike(self.loaded(), self.new)

    @staticmethod
    def unlike(back, state):
        try:
            assert_same(state, back)
        except AssertionError:
            return "another state came back"
        return None


WAYS = ("full", "broken", "short", "kill")
CASES = [(name, form) for name in ("first", "replace", "commit", "load")
         for form in ("safetensors", "safetensors encrypted", "torch", "blosc2", "pickle")]  # fmt: skip


def attempts(folder, name, form, ways=WAYS, step=1, first=0):
    """`(lane, kind, what is wrong or None)` for every way and every `step`-th call."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    try:
        scenario = Scenario(folder, name, form)
        ways = [w for w in ways if not (name == "load" and w in ("full", "kill"))]
        for way in ways:
            for at in range(first, scenario.calls(), step):
                hit, wrong = scenario.trial(way, at)
                if hit is not None:
                    yield (
                        f"disk, {way}",
                        f"{name}: {way} {hit}",
                        wrong and f"{form} {at} ({hit}): {wrong}",
                    )
    finally:
        if before is None:
            os.environ.pop("XDG_STATE_HOME", None)
        else:
            os.environ["XDG_STATE_HOME"] = before
