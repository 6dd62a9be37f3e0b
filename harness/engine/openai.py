"""Any server that gives completions with log-probabilities: vLLM, SGLang, llama-server, TGI ...

It is attached to, never started or stopped: evicting and restarting are the user's own commands. A
cold run is one with a `cache_salt` of its own (or `cache_prompt=false`, llama-server), after
`engine.flush`, after another prompt, or of one that was never sent before: whichever the server is found to honour.
"""

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Self

from harness.engine.base import ALONE, IN_COMMON, Answer, Composition, Engine, Prompt, Token
from harness.engine.shape import COUNT, LOGPROB, TEXT, TOKEN, ShapeError, hold
from harness.engine.wire import Malformed, Refusal, Wire
from harness.errors import ConfigProblem, InputProblem, printable

OPTIONAL = {"seed": 0, "return_tokens_as_token_ids": True}
FEWER = {64: 20, 20: 5, 5: 1}  # log-probabilities that servers agree to, as they refuse more
RESTART_S = 600
SHORT = 16  # tokens of a request that only displaces another
FEW = 8  # served models that are named
DIGITS = 10  # of an id
MODELS = {"data?": [{"id": TEXT}]}
LISTED = {"id?": TOKEN, "token": TEXT}
COMPLETION = {
    "choices": [{
        "text?": TEXT, "finish_reason?": TEXT, "token_ids?": [TOKEN],
        "logprobs?": {
            "tokens?": [TEXT], "top_logprobs?": [{TEXT: LOGPROB}],
            "content?": [{**LISTED, "top_logprobs": [{**LISTED, "logprob": LOGPROB}]}],
        },
    }],
    "usage?": {"prompt_tokens_details?": {"cached_tokens?": COUNT}},
    "timings?": {"cache_n?": COUNT},
}  # fmt: skip


class OpenAI(Engine):
    """`engine.url` (ending in /v1), `engine.model` (default: the one that is served)."""

    def __enter__(self) -> Self:
        settings = self.settings
        if not settings.url:
            raise ConfigProblem("engine=openai needs engine.url=http://HOST:PORT/v1.")
        self._wire = Wire(settings.url, os.environ.get(settings.key_variable), settings.timeout)
        self._optional, self._top = dict(OPTIONAL), settings.top
        listed = self._wire.get("/models", MODELS).get("data") or []
        served = [model["id"] for model in listed]
        if not settings.model and len(served) != 1:
            models = printable(", ".join(served[:FEW])) or "no model by name"
            raise ConfigProblem(f"engine.model=NAME is needed: {settings.url} serves {models}.")
        self.model = settings.model or served[0]
        self._salted = self.repeatable = True
        self._displaced = False  # another request empties the cache
        return self

    @property
    def cases(self) -> tuple[str, ...]:  # type: ignore[override]
        restored = ("restored",) if self.settings.evict else ()
        return ("hit", *restored, *(("restarted",) if self.settings.restart else ()))

    def versions(self) -> dict[str, str]:
        ways = {
            "cache_salt": self._salted,
            "after another prompt": self._displaced,
            "engine.flush": self.repeatable,
            "a prompt never sent before": True,
        }
        return {"model": printable(self.model), "cold runs": next(way for way in ways if ways[way])}

    def encode(self, text: str) -> Prompt:
        """By the server's own `/tokenize` (vLLM, llama-server); where there is none, the text."""
        root = Wire(self._wire.base.removesuffix("/v1"), timeout=self.settings.timeout)
        root._headers = self._wire._headers
        ask = {"model": self.model, "prompt": text, "content": text, "add_special": True}
        try:
            return (
                root.post("/tokenize", ask, partial(hold, shape={"tokens": [TOKEN]}))["tokens"]
                or text
            )
        except (Refusal, Malformed):
            return text

    def probe(self, prompt: Prompt) -> None:
        self._salted, self._displaced = True, False
        self.evaluate(prompt, 1)
        reused = self.evaluate(prompt, 1).reused
        self._salted = not reused if reused is not None else not self.settings.flush
        if not self._salted and not self.settings.flush:
            self._displaced = True  # a server that keeps one prompt has another now
            self._displaced = (self.evaluate(prompt, 1).reused or 0) <= IN_COMMON
        self.repeatable = self._salted or self._displaced or bool(self.settings.flush)

    def evaluate(self, prompt: Prompt, steps: int, composition: Composition = ALONE) -> Answer:
        if not self._salted and self.settings.flush:
            _command("engine.flush", self.settings.flush)
        elif self._displaced:
            self._ask(another(prompt), 1, cold=False)
        if not composition.beside:
            return self._ask(prompt, steps, cold=True)
        other = prompt[::-1]
        with ThreadPoolExecutor(1) as pool:
            neighbour = pool.submit(self._ask, other, 4 * steps, True)
            answer = self._ask(prompt, steps, cold=True)
            neighbour.result()
        return answer

    def resume(self, prompt: Prompt, steps: int) -> Answer:
        return self._ask(prompt, steps, cold=False)

    def together(self, prompt: Prompt, steps: int, count: int) -> list[Answer]:
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(lambda _: self._ask(prompt, steps, False), range(count)))

    def restore(self, case: str) -> None:
        if case == "restored":
            _command("engine.evict", self.settings.evict)
        if case == "restarted":
            _command("engine.restart", self.settings.restart)
            self._wire.wait("/models", RESTART_S)

    def _ask(self, prompt: Prompt, steps: int, cold: bool) -> Answer:
        cold = cold and self._salted
        while True:
            body = {"model": self.model, "prompt": prompt, "max_tokens": steps}
            body |= {"temperature": 0, "logprobs": self._top, **self._optional}
            if isinstance(prompt, str):  # to be extended by text
                body.pop("return_tokens_as_token_ids", None)
            if cold:
                body |= {"cache_salt": os.urandom(16).hex(), "cache_prompt": False}
            start = time.perf_counter()
            try:
                answer = self._wire.post("/completions", body, partial(read, steps=steps))
            except Refusal as refusal:
                cold = self._milder(refusal, cold)
                continue
            return replace(answer, seconds=time.perf_counter() - start)

    def _milder(self, refusal: Refusal, cold: bool) -> bool:
        """Leave out what the server refused; returns whether the next try may still ask for cold."""
        if refusal.status not in (400, 422):
            raise refusal
        named = [k for k in self._optional if k in refusal.said]
        if "cache_" in refusal.said and cold:
            self._salted = False
            return False
        if named:
            self._optional.pop(named[0])
        elif "logprobs" in refusal.said and (fewer := FEWER.get(self._top, 20)) < self._top:
            self._top = fewer
        elif self._optional:
            self._optional.popitem()
        elif cold:
            self._salted = cold = False
        else:
            raise refusal
        return cold


