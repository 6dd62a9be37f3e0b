"""A small server with completions and log-probabilities, honest or with one of the field's bugs.

Two layers of real attention in numpy float32, so that a state has keys, values and positions to be
wrong in. Every evaluation sums in an order of its own, which is its rounding noise. Cold answers are
always right; with `fault` set, answers that come from its cache are not.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

VOCAB, WIDTH, LAYERS, BLOCK = 64, 32, 2, 16
_chance = np.random.default_rng(3)
EMBED = _chance.standard_normal((VOCAB, WIDTH), dtype=np.float32)
WEIGHTS = _chance.standard_normal((LAYERS, 3, WIDTH, WIDTH), dtype=np.float32) / WIDTH**0.5
OUT = _chance.standard_normal((WIDTH, VOCAB), dtype=np.float32) / 4
COARSE = 2e-5  # by which values are off that come back rounded
FAULTS = ("other_prompt", "off_by_one", "stale_tail", "dropped_block", "stale_logprobs", "empty_restore")  # fmt: skip


class Past:
    """Keys and values `[layers, tokens, width]`, rotated already, and the next position."""

    def __init__(self, keys=None, values=None, position=0):
        blank = np.zeros((LAYERS, 0, WIDTH), np.float32)
        self.keys = blank if keys is None else keys
        self.values = blank if values is None else values
        self.position = position

    def cut(self, tokens: int) -> "Past":
        return Past(self.keys[:, :tokens], self.values[:, :tokens], tokens)


def rotated(x: np.ndarray, position: int) -> np.ndarray:
    angle = position / 50.0 ** (np.arange(WIDTH // 2) / (WIDTH // 2))
    a, b = x[: WIDTH // 2], x[WIDTH // 2 :]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)]).astype(np.float32)  # fmt: skip


def step(token: int, past: Past, order: np.random.Generator) -> tuple[np.ndarray, Past]:
    """Log-probabilities `[vocab]` after `token`, and the longer past."""
    x, keys, values = EMBED[token], [], []
    for layer, (q, k, v) in enumerate(WEIGHTS):
        key, value = rotated(x @ k, past.position), x @ v
        all_k = np.concatenate([past.keys[layer], key[None]])
        all_v = np.concatenate([past.values[layer], value[None]])
        shuffled = order.permutation(len(all_k))
        score = all_k[shuffled] @ rotated(x @ q, past.position) / WIDTH**0.5
        weight = np.exp(score - score.max())
        x = x + (weight[:, None] * all_v[shuffled]).sum(0) / weight.sum()
        x = x / np.sqrt((x * x).mean() + 1e-6)
        keys.append(all_k)
        values.append(all_v)
    logits = x @ OUT
    z = logits - logits.max()
    return z - np.log(np.exp(z).sum()), Past(np.stack(keys), np.stack(values), past.position + 1)


class Toy:
    """The server's model and cache. salts: `cache_salt` is honoured. reports: it says what it reused.
    keeps: only so many prompts. fixed: what rounding does, the number of tokens in a call decides.
    work: tokens computed so far.
    every: lies only on each so many-th hit. together:
    requests at the same time do not see each other's cache. ends: the token before which it stops. refuses: request fields it does not take.
    constant: the same answer to every prompt. counts: what it claims to have reused. brings: tokens that come back."""

    def __init__(self, fault=None, salts=True, reports=True, every=1, refuses=(), most=20, reuse=True, together=False, ends=None, keeps=None, fixed=False, constant=False, counts=None, brings=None):  # fmt: skip
        self.fault, self.salts, self.reports, self.every = fault, salts, reports, every
        self.refuses, self.most, self.reuse = refuses, most, reuse
        self.cache: list[tuple[list[int], Past]] = []
        self.offloaded: list[tuple[list[int], Past]] = []
        self.together, self.ends, self.keeps, self.fixed = together, ends, keeps, fixed
        self.constant, self.counts, self.brings = constant, counts, brings
        self.hits, self.last, self.headers, self.work = 0, [], [], 0
        self.order, self.lock = np.random.default_rng(), threading.Lock()

    def complete(self, ask: dict) -> dict | str:
        """The answer, or why there is none."""
        if unknown := [k for k in self.refuses if k in ask]:
            return f"unknown field {unknown[0]}"
        if ask["logprobs"] > self.most:
            return f"logprobs must be at most {self.most}"
        seen = list(self.cache)
        time.sleep(0.02 if self.together else 0)  # so that others see the same
        with self.lock:
            stored = seen if self.together else self.cache
            return self._complete(stored, ask["prompt"], ask["max_tokens"], ask["logprobs"], ask)

    def rounded(self, logp: np.ndarray, tokens: int) -> np.ndarray:
        """As a call of so many tokens rounds it, and rounds it again each time."""
        noise = np.random.default_rng(tokens).standard_normal(VOCAB, dtype=np.float32)
        return logp + 3e-5 * noise if self.fixed else logp

    def evict(self, keep: bool) -> None:
        self.offloaded, self.cache = (self.cache if keep else []), []

    def _complete(self, stored: list, ids: list[int], steps: int, top: int, ask: dict) -> dict:
        salted = self.salts and "cache_salt" in ask
        stored = [] if salted or not self.reuse else [*stored, *self.offloaded]
        reused, past = 0, Past()
        for tokens, state in stored:
            same = next((i for i, (a, b) in enumerate(zip(tokens, ids)) if a != b), min(len(tokens), len(ids)))  # fmt: skip
            if min(same, len(ids) - 1) > reused:
                state = exchanged(state) if self.fault == "rows_exchanged" else state
                reused, past = min(same, len(ids) - 1), state.cut(min(same, len(ids) - 1))
        if self.fault == "claims" and stored:
            reused, past = len(ids) // 2, stored[-1][1].cut(len(ids) // 2)
        if self.brings and self.offloaded:
            reused, past = min(reused, self.brings), past.cut(min(reused, self.brings))
        lying = False
        if reused > 8:
            self.hits += 1
            lying = self.fault is not None and self.hits % self.every == 0
            past = damaged(self.fault, past, reused, bool(self.offloaded)) if lying else past
        self.work += len(ids) - reused + steps - 1
        if self.constant:
            past = Past()
        for token in [1] if self.constant else ids[reused:]:
            logp, past = step(token, past, self.order)
        logp = self.rounded(logp, len(ids) - reused)
        said, tops = [], []
        for _ in range(steps):
            if int(logp.argmax()) == self.ends:
                break
            said.append(int(logp.argmax()))
            best = np.argsort(logp)[::-1][: max(top, 1)]
            tops.append({f"token_id:{t}": float(logp[t]) for t in best})
            if len(said) < steps:
                logp, past = step(said[-1], past, self.order)
                logp = self.rounded(logp, 1)
        if not salted and not lying:
            self.cache.append((ids + said[:-1], past))
            self.cache = self.cache[-(self.keeps or len(self.cache)) :]
        shown = (
            [*self.last[-1:], *tops][:steps] if lying and self.fault == "stale_logprobs" else tops
        )
        self.last = tops
        if self.counts is not None and (reused or not self.salts):
            reused = self.counts
        details = {"prompt_tokens_details": {"cached_tokens": reused}} if self.reports else {}
        return {"choices": [{"index": 0, "text": "", "finish_reason": "length" if len(said) == steps else "stop",
            "logprobs": {"tokens": [f"token_id:{t}" for t in said], "top_logprobs": shown}}], "usage": details}  # fmt: skip


def exchanged(past: Past, one: int = 10, other: int = 80) -> Past:
    """Two rows in each other's place: the same sum over all of them, another over some."""
    order = np.arange(past.keys.shape[1])
    if len(order) > other:
        order[[one, other]] = order[[other, one]]
    return Past(past.keys[:, order], past.values[:, order], past.position)


