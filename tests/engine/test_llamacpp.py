"""A real llama.cpp server: judged, and gone when the harness is gone, however it went."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import gguf_model
import pytest

ROOT = Path(__file__).resolve().parents[2]
IDS = [5 + 7 * i % 500 for i in range(150)]
GIVEN = ("task=referee", "engine=llamacpp", f"prompt.ids=[{','.join(map(str, IDS))}]", "engine.threads=1")  # fmt: skip
GOOD = {"exact", "equivalent"}


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    return gguf_model.write(tmp_path_factory.mktemp("gguf") / "m.gguf")


def test_every_way_back_is_judged_and_the_controls_fail(harness, model) -> None:
    done = harness(*GIVEN, f"engine.model={model}", "steps=8", "task.repeats=1")
    assert done.code == 0, done.out
    rows = {r["case"]: r for r in json.loads((done.folders[0] / "referee.json").read_text())}
    for case in ("hit", "restored", "restarted", "host_cache"):
        assert rows[case]["verdict"] in GOOD and rows[case]["reused_tokens"] == len(IDS) - 1, case
    for case in ("other_prompt", "one_token_off"):
        assert rows[case]["verdict"] not in GOOD and rows[case]["evidence"] == "a forged state"
        assert rows[case]["reused_tokens"] == len(IDS) - 1
    assert rows["cold_again"]["reused_tokens"] == 0


def test_a_restore_of_another_file_is_found(model, compose, monkeypatch) -> None:
    """The twin of `restored`: the same case over a slot file that somebody else's state is in."""
    from harness.engine.llamacpp import LlamaCpp
    from harness.task.referee import cases, yardstick

    cfg = compose("engine=llamacpp", f"engine.model={model}", "engine.threads=1")
    with LlamaCpp(cfg.engine) as engine:
        yard = yardstick.measure(engine, IDS, 6)
        case = cases.Case("restored")
        cases.brought_back(engine, case, yard)
        healthy, bad = engine.restore, cases.Case("restored")

        def confused(name: str) -> None:
            monkeypatch.setattr(engine, "restore", healthy)
            assert engine.forge(IDS, IDS[::-1])

        monkeypatch.setattr(engine, "restore", confused)
        cases.brought_back(engine, bad, yard)
        assert case.runs[0]["verdict"] in GOOD and bad.runs[0]["verdict"] == "diverged"
        assert bad.runs[0]["reused"] == len(IDS) - 1


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="Ctrl-C", marks=pytest.mark.slow),
        pytest.param(signal.SIGKILL, id="kill -9"),
    ],
)
def test_the_server_ends_with_the_harness(place, model, number) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "harness", *GIVEN, f"engine.model={model}", "steps=64", "task.repeats=1000", "track=none"],
        cwd=place, env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(place)},
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    for line in child.stderr:
        if "noise floor" in line:
            break
    servers = until(lambda: servers_of(child.pid))
    assert list(place.glob("harness-llamacpp-*"))
    assert servers and all(local_only(p) for p in servers)
    child.send_signal(number)
    child.wait(30)
    child.stderr.close()
    assert until(lambda: not any(alive(p) for p in servers)), "a server outlived the harness"
    assert until(lambda: not list(place.glob("harness-llamacpp-*")))


def until(true, seconds: float = 60):
    end = time.monotonic() + seconds
    while not (said := true()) and time.monotonic() < end:
        time.sleep(0.05)
    return said


def servers_of(pid: int) -> list[int]:
    """The llama.cpp children of `pid`."""
    out = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"child.py" in stat.with_name("cmdline").read_bytes():
                out.append(int(stat.parent.name))
        except (OSError, IndexError):
            continue
    return out


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def local_only(pid: int) -> bool:
    """Whether every socket that `pid` listens on is bound to 127.0.0.1."""
    own = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            own.add(str(link.readlink()))
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    found = [p[1] for p in lines if p[3] == "0A" and f"socket:[{p[9]}]" in own]
    wide = Path("/proc/net/tcp6").read_text() if Path("/proc/net/tcp6").exists() else ""
    return all(a.startswith("0100007F:") for a in found) and not any(
        line.split()[3] == "0A" and f"socket:[{line.split()[9]}]" in own
        for line in wide.splitlines()[1:]
    )


@pytest.mark.parametrize(
    "given, says",
    [
        (["engine=llamacpp", "model=tiny_hybrid"], "engine.model=FILE.gguf"),
        (["engine=llamacpp", "engine.model=nowhere.gguf"], "no file"),
        (["engine=llamacpp", "engine.model=bad.gguf"], "does not load"),
    ],
)
def test_mistakes(harness, place, given, says) -> None:
    (place / "bad.gguf").write_bytes(b"GGUF" + bytes(64))
    done = harness("task=referee", *given)
    assert done.code == 2 and says in done.out and "Traceback" not in done.out


def test_another_process_cannot_ask_without_the_key(model, compose) -> None:
    from harness.engine.llamacpp import LlamaCpp
    from harness.engine.wire import Refusal, Wire

    cfg = compose("engine=llamacpp", f"engine.model={model}", "engine.threads=1")
    with LlamaCpp(cfg.engine) as engine:
        stranger = Wire(engine._server.wire.base)
        with pytest.raises(Refusal, match="401"):
            stranger.post("/completion", {"prompt": IDS, "n_predict": 1}, dict)


@pytest.mark.parametrize("runs", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_no_false_alarm(model, compose, runs) -> None:
    """Honest hits of the real server, each on a prompt of its own, ten to a noise floor."""
    import random

    from harness.engine.llamacpp import LlamaCpp
    from harness.task.referee import cases, yardstick
    from harness.task.referee.oracle import oracle

    cfg = compose("engine=llamacpp", f"engine.model={model}", "engine.threads=1")
    with LlamaCpp(cfg.engine) as engine:
        exact, _ = oracle(cfg, engine, 300, None)
        for turn in range(runs // 10):
            prompt = random.Random(turn).choices(range(5, 500), k=60 + 9 * turn)
            by = exact if turn % 2 else None  # judged by float64, and by the floor alone
            yard, case = yardstick.measure(engine, prompt, 8, by), cases.Case("hit")
            for _ in range(10):
                cases.brought_back(engine, case, yard)
            assert {r["verdict"] for r in case.runs} <= GOOD, case.row("llamacpp")
