"""Text to ids, and what a tokenizer is. `Encoder` is the base of your own policy; `plain` gives the
ids of a text alone, `account` says which of them are special and why."""

from typing import TYPE_CHECKING

from harness.variants import lazily

if TYPE_CHECKING:
    from harness.tokenizer.policy import Encoded, Encoder, account, plain

__all__ = ["Encoded", "Encoder", "account", "plain"]
__getattr__ = lazily(
    Encoder="harness.tokenizer.policy",
    Encoded="harness.tokenizer.policy",
    account="harness.tokenizer.policy",
    plain="harness.tokenizer.policy",
)
