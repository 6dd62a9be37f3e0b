"""The tables of a manifest as pandera models, strict and lazy. Nothing here raises on a bad table."""

from math import prod
from typing import Any

import pandas as pd
import pandera.pandas as pa

from harness.snapshot.digest import digest_document
from harness.snapshot.elements import ELEMENTS

HEX = r"^[0-9a-f]{64}$"
MAX_ROWS = 1 << 18
FILE = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,120}$"
_sound: dict[tuple[str, str], None] = {}  # tables that this process validated before
ITEM_BYTES = {
    "float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip


class ElementTable(pa.DataFrameModel):
    """The 13 elements, each exactly once."""

    number: int = pa.Field(isin=[e.number for e in ELEMENTS], unique=True)
    label: str = pa.Field(isin=[e.label for e in ELEMENTS], unique=True)
    name: str = pa.Field(isin=[e.name for e in ELEMENTS], unique=True)
    kept_as: str = pa.Field(isin=["tensors", "document", "digest"])
    digest: str = pa.Field(str_matches=HEX)

    class Config:
        strict = True
        coerce = False


class TensorTable(pa.DataFrameModel):
    """One row per stored tensor."""

    name: str = pa.Field(unique=True, str_matches=r"^[a-z0-9_.]{1,120}$")
    element: int = pa.Field(isin=[e.number for e in ELEMENTS])
    layer: int = pa.Field(ge=-1, lt=1 << 16)
    part: str = pa.Field(str_matches=r"^[a-z0-9_]{1,60}$")
    layer_type: str = pa.Field(str_matches=r"^[a-z0-9_]{1,60}$")
    dtype: str = pa.Field(isin=list(ITEM_BYTES))
    shape: object
    nbytes: int = pa.Field(ge=0)
    digest: str = pa.Field(str_matches=HEX)
    file: str = pa.Field(str_matches=FILE)

    class Config:
        strict = True
        coerce = False

    @pa.check("shape", name="shape is a list of sizes")
    def _sizes(cls, column: pd.Series) -> pd.Series:
        return column.map(_is_shape)

    @pa.dataframe_check(name="nbytes = shape x dtype")
    def _bytes(cls, table: pd.DataFrame) -> pd.Series:
        return pd.Series(
            [
                _is_shape(r.shape) and r.nbytes == prod(r.shape) * ITEM_BYTES.get(r.dtype, 0)
                for r in table.itertuples()
            ],
            index=table.index,
        )


class FileTable(pa.DataFrameModel):
    """One row per payload file, own or inherited."""

    file: str = pa.Field(unique=True, str_matches=FILE)
    nbytes: int = pa.Field(ge=0, lt=1 << 50)
    tensor_bytes: int = pa.Field(ge=0, lt=1 << 50)
    covered: int = pa.Field(ge=0, lt=1 << 50)
    digest: str = pa.Field(str_matches=HEX)

    class Config:
        strict = True
        coerce = False


class TokenizerTable(pa.DataFrameModel):
    """One row per tokenizer file."""

    file: str = pa.Field(unique=True, str_matches=FILE)
    nbytes: int = pa.Field(ge=0, lt=1 << 50)
    digest: str = pa.Field(str_matches=HEX)

    class Config:
        strict = True
        coerce = False


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= 8
        and all(type(v) is int and 0 <= v < 1 << 40 for v in value)
    )


def table_faults(name: str, rows: Any, model: Any, count: int | None) -> list[str]:
    """Everything wrong with the `rows` of table `name`, `count` of them where that is known."""
    if not isinstance(rows, list) or not rows or len(rows) > MAX_ROWS:
        return [f"table '{name}' is not a list of rows"]
    columns = set(model.to_schema().columns)
    if not all(isinstance(r, dict) and set(r) == columns for r in rows):
        return [f"table '{name}' has a row with missing or unknown columns"]
    if count is not None and len(rows) != count:
        return [f"table '{name}' has {len(rows)} rows, expected {count}"]
    try:
        if (key := (name, digest_document(rows))) in _sound:
            return []
        model.validate(pd.DataFrame(rows)[list(columns)], lazy=True)
        _sound[key] = None
        if len(_sound) > 1024:
            del _sound[next(iter(_sound))]
    except (pa.errors.SchemaErrors, pa.errors.SchemaError) as problem:
        return _failure_cases(name, problem)
    except Exception as problem:  # whatever a hostile cell makes pandas or pandera raise
        return [f"table '{name}' cannot be checked: {problem!r}"[:300]]
    return []


def _failure_cases(name: str, problem: Any) -> list[str]:
    cases = getattr(problem, "failure_cases", None)
    if not isinstance(cases, pd.DataFrame):
        return [f"table '{name}': {str(problem)[:200]}"]
    return [
        f"table '{name}', row {'' if pd.isna(case['index']) else int(case['index'])}, "
        f"{case['column']}: {str(case['failure_case'])[:80]} fails {str(case['check'])[:80]}"
        for case in cases.drop_duplicates(["check", "index"]).to_dict("records")
    ]