def another(prompt: Prompt) -> Prompt:
    """A short prompt that begins otherwise than `prompt`."""
    if isinstance(prompt, str):
        return f"{prompt[1:2]}{prompt[:1]} {prompt[-64:]}"
    return [t for t in reversed(prompt) if t != prompt[0]][:SHORT] or [prompt[0] + 1]


def read(said: Any, steps: int) -> Answer:
    """The Answer in a completion of at most `steps` tokens, in the legacy form (vLLM, SGLang) or as a list of
    `content` (llama-server); no tokens where the first one would have been the end. Raises ShapeError for
    anything else."""
    choices = hold(said, COMPLETION)["choices"]
    if not choices:
        raise ShapeError("choices", choices, "a choice")
    choice = choices[0]
    logprobs = choice.get("logprobs") or {}
    tokens: list[Token] = []
    tops: list[dict[Token, float]] = []
    if logprobs.get("content"):
        content = logprobs["content"]
        tokens = [_named(s.get("id"), s["token"]) for s in content]
        rows = [s["top_logprobs"] for s in content]
        tops = [{_named(t.get("id"), t["token"]): t["logprob"] for t in row} for row in rows]
    elif logprobs.get("top_logprobs"):
        tokens = [_named(None, t) for t in logprobs.get("tokens") or []]
        tops = [{_named(None, k): v for k, v in t.items()} for t in logprobs["top_logprobs"]]
    elif choice.get("finish_reason") in (None, "length") or choice.get("text"):
        raise ShapeError(
            "choices[0].logprobs", choice.get("logprobs"), "the most probable tokens of each step"
        )
    if not len(tokens) == len(tops) <= steps:
        found, wanted = (
            f"{len(tokens)} tokens with {len(tops)} lists",
            f"a list each for at most {steps}",
        )
        raise ShapeError("choices[0].logprobs", found, wanted)
    ids = choice.get("token_ids") or []
    numbers: tuple[int, ...] | None = None
    if ids and len(ids) == len(tokens):
        if all(isinstance(k, int) for top in tops for k in top):
            tokens = list(ids)
        else:
            numbers = tuple(ids)
    details = (said.get("usage") or {}).get("prompt_tokens_details") or {}
    counts = (details.get("cached_tokens"), (said.get("timings") or {}).get("cache_n"))
    reused = next((count for count in counts if count is not None), None)
    return Answer(tuple(tokens), tuple(tops), reused, numbers)


def _named(number: int | None, token: str) -> Token:
    """The id `number` where there is one, else `token`: `token_id:17` as 17."""
    digits = token.removeprefix("token_id:")
    if number is None and digits != token:
        if not digits.isdecimal() or len(digits) > DIGITS:
            raise ShapeError("a token", token, "token_id:ID")
        return int(digits)
    return token if number is None else number


def _command(key: str, command: str) -> None:
    """Run what the user gave. Raises InputProblem when it fails."""
    process = subprocess.run(command, shell=True, capture_output=True, text=True)
    if process.returncode:
        said = (process.stderr or process.stdout).strip()[-300:]
        raise InputProblem(f"{key} ended with {process.returncode}: {said or 'it said nothing'}")
