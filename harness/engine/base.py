"""What an engine is: four verbs over token sequences, and an honest count of what it reused.

An engine is judged from outside. It is asked for the most probable tokens at each step, it never
sees why. Nothing here knows about verdicts.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from harness.config import EngineConfig

Token = int | str  # an id, or the token's text where the engine gives no ids
Prompt = list[int] | str  # text only where the engine takes no ids and cannot tokenize


@dataclass(frozen=True)
class Answer:
    """What came out of an engine over `n` steps.

    tokens: `[n]` the most probable token of each step, named as in tops. tops: `[n]` natural-log
    probabilities of that step's most probable tokens. reused: prompt tokens that came from a cache;
    None where the engine does not say. ids: `[n]` where tokens go by text but their ids are known.
    seconds: wall time of the request.
    """

    tokens: tuple[Token, ...]
    tops: tuple[Mapping[Token, float], ...]
    reused: int | None
    ids: tuple[int, ...] | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Composition:
    """One way to evaluate without a cache: the same tokens, batched or cut otherwise. name: for the
    report. beside: another request runs at the same time. chunk: tokens per forward pass."""

    name: str
    beside: bool = False
    chunk: int | None = None


ALONE = Composition("alone")
ADDED = 8  # tokens that a tokenizer or a template puts around a text, at most
IN_COMMON = 1  # tokens that any two prompts share: what every text begins with
SCRIPTS = Path(__file__).with_name("reproductions")  # named for the case that each one shows


class Engine(ABC):
    """Base of every engine, from inside and outside; opened with `with`.

    `evaluate` and `resume` are enough for the cases `cold_again`, `hit` and `other_prompt`. An engine
    that stores what it cached lists further `cases` and implements `save` and `restore`.
    """

    cases: tuple[str, ...] = ("hit",)
    alike: tuple[str, ...] = ()  # cases that go on in the very calls and layout of the hit
    further: Mapping[str, str] = {}  # cases that only `task.cases` asks for, and what each is about
    absent: Mapping[str, str] = {}  # those that cannot be had here, and why
    compositions: tuple[Composition, ...] = (
        Composition("again"),
        Composition("beside another request", beside=True),
    )
    roundoff = 2.0**-23  # of the numbers it gives, over their size: float32 at best
    repeatable = True  # the same prompt can be evaluated without a cache again and again

    shares = True  # goes on from what a prompt has in common with what it keeps, not from whole prompts alone
    declared = False  # runs the model of the group `model`
    exports = (
        False  # does where `engine.model` names none: it is then built with what loads that one
    )

    def __init__(self, settings: EngineConfig):
        """Opens nothing yet."""
        self.settings = settings

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:  # noqa: B027
        """Close what `__enter__` opened, and only that."""

    def versions(self) -> dict[str, str]:
        """What is judged: names and versions for the report."""
        return {}

    @property
    def weights(self) -> Path | None:
        """File or folder of the very weights that it runs, where they can be read."""
        return None

    def encode(self, text: str) -> Prompt:
        """Token ids of `text` where the engine can say them, else the text itself."""
        return text

    def probe(self, prompt: Prompt) -> None:  # noqa: B027
        """Find out how cold runs of `prompt` can be had, and set `repeatable`."""

    @abstractmethod
    def evaluate(self, prompt: Prompt, steps: int, composition: Composition = ALONE) -> Answer:
        """Cold: read `prompt` without anything cached, then `steps` greedy tokens."""

    @abstractmethod
    def resume(self, prompt: Prompt, steps: int) -> Answer:
        """The same, from whatever the engine has cached; leaves `prompt` in the cache."""

    def together(self, prompt: Prompt, steps: int, count: int) -> list[Answer]:
        """`count` requests at the same time; where cold runs cannot be repeated, the only way to two."""
        return [self.resume(prompt, steps)]

    def save(self, prompt: Prompt) -> None:
        """Bring the state after `prompt` into the cache, and to where `restore` finds it."""
        self.resume(prompt, 1)

    def restore(self, case: str) -> None:  # noqa: B027
        """Bring the saved state back the way `case` (one of `cases`) says. `hit`: it is still there."""

    def prompt_of(self, case: str, prompt: Prompt) -> Prompt:
        """What `case` is judged on: `prompt`, or tokens that the engine itself arrived at from there."""
        return prompt

    def reproduction(self, case: str) -> str | None:
        """A program that shows what `case` is about without this harness; None where there is none."""
        script = SCRIPTS / f"{case}.py"
        return script.read_text("utf-8") if script.is_file() else None

    def forge(self, prompt: Prompt, other: Prompt) -> bool:
        """Put the state of `other` where `resume(prompt)` takes it for that of `prompt`; for controls.

        False where this cannot be done from outside.
        """
        return False


def most(prompt: Prompt) -> int:
    """How many tokens `prompt` can be: a text has one a byte at most, and what a tokenizer adds."""
    return len(prompt) if isinstance(prompt, list) else len(prompt.encode()) + ADDED


def extended(prompt: Prompt, answer: Answer, count: int) -> Prompt | None:
    """`prompt` and the first `count` tokens of `answer`; None where they cannot be put together."""
    tokens = answer.ids if isinstance(prompt, list) and answer.ids else answer.tokens
    if isinstance(prompt, str):
        texts = [t for t in tokens[:count] if isinstance(t, str)]
        return prompt + "".join(texts) if len(texts) == count else None
    ids = [t for t in tokens[:count] if isinstance(t, int)]
    return [*prompt, *ids] if len(ids) == count else None


def forced(ask: Callable[[Prompt, int], Answer], prompt: Prompt, along: Answer) -> Answer:
    """The answer over the tokens of `along`, whatever the engine would choose itself (teacher
    forcing): where it chooses another one, it is asked again with those of `along` up to there as
    part of the prompt. It ends at such a token where a prompt cannot be extended.

    reused and seconds are those of the first request.
    """
    steps = len(along.tokens)
    first = part = ask(prompt, steps)
    tokens, tops = [], []
    while True:
        for token, top in zip(part.tokens, part.tops):
            tokens.append(token)
            tops.append(top)
            if len(tokens) == steps or token != along.tokens[len(tokens) - 1]:
                break
        longer = extended(prompt, along, len(tokens))
        if len(tokens) >= steps or not part.tokens or longer is None:
            return Answer(tuple(tokens), tuple(tops), first.reused, None, first.seconds)
        part = ask(longer, steps - len(tokens))
