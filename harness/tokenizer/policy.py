"""Text to ids: the ONE place where a token may be added, and it says which, where and why.

The true length is the length of the ids returned here; they are what is sent to the model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.errors import InputProblem, UnsupportedModel, suggestion


@dataclass(frozen=True)
class Encoded:
    """Token ids of one text with an account of its special tokens.

    account: one row per special token: `index`, `id`, `token`, `why`.
    prefix: number of leading ids that no user text put there (BOS, template head, system prompt).
    """

    ids: tuple[int, ...]
    text: str
    policy: str
    account: tuple[dict[str, Any], ...] = ()
    prefix: int = 0
    turns: tuple[dict[str, str], ...] = field(default=())


def encode(policy: str, tokenizer: Any, text: str, turns: Sequence[Any] = (), bos: bool = True) -> Encoded:  # fmt: skip
    """Encode `text` (or `turns`, for `chat`) under `policy`. Raises InputProblem for an empty result."""
    if policy not in POLICIES:
        raise InputProblem(
            f"tokenizer={policy} is not a policy.{suggestion(policy, list(POLICIES))}"
        )
    encoded = POLICIES[policy](tokenizer, text, turns, bos)
    if not encoded.ids:
        raise InputProblem(
            "the prompt is empty: no token would be sent to the model. Give text=..."
        )
    return encoded


def continuation(policy: str, tokenizer: Any, text: str) -> Encoded:
    """Encode text that goes on from a restored state: no BOS, unless the library adds its own."""
    if policy == "library":
        return _library(tokenizer, text, (), False)
    ids = _plain(tokenizer, text)
    return Encoded(ids, text, policy, _account(tokenizer, ids, {}))


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """Text of `ids`, special tokens shown, spaces untouched."""
    return tokenizer.decode(
        list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
    )


def _explicit(tokenizer: Any, text: str, turns: Sequence[Any], bos: bool) -> Encoded:
    ids = _plain(tokenizer, text)
    if not bos or tokenizer.bos_token_id is None or ids[:1] == (tokenizer.bos_token_id,):
        return Encoded(ids, text, "explicit", _account(tokenizer, ids, {}), 0)
    ids = (tokenizer.bos_token_id, *ids)
    why = {0: "placed once, on purpose, by tokenizer=explicit"}
    return Encoded(ids, text, "explicit", _account(tokenizer, ids, why), 1)


def _raw(tokenizer: Any, text: str, turns: Sequence[Any], bos: bool) -> Encoded:
    ids = _plain(tokenizer, text)
    return Encoded(ids, text, "raw", _account(tokenizer, ids, {}))


def _library(tokenizer: Any, text: str, turns: Sequence[Any], bos: bool) -> Encoded:
    ids = tuple(tokenizer(text)["input_ids"])
    plain = _plain(tokenizer, text)
    start = next((i for i in range(len(ids) + 1) if ids[i : i + len(plain)] == plain), 0)
    added = set(range(len(ids))) - set(range(start, start + len(plain)))
    why = dict.fromkeys(added, "added behind your back by the tokenizer's own defaults")
    return Encoded(ids, text, "library", _account(tokenizer, ids, why), start)


def _chat(tokenizer: Any, text: str, turns: Sequence[Any], bos: bool) -> Encoded:
    turns = tuple(dict(t) for t in turns) or ({"role": "user", "content": text},)
    rendered = render(tokenizer, turns, generate=turns[-1]["role"] != "assistant")
    ids = _plain(tokenizer, rendered)
    known = set(tokenizer.all_special_ids)
    special = [i for i, t in enumerate(ids) if t in known]
    why = dict.fromkeys(special, "rendered by the chat template")
    content = next((t["content"] for t in turns if t["role"] != "system"), "")
    head = rendered[: max(rendered.find(content), 0)]
    prefix = len(_plain(tokenizer, head)) if head else 0
    return Encoded(ids, rendered, "chat", _account(tokenizer, ids, why), prefix, turns)


def render(tokenizer: Any, turns: Sequence[Any], generate: bool) -> str:
    """The chat template's text for `turns`; `generate` opens the assistant's turn.

    Raises UnsupportedModel when the tokenizer has no template or refuses these turns.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise UnsupportedModel(
            "this tokenizer has no chat template. Use tokenizer=explicit, or a model that has one."
        )
    try:
        return tokenizer.apply_chat_template(
            list(turns), tokenize=False, add_generation_prompt=generate
        )
    except Exception as problem:  # templates raise whatever their author chose
        raise UnsupportedModel(f"the chat template refuses these turns: {problem}") from problem


def _plain(tokenizer: Any, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def _account(tokenizer: Any, ids: Sequence[int], why: dict[int, str]) -> tuple[dict, ...]:
    special = set(tokenizer.all_special_ids)
    return tuple(
        {
            "index": index,
            "id": int(token),
            "token": tokenizer.convert_ids_to_tokens(int(token)),
            "why": why.get(index, "written in the text itself"),
        }
        for index, token in enumerate(ids)
        if token in special or index in why
    )


POLICIES: dict[str, Callable[..., Encoded]] = {
    "explicit": _explicit,
    "raw": _raw,
    "library": _library,
    "chat": _chat,
}
