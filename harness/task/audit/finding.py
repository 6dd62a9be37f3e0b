"""One thing that an audit finds."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Finding:
    """One thing that is not as recorded, and why that may be."""

    what: str
    recorded: Any
    found: Any
    explanation: str
    point: str | None = None

    def row(self) -> dict[str, Any]:
        return {k: v for k, v in asdict(self).items() if v is not None or k != "point"}
