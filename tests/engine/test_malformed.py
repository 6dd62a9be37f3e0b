"""Answers that are none: slow, endless, of another shape, sent elsewhere. Each is one line that names the server."""

import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from harness.config.option import option
from harness.engine import openai, wire
from harness.engine.wire import Away, Malformed, Refusal, Wire
from harness.errors import InputProblem

IDS = list(range(12))
GOOD = {"choices": [{"text": "a", "finish_reason": "length", "logprobs": {
    "tokens": ["a"], "top_logprobs": [{"a": -0.1, "b": -2.4}]}}],
    "usage": {"prompt_tokens": 12, "prompt_tokens_details": {"cached_tokens": 4}}}  # fmt: skip
OPENED = json.dumps({"data": [{"id": "m"}]}).encode()


def http(body: bytes, status: str = "200 OK", length: int | None = None, more: str = "") -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n{more}\r\n".encode() + body


@contextmanager
def serving(answer: Callable | bytes) -> Iterator[tuple[str, list[bytes]]]:
    """`(URL, requests)` of a server: models by name, and to anything else `answer`, bytes or a function of `send`."""
    asked: list[bytes] = []
    ended = threading.Event()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += self.rfile.readline()
            asked.append(head)
            length = [x for x in head.lower().split(b"\r\n") if x.startswith(b"content-length")]
            self.rfile.read(int(length[0].split(b":")[1]) if length else 0)
            try:
                if head.startswith(b"GET /v1/models"):
                    self.wfile.write(http(OPENED))
                elif callable(answer):
                    answer(self.wfile.write, ended)
                else:
                    self.wfile.write(answer)
            except OSError:  # who asked has gone
                pass

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1", asked
        finally:
            ended.set()
            server.shutdown()


def like(**changed) -> bytes:
    """A good answer with other values at `choices`, `logprobs` and `usage`."""
    said = json.loads(json.dumps(GOOD))
    for key, value in changed.items():
        (said["choices"][0] if key in ("logprobs", "text", "token_ids") else said)[key] = value
    return http(json.dumps(said).encode())


def listed(*tops) -> dict:
    return {"tokens": ["a"], "top_logprobs": list(tops)}


MALFORMED = {
    "HTML": http(b"<html><body>busy</body></html>"),
    "empty": http(b""),
    "not UTF-8": http(b'{"choices": "\xff\xfe\xfa"}'),
    "too short": http(b'{"choices": []}', length=90),
    "a length beyond memory": http(b'{"choices": []}', length=10**15),
    "a chunk beyond memory": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFF\r\n{}",
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "deep": http(b"[" * 100_000 + b"]" * 100_000),
    "a number of 9,999 digits": http(b'{"choices": ' + b"9" * 9_999 + b"}"),
    "a list": http(json.dumps([GOOD]).encode()),
    "a word": http(b'"busy"'),
    "null": http(b"null"),
    "no choices": http(b"{}"),
    "choices empty": like(choices=[]),
    "choices an object": like(choices={"0": {}}),
    "a choice null": like(choices=[None]),
    "text a number": like(text=7),
    "no logprobs": like(logprobs=None),
    "logprobs a list": like(logprobs=[1]),
    "tokens missing": like(logprobs={"top_logprobs": [{"a": -0.1}]}),
    "fewer lists than tokens": like(logprobs={"tokens": ["a", "b"], "top_logprobs": [{"a": -0.1}]}),
    "more tokens than asked": like(logprobs={"tokens": ["a"] * 9, "top_logprobs": [{"a": -0.1}] * 9}),
    "a list null": like(logprobs=listed(None)),
    "a log-probability in words": like(logprobs=listed({"a": "-0.1"})),
    "a log-probability null": like(logprobs=listed({"a": None})),
    "not a number": like(logprobs=listed({"a": float("nan")})),
    "infinite": like(logprobs=listed({"a": float("inf")})),
    "beyond a float": like(logprobs=listed({"a": -(10**400)})),
    "a probability above 1": like(logprobs=listed({"a": 3.0})),
    "an id in words": like(logprobs={"tokens": ["token_id:x"], "top_logprobs": [{"a": -0.1}]}),
    "half a character": like(logprobs={"tokens": ["\ud800"], "top_logprobs": [{"a": -0.1}]}),
    "ids below 0": like(token_ids=[-3]),
    "content without lists": like(logprobs={"content": [{"id": 1, "token": "a"}]}),
    "usage a list": like(usage=[3]),
    "a count in words": like(usage={"prompt_tokens_details": {"cached_tokens": "4"}}),
    "a count true": like(usage={"prompt_tokens_details": {"cached_tokens": True}}),
    "a count beyond a float": like(usage={"prompt_tokens_details": {"cached_tokens": 10**300}}),
}  # fmt: skip


def opened(url: str) -> openai.OpenAI:
    """`engine=openai` at `url`, to be opened."""
    return openai.OpenAI(option("engine", "openai", url=url))


