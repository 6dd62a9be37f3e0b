"""One question about a context, and what a right answer says."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """context: what is read, and pruned. question: text that follows it. expected: what a right answer
    says. pattern: a regular expression that a right answer matches, or None."""

    context: str
    question: str
    expected: str
    pattern: str | None = None

    @property
    def asked(self) -> str:
        """The question as it follows the context: a space lies between the two."""
        apart = self.context[-1:].isspace() or self.question[:1].isspace()
        return self.question if apart else " " + self.question
