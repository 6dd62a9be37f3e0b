"""The rule that places BOS switched off (or on)."""

from harness.fault.base import Fault, Target, edit


class SpecialRuleFlipped(Fault, element=10):
    why = "the cache answers as before; the next text gets other ids"

    def live(self, live: Target) -> None:
        def flip(rules):
            level = {"type": "ByteLevel", "add_prefix_space": True}
            level |= {"trim_offsets": True, "use_regex": False}
            rules["post_processor"] = None if rules.get("post_processor") else level

        edit.rules(live.tokenizer, flip)
