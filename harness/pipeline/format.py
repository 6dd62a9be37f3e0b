"""A payload format from Python: an option, or a class that somebody has just written."""

from typing import Any

from harness import config, given, variants
from harness.config import SaveConfig
from harness.config.option import schema_of, suited
from harness.errors import InputProblem
from harness.pipeline.reduction import class_of
from harness.save.base import Format


def settings_of(format: str | type, options: dict[str, Any]) -> SaveConfig:
    """How `format`, an option or a class below Format, writes. Raises ConfigProblem."""
    if isinstance(format, str):
        chosen: SaveConfig = config.option("save", format, **options)
        return chosen
    target = vouched(format)
    schema = schema_of("save", format.__name__, {variants.TARGET: target, **options})
    suited("save", schema, options)
    written: SaveConfig = schema(name=format.__name__, **options)
    return written


def reads(format: str | type) -> None:
    """Let `format`, a caller's class, read what names it. Raises InputProblem for the name of one of ours."""
    if isinstance(format, str):
        raise InputProblem(
            f"format={format!r}: a snapshot says itself which of the formats it is in. Leave format out; it is for a "
            "class of yours that wrote it."
        )
    vouched(format)


def vouched(format: Any) -> str:
    """`module.Class` of a caller's class, which from now on reads the payloads that name it."""
    return given.vouched(class_of("save", format, Format))
