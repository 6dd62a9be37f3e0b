"""`tokenizer=chat`: the chat template renders the turns; nothing is added to what it renders."""

from collections.abc import Sequence
from typing import Any

from harness.tokenizer.policy import Encoded, Encoder, account, plain, render


class Chat(Encoder):
    """A text without turns is one turn of the user's."""

    def encode(self, tokenizer: Any, text: str, turns: Sequence[Any]) -> Encoded:
        turns = tuple(dict(t) for t in turns) or ({"role": "user", "content": text},)
        rendered = render(tokenizer, turns, generate=turns[-1]["role"] != "assistant")
        ids, known = plain(tokenizer, rendered), set(tokenizer.all_special_ids)
        special = [i for i, t in enumerate(ids) if t in known]
        why = dict.fromkeys(special, "rendered by the chat template")
        content = next((t["content"] for t in turns if t["role"] != "system"), "")
        head = rendered[: max(rendered.find(content), 0)]
        prefix = len(plain(tokenizer, head)) if head else 0
        return Encoded(ids, rendered, "chat", account(tokenizer, ids, why), prefix, turns)