def damaged(fault: str, past: Past, reused: int, restored: bool) -> Past:
    """What the bug makes of the past that is reused."""
    keys, values = past.keys.copy(), past.values.copy()
    if fault == "other_prompt":
        state = Past()
        for token in range(reused):
            _, state = step((token * 11 + 3) % VOCAB, state, np.random.default_rng(0))
        return state
    if fault == "off_by_one":
        return Past(keys, values, reused + 1)
    if fault == "stale_tail":
        keys[:, -4:], values[:, -4:] = keys[:, :4], values[:, :4]
    if fault == "dropped_block" and reused >= 2 * BLOCK:
        keep = np.r_[0:BLOCK, 2 * BLOCK : reused]
        return Past(keys[:, keep], values[:, keep], reused)
    if fault == "coarse_restore" and restored:
        return Past(keys, values + np.float32(COARSE), reused)
    if fault == "empty_restore" and restored:
        return Past(keys * 0, values * 0, reused)
    return Past(keys, values, reused)


@contextmanager
def serving(toy: Toy) -> Iterator[str]:
    """The URL of a server with `toy` in it, ending in /v1; `/evict` and `/flush` are its commands."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *said):
            pass

        def answer(self, body, status=200):
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def do_GET(self):
            if self.path in ("/evict", "/flush"):
                toy.evict(keep=self.path == "/evict")
            self.answer({"data": [{"id": "toy"}]})

        def do_POST(self):
            ask = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            toy.headers.append(dict(self.headers))
            if not self.path.endswith("/completions"):
                self.answer({"error": "no such path"}, 404)
                return
            said = toy.complete(ask)
            self.answer({"error": said}, 400) if isinstance(said, str) else self.answer(said)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
