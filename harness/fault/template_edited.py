"""The chat template of another revision: a space more before each turn."""

from harness.fault.base import Fault, Target


class TemplateEdited(Fault, element=10):
    why = "the cache answers as before; the re-rendered history no longer meets it"

    def live(self, live: Target) -> None:
        template = live.tokenizer.chat_template or "{{ messages }}"
        live.tokenizer.chat_template = template.replace("'<' +", "' <' +") + " "
