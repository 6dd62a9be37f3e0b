"""JSON over HTTP with one plain message for whatever goes wrong. Standard library only."""

import http.client
import json
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from harness.errors import HarnessError, InputProblem, printable


class Refusal(InputProblem):
    """The server answered with an error. status: HTTP status; said: its own words."""

    def __init__(self, url: str, status: int, said: str):
        self.status, self.said = status, printable(said[:300])
        super().__init__(f"{url} answered {status}: {self.said}")


class Away(HarnessError):
    """Nothing answers at the address."""


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *request: Any) -> None:
        return None  # the redirect is then an error status


class Wire:
    """One server. base: its URL without the last slash. key: a bearer token, sent and never shown."""

    def __init__(self, base: str, key: str | None = None, timeout: float = 600):
        split = urlsplit(base)
        if split.scheme not in ("http", "https") or not split.hostname:
            raise InputProblem(f"engine.url={printable(base)} is no http address.")
        if split.username or split.password:
            raise InputProblem("engine.url holds a password: keys belong in the environment.")
        self.base, self.timeout = base.rstrip("/"), timeout
        self._headers = {"Content-Type": "application/json"}
        # no proxy between us and this machine, no redirect that would carry the key elsewhere
        local = split.hostname in ("127.0.0.1", "localhost", "::1")
        proxies = [urllib.request.ProxyHandler({})] if local else []
        self._opener = urllib.request.build_opener(_Stay, *proxies)
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def get(self, path: str) -> Any:
        return self._send(path, None)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The decoded answer. Raises Refusal for an error status, Away when nothing answers."""
        return self._send(path, json.dumps(body).encode())

    def wait(self, path: str, seconds: float) -> None:
        """Until `path` answers without an error. Raises Away after `seconds`."""
        until = time.monotonic() + seconds
        while True:
            try:
                self.get(path)
                return
            except (Away, Refusal) as problem:
                if time.monotonic() > until:
                    raise Away(f"{problem} (waited {seconds:g} s)") from None
            time.sleep(0.1)

    def _send(self, path: str, body: bytes | None) -> Any:
        url = self.base + path
        request = urllib.request.Request(url, body, self._headers)
        try:
            with self._opener.open(request, timeout=self.timeout) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as problem:
            raise Refusal(url, problem.code, problem.read().decode("utf-8", "replace")) from None
        except (OSError, http.client.HTTPException) as problem:
            reason = getattr(problem, "reason", problem)
            raise Away(f"nothing answers at {url}: {printable(str(reason))}") from None
        except ValueError:
            raise Refusal(url, 200, "not JSON") from None
