"""JSON over HTTP: one reader, behind one budget of bytes, values and seconds, that holds each answer to a
shape, with one plain message for whatever goes wrong. Standard library only."""

import http.client
import io
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from harness.engine.shape import OBJECT, ShapeError, hold
from harness.errors import HarnessError, InputProblem, printable

T = TypeVar("T")
BYTES, VALUES = 2**26, 2**22  # of one answer
REFUSED = 4096  # bytes of an error's body that are read
WRONG = {  # what an answer can be instead of one
    "late": "did not end its answer within {seconds:g} seconds",
    "large": f"answered more than {BYTES} bytes or {VALUES} values, or nested too deep",
    "cut": "ended its answer before its end",
    "http": "does not answer in HTTP: {found}",
    "json": "answered no JSON: {found}",
    "shape": "answered something else: {found}",
}


class Refusal(InputProblem):
    """The server answered with an error. status: HTTP status; said: its own words."""

    def __init__(self, url: str, status: int, said: str):
        self.status, self.said = status, printable(said[:300])
        super().__init__(f"{url} answered {status}: {self.said}")


class Malformed(InputProblem):
    """The server answered something that is no answer. code: a key of WRONG."""

    def __init__(self, url: str, code: str, **args: Any):
        self.code, self.details = code, args
        super().__init__(f"{url} {printable(WRONG[code].format(**args))}.")


class Away(HarnessError):
    """Nothing answers at the address."""


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *request: Any) -> None:
        return None  # the redirect is then an error status


class _Timed(io.RawIOBase):
    """Reads of a socket that end together at `until`: a server that sends a byte now and then never runs
    into the socket's timeout, which begins anew with each."""

    def __init__(self, raw: io.RawIOBase, sock: Any, until: float):
        self._raw, self._sock, self._until = raw, sock, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Reply(http.client.HTTPResponse):
    def __init__(self, until: float, sock: Any, *args: Any, **named: Any):
        super().__init__(sock, *args, **named)
        self.fp = io.BufferedReader(_Timed(self.fp.detach(), sock, until))


class _Connection(http.client.HTTPConnection):
    def __init__(self, *args: Any, **named: Any):
        super().__init__(*args, **named)
        self.response_class = partial(_Reply, time.monotonic() + named["timeout"])  # type: ignore[assignment]


class _Secure(http.client.HTTPSConnection, _Connection):
    pass


class _Open(urllib.request.HTTPHandler):
    def http_open(self, req: Any) -> Any:
        return self.do_open(_Connection, req)


class _OpenSecure(urllib.request.HTTPSHandler):
    def https_open(self, req: Any) -> Any:
        return self.do_open(_Secure, req)


class Wire:
    """One server. base: its URL without the last slash. key: a bearer token, sent and never shown. timeout:
    seconds for a whole answer."""

    def __init__(self, base: str, key: str | None = None, timeout: float = 600):
        try:
            split = urlsplit(base)
            good = split.scheme in ("http", "https") and split.hostname and split.port != 0
        except ValueError:
            good = False
        if not good or not base.isascii() or not base.isprintable() or " " in base:
            raise InputProblem(f"engine.url={printable(base)} is no http address.")
        if split.username or split.password:
            raise InputProblem("engine.url holds a password: keys belong in the environment.")
        self.base, self.timeout = base.rstrip("/"), timeout
        self._headers = {"Content-Type": "application/json"}
        # no proxy between us and this machine, no redirect that would carry the key elsewhere
        local = split.hostname in ("127.0.0.1", "localhost", "::1")
        proxies = [urllib.request.ProxyHandler({})] if local else []
        self._opener = urllib.request.build_opener(_Stay, _Open, _OpenSecure, *proxies)
        if key := (key or "").strip():
            if not (key.isascii() and key.isprintable()):
                raise InputProblem("the key for engine.url holds characters that no header takes.")
            self._headers["Authorization"] = f"Bearer {key}"

    def get(self, path: str, shape: Any, seconds: float | None = None) -> Any:
        return self._send(path, None, partial(hold, shape=shape), seconds or self.timeout)

    def post(self, path: str, body: dict[str, Any], read: Callable[[Any], T]) -> T:
        """What `read` makes of the decoded answer; it raises ShapeError. Raises Refusal for an error status,
        Malformed for an answer that is none, Away when nothing answers."""
        return self._send(path, json.dumps(body).encode(), read, self.timeout)

    def wait(self, path: str, seconds: float) -> None:
        """Until `path` answers without an error. Raises Away after `seconds`."""
        until = time.monotonic() + seconds
        while True:
            try:
                self.get(path, OBJECT, max(min(self.timeout, until - time.monotonic()), 1))
                return
            except (Away, Refusal, Malformed) as problem:
                if time.monotonic() > until:
                    raise Away(f"{problem} (waited {seconds:g} s)") from None
            time.sleep(0.1)

    def _send(self, path: str, body: bytes | None, read: Callable[[Any], T], seconds: float) -> T:
        url = self.base + path
        try:
            return read(_decoded(self._raw(url, body, seconds)))
        except TimeoutError:
            raise Malformed(url, "late", seconds=seconds) from None
        except (_Large, RecursionError):
            raise Malformed(url, "large") from None
        except http.client.IncompleteRead:
            raise Malformed(url, "cut") from None
        except urllib.error.URLError as problem:
            raise Away(f"nothing answers at {url}: {printable(str(problem.reason))}") from None
        except OSError as problem:
            raise Away(f"nothing answers at {url}: {printable(str(problem))}") from None
        except http.client.HTTPException as problem:
            raise Malformed(url, "http", found=f"{type(problem).__name__} {problem}"[:80]) from None
        except ShapeError as problem:
            raise Malformed(url, "shape", found=problem) from None
        except ValueError as problem:
            raise Malformed(url, "json", found=problem) from None

    def _raw(self, url: str, body: bytes | None, seconds: float) -> bytes:
        request = urllib.request.Request(url, body, self._headers)
        try:
            with self._opener.open(request, timeout=seconds) as answer:
                raw = answer.read(BYTES + 1)  # as many at most, whatever length it claims
                if len(raw) > BYTES:
                    raise _Large
                if answer.length:
                    raise http.client.IncompleteRead(raw)
                return raw
        except urllib.error.HTTPError as problem:
            with problem:
                said = problem.read(REFUSED).decode("utf-8", "replace")
            raise Refusal(url, problem.code, said) from None
        except UnicodeError as problem:  # a name that no host can have
            raise urllib.error.URLError(str(problem)) from None


class _Large(Exception):
    pass


def _decoded(raw: bytes) -> Any:
    """Its values are counted first, since each takes many times its bytes: at most one after each of these."""
    if sum(map(raw.count, (b",", b"[", b"{"))) > VALUES:
        raise _Large
    return json.loads(raw)