def test_a_good_answer_is_read() -> None:
    with serving(like()) as (url, _), opened(url) as engine:
        answer = engine.evaluate(IDS, 1)
    assert (
        answer.tokens == ("a",) and answer.reused == 4 and answer.tops == ({"a": -0.1, "b": -2.4},)
    )


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_answer_is_one_line_that_names_the_server(name) -> None:
    with (
        serving(MALFORMED[name]) as (url, _),
        opened(url) as engine,
        pytest.raises(InputProblem) as caught,
    ):
        engine.evaluate(IDS, 1)
    said = str(caught.value)
    assert said.startswith(f"{url}/completions ") and "\n" not in said and len(said) < 300
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["HTML", "choices empty", "a length beyond memory"])
def test_a_run_over_it_ends_with_exit_2(harness, name) -> None:
    ids = ",".join(map(str, IDS))
    with serving(MALFORMED[name]) as (url, _):
        done = harness("task=referee", "engine=openai", f"engine.url={url}", f"prompt.ids=[{ids}]")
    assert done.code == 2 and f"{url}/completions" in done.out, done.out
    assert "unexpected" not in done.out and "Traceback" not in done.out


@pytest.mark.parametrize("models", [b"[]", b'{"data": {"id": 3}}', b'{"data": [{"name": "m"}]}'])
def test_models_of_another_shape(monkeypatch, models) -> None:
    monkeypatch.setattr(f"{__name__}.OPENED", models)
    with serving(b"") as (url, _), pytest.raises(InputProblem, match="/models answered"):
        opened(url).__enter__()


def trickled(start: bytes, piece: bytes):
    def answer(send, ended) -> None:
        send(start)
        while not ended.wait(0.02):
            send(piece)

    return answer


SLOW = {
    "the status": trickled(b"", b"H"),
    "the headers": trickled(b"HTTP/1.1 200 OK\r\nX: ", b"x"),
    "interim answers": trickled(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "the body": trickled(b"HTTP/1.1 200 OK\r\n\r\n", b" "),
    "an error": trickled(b"HTTP/1.1 500 No\r\n\r\n", b" "),
    "nothing": lambda send, ended: ended.wait(),
}


@pytest.mark.parametrize("name", SLOW)
def test_one_deadline_for_a_whole_answer(name) -> None:
    with serving(SLOW[name]) as (url, _):
        start = time.monotonic()
        with pytest.raises(Malformed, match="did not end its answer within"):
            Wire(url, timeout=0.3).post("/completions", {}, dict)
        assert time.monotonic() - start < 3


def test_one_budget_of_bytes_and_values(monkeypatch) -> None:
    def endless(send, ended) -> None:
        send(b"HTTP/1.1 200 OK\r\n\r\n[")
        while not ended.is_set():
            send(b" " * 4096)

    monkeypatch.setattr(wire, "BYTES", 2**16)
    with serving(endless) as (url, _), pytest.raises(Malformed) as caught:
        Wire(url, timeout=20).post("/completions", {}, dict)
    assert caught.value.code == "large"
    monkeypatch.setattr(wire, "VALUES", 100)
    many = http(b"[" + b"[]," * 200 + b"0]")
    with serving(many) as (url, _), pytest.raises(Malformed) as caught:
        Wire(url, timeout=20).post("/completions", {}, dict)
    assert caught.value.code == "large"


def test_a_redirect_takes_the_key_nowhere() -> None:
    """Followed, it would carry the key to whoever the server names, and take that one's answer."""
    with serving(like()) as (elsewhere, asked):
        for status in ("301 Moved", "302 Found", "303 See Other", "307 Keep", "308 Keep"):
            moved = http(b"moved", status, more=f"Location: {elsewhere}/stolen\r\n")
            with serving(moved) as (url, first):
                for ask in (
                    lambda w: w.get("/elsewhere", {}),
                    lambda w: w.post("/completions", {}, dict),
                ):
                    with pytest.raises(Refusal, match=f"answered {status[:3]}"):
                        ask(Wire(url, "sk-secret", 20))
            assert len(first) == 2 and all(b"sk-secret" in head for head in first)
    assert not asked


@pytest.mark.parametrize("url", ["http://[::1", "http://h:port/v1", "http://h:99999/v1", "http://a b/v1", "file:///etc"])  # fmt: skip
def test_an_address_that_is_none(url) -> None:
    with pytest.raises(InputProblem, match="no http address"):
        Wire(url)


def test_a_host_that_cannot_be_and_a_key_that_no_header_takes() -> None:
    with pytest.raises(Away, match="nothing answers"):
        Wire(f"http://{'a' * 70}/v1").get("/models", {})
    with pytest.raises(InputProblem) as caught:
        Wire("http://127.0.0.1:9/v1", "sk-sec\nret")
    assert "sk-sec" not in str(caught.value)
