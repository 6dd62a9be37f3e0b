"""The merges of the tokenizer in another order."""

from harness.fault.base import Fault, Target, edit


class MergesReordered(Fault, element=10):
    why = "the cache answers as before; the next text gets other ids"

    def live(self, live: Target) -> None:
        def reorder(rules):
            if "merges" in rules["model"]:
                rules["model"]["merges"].reverse()

        edit.rules(live.tokenizer, reorder)
