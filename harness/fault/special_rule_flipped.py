"""The rule that places BOS switched off (or on)."""

from harness.fault.base import Fault, Live, edit


class SpecialRuleFlipped(Fault, element=10):
    why = "the cache answers as before; the next text gets other ids"

    def live(self, live: Live) -> None:
        def flip(rules):
            rules["post_processor"] = (
                None
                if rules.get("post_processor")
                else {
                    "type": "ByteLevel",
                    "add_prefix_space": True,
                    "trim_offsets": True,
                    "use_regex": False,
                }
            )

        edit.rules(live.tokenizer, flip)
