"""Text to ids: the ONE place where a token may be added, and it says which, where and why.

The true length is the length of the ids returned here; they are what is sent to the model.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harness import config, variants
from harness.config import TokenizerConfig
from harness.confined import Confined
from harness.errors import InputProblem, UnsupportedModel
from harness.tokenizer.ids import check

RENDERERS = 4  # processes of chat templates that are kept


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


Exchange = tuple[Encoded, Encoded, Encoded]


class Encoder(ABC):
    """A policy: which ids a text becomes. settings: an option of `tokenizer`."""

    def __init__(self, settings: TokenizerConfig):
        self.settings = settings

    @abstractmethod
    def encode(self, tokenizer: Any, text: str, turns: Sequence[Any]) -> Encoded:
        """Ids of `text`, or of chat `turns` (`role`, `content`) where a policy renders them, with an
        account of every special token. tokenizer: the library's; it is not changed."""

    def continuation(self, tokenizer: Any, text: str) -> Encoded:
        """Ids of a text that goes on from a restored state: nothing is put before it."""
        ids = plain(tokenizer, text)
        return Encoded(ids, text, self.settings.name, account(tokenizer, ids, {}))

    def exchange(self, tokenizer: Any, context: str, question: str, answer: str) -> Exchange:
        """Ids of a context, of a question after it and of an answer to both, which joined are what is
        sent. Raises InputProblem and UnsupportedModel as `encode` does."""
        apart = "" if question[-1:].isspace() else " "
        return (
            explained(tokenizer, self.encode(tokenizer, context, ())),
            explained(tokenizer, self.continuation(tokenizer, question)),
            explained(tokenizer, self.continuation(tokenizer, apart + answer.lstrip())),
        )


def encoder(policy: str | TokenizerConfig) -> Encoder:
    """The policy that an option of `tokenizer` (or the name of one) declares. Raises ConfigProblem."""
    settings = config.option("tokenizer", policy) if isinstance(policy, str) else policy
    settings = config.completed("tokenizer", settings)
    return variants.variant("tokenizer", settings, Encoder)(settings)


def encode(
    policy: str | TokenizerConfig, tokenizer: Any, text: str, turns: Sequence[Any] = ()
) -> Encoded:
    """Encode `text` (or `turns`, for `chat`) under `policy`, an option of `tokenizer` or its name.
    Raises InputProblem for an empty result."""
    encoded = encoder(policy).encode(tokenizer, text, turns)
    if not encoded.ids and not encoded.text:
        raise InputProblem(
            "the prompt is empty: no token would be sent to the model. Give text=..."
        )
    return explained(tokenizer, encoded)


def continuation(policy: str | TokenizerConfig, tokenizer: Any, text: str) -> Encoded:
    """Encode text that goes on from a restored state: no BOS, unless the library adds its own. Raises InputProblem
    for a text that the tokenizer has no token for; no text at all has none."""
    return explained(tokenizer, encoder(policy).continuation(tokenizer, text))


def explained(tokenizer: Any, encoded: Encoded) -> Encoded:
    """`encoded`, once its text and its account explain every id. Raises InputProblem for a text of which no token
    is left, for a policy that adds what it does not account for, and for an account of tokens that are not there."""
    known = plain(tokenizer, encoded.text)
    if encoded.text and not known:
        raise InputProblem(_unknown(tokenizer, encoded.text))
    check(tokenizer, encoded.text, known)
    rows = {int(row["index"]): int(row["id"]) for row in encoded.account}
    special, ids = set(tokenizer.all_special_ids), encoded.ids
    said = [token for index, token in enumerate(ids) if index not in rows]
    written = [token for token in known if token not in special]
    true = all(index < len(ids) and ids[index] == token for index, token in rows.items())
    if true and (said == written or decode(tokenizer, said) == decode(tokenizer, written)):
        return encoded
    shown = [tokenizer.convert_ids_to_tokens(int(token)) for token in ids[:4]]
    raise InputProblem(
        f"tokenizer={encoded.policy} made {len(ids)} ids, beginning with {shown}, of which its account "
        f"names {len(rows)}; the others do not say the text. A policy lists every token that it adds "
        "in `account`, with its index and id."
    )


def _unknown(tokenizer: Any, text: str) -> str:
    if not text.strip():
        return "the text is only spaces, for which this tokenizer has no token. Give at least one word."
    return (
        f"this model's tokenizer ({len(tokenizer)} entries) knows nothing of the text, so no token of it would be "
        "sent to the model. Put the tokenizer files that belong to the model beside its weights."
    )


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """Text of `ids`, special tokens shown, spaces untouched."""
    return tokenizer.decode(
        list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False
    )


def render(tokenizer: Any, turns: Sequence[Any], generate: bool) -> str:
    """The chat template's text for `turns`; `generate` opens the assistant's turn. A template is a program, so it
    runs confined.

    Raises UnsupportedModel when the tokenizer has no template, refuses these turns or takes too much for them.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise UnsupportedModel(
            "this tokenizer has no chat template. Use tokenizer=explicit, or a model that has one."
        )
    try:
        return _renderer(tokenizer).ask(list(turns), generate)
    except ValueError as problem:
        raise UnsupportedModel(f"the chat template refuses these turns: {problem}") from problem


_renderers: dict[tuple[int, str], tuple[Any, Confined]] = {}


def _renderer(tokenizer: Any) -> Confined:
    """What renders for `tokenizer` as it is now; of the last few. A tokenizer is kept with it, so its id is its own."""
    key = id(tokenizer), f"{tokenizer.chat_template} {tokenizer.special_tokens_map}"
    if key not in _renderers:
        while len(_renderers) >= RENDERERS:
            _renderers.pop(next(iter(_renderers)), None)
        made = Confined(
            lambda turns, generate: tokenizer.apply_chat_template(
                turns, tokenize=False, add_generation_prompt=generate
            )
        )
        _renderers[key] = tokenizer, made
    return _renderers[key][1]


def plain(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Ids of the text alone. Raises InputProblem for a tokenizer that adds to it although it is told not
    to, which shows in what it makes of no text."""
    ids = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    nothing = tokenizer("", add_special_tokens=False)["input_ids"]
    if added := [token for token in nothing if token in tokenizer.all_special_ids]:
        name = tokenizer.convert_ids_to_tokens(int(added[0]))
        raise InputProblem(
            f"the tokenizer adds {name} although add_special_tokens=False says that nothing is added: "
            "every text that goes on would begin again. Give the library's own tokenizer."
        )
    return ids


def account(tokenizer: Any, ids: Sequence[int], why: dict[int, str]) -> tuple[dict, ...]:
    """One row per special token among `ids`. why: index -> reason, where it is not the text."""
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
