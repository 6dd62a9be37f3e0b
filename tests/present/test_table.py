"""One table of facts, shown four ways."""

import csv
import io

from harness.present import messages, table
from harness.results.fact import Fact

ROWS = [
    {"name": "a|<b>", "kl": 1.23456, "same": 1, "best": True},
    {"name": "c", "kl": None, "same": 1},
]
TABLE = table.Table(
    "t",
    [
        table.Column("name", Fact("name")),
        table.Column("kl", Fact("KL", "nats", meaning="m")),
        table.Column("same", Fact()),
    ],
    ROWS,
    "best",
)


def test_every_rendering_holds_every_cell() -> None:
    for made in (table.html(TABLE), table.markdown(TABLE)):
        assert "KL (nats)" in made and "1.23" in made and "1.23456" not in made
    assert "a|&lt;b&gt;" in table.html(TABLE) and "a\\|<b>" in table.markdown(TABLE)
    (first, second) = csv.DictReader(io.StringIO(table.comma_separated(["name", "kl"], ROWS)))
    assert float(first["kl"]) == 1.23456 and second["kl"] == ""


def test_a_column_that_never_changes_can_be_left_out() -> None:
    assert [c.key for c in TABLE.varying().columns] == ["name", "kl"]
    assert [c.key for c in TABLE.varying("same").columns] == ["name", "kl", "same"]


def test_a_message_is_its_code_where_codes_are_asked_for(monkeypatch) -> None:
    templates = {"off": "{part} is off by {off}, in {layers}"}
    args = {"part": "key", "off": 0.12345, "layers": [1, 2]}
    assert messages.message("off", args, templates) == "key is off by 0.123, in 1, 2"
    monkeypatch.setenv("HARNESS_MESSAGES", "codes")
    assert messages.message("off", args, templates) == "off part=key off=0.12345 layers=[1, 2]"
    assert messages.message("unknown", {}) == "unknown"
