"""The pages for whoever carries on: every room has its line, every test that is named is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HOUSE, FOOTGUNS = (ROOT / "harness" / name for name in ("README.md", "FOOTGUNS.md"))


def unlisted(page: str, rooms: set[str]) -> set[str]:
    return rooms - set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))


def missing(page: str) -> list[str]:
    """Tests that `page` names and nobody wrote."""
    gone = []
    for file, test in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page):
        path = ROOT / file
        if not path.is_file() or (test and f"def {test}(" not in path.read_text()):
            gone.append(f"{file}::{test}")
    return gone


def test_every_room_has_its_line() -> None:
    rooms = {p.parent.name for p in (ROOT / "harness").glob("*/__init__.py")}
    assert unlisted(HOUSE.read_text(), rooms) == set()
    assert unlisted(HOUSE.read_text(), rooms | {"cellar"}) == {"cellar"}


def test_every_footgun_has_its_guard() -> None:
    page = FOOTGUNS.read_text()
    assert missing(page) == []
    for footgun in page.split("\n- **")[1:]:
        assert "tests/" in footgun, footgun
    renamed = page.replace("::test_", "::test_once_", 1)
    assert len(missing(renamed)) == 1


@pytest.mark.parametrize("page", [HOUSE, FOOTGUNS], ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([\w/.]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
