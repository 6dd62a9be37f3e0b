"""What can be told before a model is read is: a path, a port, a setting, a hub that is away."""

import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness.config.place import near
from harness.errors import ConfigProblem

ABSENT = {
    "task=inspect snapshot=no": "snapshot=no: there is no such directory",
    "task=diff a=. b=no": "b=no: there is no such directory",
    "task=save from=no.bin": "from=no.bin: there is no such file",
    "prompt=jsonl prompt.path=no.jsonl": "prompt.path=no.jsonl: there is no such file",
    "model=path model.path=no": "model.path=no does not exist",
}


@pytest.mark.parametrize("typed", ABSENT)
def test_a_path_that_names_nothing_is_told_before_anything_heavy(
    harness, place: Path, monkeypatch, typed
) -> None:
    from harness import task

    began: list[str] = []
    monkeypatch.setattr(task, "_story", lambda name, say: began.append(name))
    done = harness(*typed.split())
    assert done.code == 2 and ABSENT[typed] in done.out and not began, done.out
    assert not list(place.iterdir())


def test_a_path_that_is_mistyped_is_told_what_lies_beside_it(place: Path) -> None:
    for folder in ("models/qwen3-0.6b", "runs/one"):
        Path(folder).mkdir(parents=True)
    Path("prompts.jsonl").touch()
    meant = {
        ("models/qwen3-06b", True): "models/qwen3-0.6b",
        ("model/qwen3-0.6b", True): "models/qwen3-0.6b",
        ("rums/two", True): "runs",
        ("prompt.jsonl", False): "prompts.jsonl",
    }
    for (typed, folder), there in meant.items():
        assert near(Path(typed), folder) == f" Did you mean {there}?"
    assert near(Path("prompt.jsonl")) == "", "a file is no directory"
    assert near(Path("nothing/like/it")) == near(Path("runs/one")) == ""


def test_a_port_that_is_taken_is_told_before_any_address(place: Path, monkeypatch, capsys) -> None:
    from harness import __main__ as front
    from harness.track import dashboard

    began = []
    monkeypatch.setattr(dashboard.os, "execv", lambda *_: began.append(True))
    with socket.socket() as theirs:
        theirs.bind(("127.0.0.1", 0))
        theirs.listen()
        port = theirs.getsockname()[1]
        monkeypatch.setattr(sys, "argv", ["harness", "dashboard", f"port={port}"])
        assert front.main() == 2
        assert capsys.readouterr().out == ""
        with pytest.raises(ConfigProblem, match=rf"port={port} is in use.* port=\d+ is free"):
            dashboard.check(str(port))
    dashboard.check(str(port))  # now it is free
    with pytest.raises(ConfigProblem, match="give 1 to 65535"):
        dashboard.check("70000")
    assert not began and not (place / "runs").exists()


EARLY = [
    (["prune=sink_window", "prune.tokens=8", "prune.sinks=9"], "fewer than prune.sinks=9"),
    (["save=gzip", "save.level=99"], "save.level=99 is not possible"),
    (["save=blosc2", "save.codec=nope"], "save.codec=nope is not possible"),
    (["quantize=kivi", "quantize.group=0"], "quantize.group=0 is too small"),
    (
        ["task=evaluate", "prompt=recall", "save=gzip", "save.level=99"],
        "save.level=99 is not possible",
    ),
    (["task=evaluate"], "prompt=turns asks nothing that could be scored"),
    (["task=chat", "save=gzip", "save.level=99"], "save.level=99 is not possible"),
    (["task=ui", "prune=snapkv", "prune.window=-3"], "prune.window=-3 is too small"),
    (["--config-dir", "mien", "prune=odd"], "mien: there is no such folder. Did you mean /"),
    (["--config-dir=mine/prune/odd.yaml", "prune=odd"], "odd.yaml: that is no folder. It is"),
    (
        ["--config-dir", "mine", "prune=called"],
        "prune/called.yaml says name: other. Write name: called",
    ),
    (
        ["--config-dir", "mine", "cache=nameless"],
        "cache/nameless.yaml has no `name:`. Write name: nam",
    ),
    (["--config-dir", "mine", "prune=odd"], "prune/odd.yaml says name: nope. Write name: odd, as"),
    (
        ["--config-dir", "mine", "prune=bare"],
        "prune/bare.yaml has no `name:`. Write name: bare, as",
    ),
    (["--config-dir", "mine", "cache=other", "prune=none"], "cache=other names json.JSONDecoder"),
]


def wrong(place: Path) -> None:
    for name, text in {
        "prune/odd": "name: nope",
        "prune/bare": "window: 3",
        "prune/called": "name: other\n_target_: json.JSONDecoder",
        "cache/nameless": "_target_: json.JSONDecoder",
        "cache/other": "name: other\n_target_: json.JSONDecoder",
    }.items():
        path = place / "mine" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def test_told_late_where_nobody_asks_the_variants_first(harness, place, monkeypatch) -> None:
    monkeypatch.setattr("harness.pipeline.session.check_options", lambda cfg: None)
    assert "model tiny" in harness("save=gzip", "save.level=99").out


def test_a_hub_that_is_away_is_told_at_once(harness, monkeypatch) -> None:
    """The library itself asks for half a minute."""
    from huggingface_hub import constants

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"  # nobody listens
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        began = time.monotonic()
        done = harness("model=gpt2")
    assert done.code == 2 and time.monotonic() - began < 10
    assert f"openai-community/gpt2 from {address}" in done.out
    assert f"{address} does not answer" in done.out and "model=path model.path=DIR" in done.out


def test_a_hub_that_answers_anything_is_there_and_offline_is_said(monkeypatch) -> None:
    from huggingface_hub import constants

    from harness.model.hub import Hub, hub

    class Nothing(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None: ...

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with ThreadingHTTPServer(("127.0.0.1", 0), Nothing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert Hub(f"http://127.0.0.1:{server.server_port}", "").away() is None
        server.shutdown()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert hub().away() == "HF_HUB_OFFLINE is set"
