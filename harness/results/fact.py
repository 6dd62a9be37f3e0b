"""The metadata of a fact, kept on the dataclass field that holds it. Console, page, CSV, MLflow, audit and docs read it here."""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

Compare = Literal["exact", "noise", "time", "skip"]
Track = Literal["", "metric", "tag", "param"]


@dataclass(frozen=True)
class Fact:
    """label: a column's heading. format: of a number, as for `format()`. meaning: one line, for glossary and docs.

    compare: how an audit holds it to a second run: `exact`; `noise`, within what rounding explains; `time`; `skip`.
    track: what MLflow gets it as. better: which way a figure improves, where it has one.
    """

    label: str = ""
    unit: str = ""
    format: str = ""
    meaning: str = ""
    compare: Compare = "exact"
    track: Track = ""
    better: Literal["", "lower", "higher"] = ""

    @property
    def heading(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label

    def show(self, value: Any) -> str:
        """`value` for a person: `-` for nothing, three digits of a number unless `format` says otherwise."""
        if value is None:
            return "-"
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, int | float):
            return format(value, self.format or (",d" if isinstance(value, int) else ".3g"))
        return str(value)


def fact(label: str = "", default: Any = None, **more: Any) -> Any:
    """A dataclass field that carries a Fact."""
    return field(default=default, metadata={"fact": Fact(label, **more)})


def block(kind: type, default: Any = None) -> Any:
    """A dataclass field whose value is the dataclass `kind`, or None."""
    return field(default=default, metadata={"block": kind})


def facts(kind: Any, prefix: str = "") -> Iterator[tuple[str, Fact]]:
    """`(dotted path, Fact)` of every field of the dataclass `kind` that has one, blocks within blocks."""
    assert is_dataclass(kind)
    for item in fields(kind):
        name = f"{prefix}{item.name}"
        if "fact" in item.metadata:
            yield name, item.metadata["fact"]
        if "block" in item.metadata:
            yield from facts(item.metadata["block"], f"{name}.")
