"""Two entries of the vocabulary exchanged, as between two revisions."""

from harness.fault.base import Fault, Target, edit


class TokenizerOtherRevision(Fault, element=10):
    why = "the cache answers as before; two words change places in every later text"

    def live(self, live: Target) -> None:
        a, b = live.tokenizer.tokenize(" what is")[:2]

        def exchange(rules):
            words = rules["model"]["vocab"]
            words[a], words[b] = words[b], words[a]

        edit.rules(live.tokenizer, exchange)
