"""`report.html`: one self-contained page, nothing fetched, readable in light and dark, at any width."""

import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness.report import glossary
from harness.report.badge import SIGNS, kind
from harness.report.terminal.console import number

DIGEST, DIGITS = re.compile("[0-9a-f]{40,}"), 16  # and so many of its digits tell it apart
CODE = re.compile("`([^`\n]+)`")
NARROW = 40  # characters beside each other on the narrowest screen, four columns' gaps aside
CARDS = 300  # rows; more are a table on any screen
LONG = 20  # rows; a table of more can be folded, and sorted where a script runs

TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ tab }}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{{ style | safe }}</style></head>
<body><main><h1>{{ title }}</h1>
{% if under %}<p class="soft">{{ under }}</p>{% endif %}
{% if pills %}<p class="conclusion">{% for pill in pills %}<span class="verdict {{ pill.kind }}">{% if pill.sign %}<i aria-hidden="true">{{ pill.sign }}</i> {% endif %}{{ pill.text }}</span>
{% endfor %}</p>{% endif %}
{% if verdict or reason %}<p class="conclusion">{% if verdict %}<span class="verdict {{ tone }}">
{%- if sign %}<i aria-hidden="true">{{ sign }}</i> {% endif %}{{ verdict }}</span>
{% endif %}{{ reason[0] | prose }}</p>{% for line in reason[1:] %}<p class="soft">{{ line | prose }}</p>
{% endfor %}{% endif %}
{% if answers %}<p class="answer">{% for line in answers %}<span>{{ line.text }} <b class="{{ line.kind }}">{{ line.said }}</b></span>{% endfor %}</p>{% endif %}
{% if words[1:] %}<details class="meant"><summary>What {{ words | map("first") | join(", ") }} mean</summary><ul>{% for word, meaning in words %}<li><b>{{ word }}</b>: {{ meaning | prose }}</li>
{% endfor %}</ul></details>{% elif words %}<p class="soft"><b>{{ words[0][0] }}</b>: {{ words[0][1] | prose }}.</p>{% endif %}
{% if links %}<p class="links">{% for name, target in links %}<a href="{{ target }}">{{ name }}</a>
{% endfor %}</p>
<p class="soft">Links work in the folder that this page was written to.</p>{% endif %}
{% macro cells(row, right, heads) %}{% for cell in row %}<td{% if heads %} data-label="{{ heads[loop.index0] }}"{% endif %}
{%- if cell is mapping %} class="{{ cell.kind }}">
{%- if cell.sign %}<i aria-hidden="true">{{ cell.sign }}</i> {% endif %}{% if cell.href %}<a href="{{ cell.href }}">{{ cell.text }}</a>{% else %}{{ cell.text }}{% endif %}</td>
{%- else %} class="{{ "n" if loop.index0 in right else cell | width }}">{{ cell | show }}</td>
{%- endif %}{% endfor %}{% endmacro %}
{% macro pill(section) %}{% if section.pill %}<span class="verdict {{ section.pill.kind }}">{% if section.pill.sign %}<i aria-hidden="true">{{ section.pill.sign }}</i> {% endif %}{{ section.pill.text }}</span> {% endif %}{{ section.title }}{% endmacro %}
{% macro body(section) %}
{% if section.text %}<p class="soft">{{ section.text | prose }}</p>{% endif %}
{% if section.legend %}<p class="legend">{{ section.legend | safe }}</p>{% endif %}
{% if section.panels %}<div class="panels">{% for panel in section.panels %}<figure>{{ panel | safe }}</figure>{% endfor %}</div>{% endif %}
{% if section.svg %}<div class="wide"{% if section.broad %} tabindex="0" role="region" aria-label="{{ section.title }}"{% endif %}>{{ section.svg | safe }}</div>{% endif %}
{% if section.rows %}<div class="wide rows{{ section.shape }}"{% if section.columns | length > 4 %} tabindex="0" role="region" aria-label="{{ section.title }}"{% endif %}><table><thead><tr>{% for c in section.columns %}<th scope="col"{% if loop.index0 in section.right %} class="n"{% endif %}>{{ c }}</th>
{%- endfor %}</tr></thead><tbody>{% for row in section.rows %}<tr>{{ cells(row, section.right, section.heads) }}</tr>
{% endfor %}</tbody></table></div>{% elif section.columns and not (section.panels or section.svg or section.text) %}<p class="soft">None.</p>{% endif %}
{% if section.lines %}<ul>{% for line in section.lines %}<li>{{ line }}</li>
{% endfor %}</ul>{% endif %}
{% if section.pre or section.marked %}<pre>{{ section.pre }}{{ section.marked | safe }}</pre>{% endif %}
{% for part in section.parts %}{{ body(part) }}{% endfor %}
{% endmacro %}
{% for section in sections %}{% set id = ' id="%s"' | safe % section.id if section.id else "" %}{% if section.fold %}<details{{ id }}><summary>{{ pill(section) }}</summary>{% elif section.long %}<details open{{ id }}><summary><h2>{{ pill(section) }}</h2></summary>{% else %}<h2{{ id }}>{{ pill(section) }}</h2>{% endif %}
{{ body(section) }}{% if section.fold or section.long %}</details>{% endif %}
{% endfor %}</main><script>{{ script | safe }}</script></body></html>
"""


def section(title: str, **parts: Any) -> dict[str, Any]:
    """One block of a page, all of its parts optional: `text`, `legend` and `panels` (pictures beside
    one another), `svg` (`broad=True` where it may scroll), `columns` with `rows`, `pre` (`marked`: as HTML), `lines`;
    `fold=True` shows it on request, `long=True`, and many rows, on a narrow screen alone; `cards=True`: each row is a card on a narrow screen; `pills` stand above the page, `headline` before its conclusion. `id`: what a link on the page leads to. `pill`: a
    verdict before the title, with `text`, `kind` and `sign`. `parts`: more of such blocks below it, without their titles."""
    return {"title": title, **parts}


def cell(text: Any, href: str = "", kind: str = "", sign: str = "") -> dict[str, str]:
    """A table cell with a link, or of a class: `good`, `alike`, `fair`, `bad`, `soft`, `best`, `digest`,
    `n`. sign: stands before the text, so that colour is not all that tells it apart."""
    return {"text": number(text), "href": href, "kind": kind, "sign": sign}


def pills(sections: Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    """What these blocks put above their page."""
    return [pill for block in sections for pill in block.get("pills", ())]


def headed(sections: Iterable[dict[str, Any]], said: str) -> str:
    """`said` below what these blocks put before it (`headline`), a line each."""
    return "\n".join([*filter(None, (block.get("headline") for block in sections)), said])


def grouped(value: Any) -> Any:
    """A whole number in groups of three digits; anything else as it is."""
    return cell(f"{value:,}", kind="n") if type(value) is int else value


def digest(value: Any) -> Any:
    """A whole digest by its first digits, which no narrow screen breaks; anything else as it is."""
    whole = isinstance(value, str) and DIGEST.fullmatch(value)
    return cell(f"{value[:DIGITS]}...", kind="digest") if whole else value


def soundness(block: dict[str, Any]) -> dict[str, Any]:
    """The section of a `soundness` block of `result.json`."""
    rows = block["paths"]
    twin = any("(twin)" in row["path"] for row in rows)
    narrow, whole = ([r for r in rows if bool(r.get("narrow")) is one] for one in (True, False))
    exact = any(" in float64" in row["path"] for row in whole)
    told = (
        "Plain cached runs beside the same model without a cache, each row alone: the largest difference of any logit, "
        f"and what rounding explains{' (in float64 that of this very model, times 16)' * exact}."
    )
    if narrow:
        told += (
            " Marked *: what float64 rounds to is not known here, so what float32 would is allowed; a fault that moves "
            "logits by less is not seen there."
        )
    if twin:
        told += (
            " Twin: the model's own class and weights, as few of its layers as have one of each kind, where float64 of "
            "the whole is dear."
        )
    return section(
        "Is the yardstick sound?",
        text=told,
        columns=["plain cached run", "difference", "explained", ""],
        rows=[
            [
                f"{r['path']}{' *' * bool(r.get('narrow'))}",
                r["error"],
                r["bound"],
                within(r["error"], r["bound"]),
            ]
            for r in rows
        ],
    )


def within(error: Any, allowed: Any) -> Any:
    """Whether an error is within what is allowed, as a cell; empty where nothing is known."""
    if error is None or allowed is None:
        return ""
    good = error <= allowed
    sign = "\u2713" if good else "\u00d7"
    return cell("within" if good else "beyond", kind="good" if good else "bad", sign=sign)


def page(
    title: str,
    sections: list[dict[str, Any]],
    verdict: str = "",
    reason: str = "",
    good: bool | str = True,
    links: list[tuple[str, str]] | None = None,
    answers: list[dict[str, str]] | None = None,
    under: str = "",
    pills: list[dict[str, str]] | None = None,
    meant: Mapping[str, str] | None = None,
) -> str:
    """The page as text. Everything but our own SVG is escaped. verdict: stands before `reason`, in its own
    colour and with its sign, which is a line and those that stand smaller below it; good: the colour of any other words there, or whether they are good news.
    links: `(name, target)` below. answers: what was said, with `text`, `said` and `kind`. under: what
    stands below the title. pills: several verdicts, each with `text`, `kind` and `sign`, in place of the one. meant:
    what a word means on this page alone, as `glossary.of_result` has it."""
    verdict = "" if pills else verdict
    blocks = [_whole(block) for block in sections]
    tone = good if isinstance(good, str) else "good" if good else "bad"
    if verdict in SIGNS and not isinstance(good, str):
        tone = kind(verdict)
    outcome = ", ".join(str(pill["text"]) for pill in pills or ()) or verdict
    return _template().render(
        title=title, tab=f"{outcome} \u00b7 {title}" if outcome else title,
        words=glossary.of_page(verdict, pills or (), sections, meant or {}), sections=blocks, style=_beside("page.css"), script=_beside("page.js"), verdict=verdict, tone=tone,
        reason=reason.splitlines() or [""] * bool(verdict),
        sign=SIGNS.get(verdict), links=links, answers=answers or [], under=under, pills=pills,
    )  # fmt: skip


def link(name: str, target: Path | str, folder: Path) -> list[tuple[str, str]]:
    """`(name, relative target)` from a page in `folder`, in a list; empty where nothing is there."""
    if ":/" in str(target) or not Path(target).exists():
        return []
    return [(name, quote(os.path.relpath(Path(target).absolute(), folder.absolute())))]


@cache
def _template() -> Any:
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"show": number, "width": _width, "prose": prose}
    return environment.from_string(TEMPLATE)


def prose(text: str) -> Any:
    """A text, escaped, with what stands between backticks as code."""
    from markupsafe import Markup, escape

    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))


@cache
def _beside(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")


def _whole(block: dict[str, Any]) -> dict[str, Any]:
    """A block and its parts, laid out."""
    parts = [_whole(part) for part in block.get("parts") or []]
    return block | _laid_out(block) | {"parts": parts}


def _laid_out(block: dict[str, Any]) -> dict[str, Any]:
    """How the table of a block stands on its page: `right`, the columns of numbers; `shape`, the classes
    of its width; `long`, whether it can be folded and sorted; `heads`, where each row becomes a card of its own on a narrow screen."""
    rows, columns = block.get("rows") or [], block.get("columns") or []
    prose = any(_width(_text(value)) in ("long", "words") for row in rows for value in row[1:])
    right = _numeric(rows)
    headed = 0 not in right  # a number is no heading of a card
    few = 3 if headed and (prose or _least(columns, rows) > NARROW) else 4
    cards = (len(columns) > few or bool(block.get("cards"))) and len(rows) <= CARDS
    wide = " many" if len(columns) > 4 else " some" if len(columns) > 2 else ""
    return {
        "right": right,
        "long": len(rows) > LONG or bool(block.get("long")),
        "shape": wide
        + " cards" * cards
        + " numbered" * (cards and _counted(rows))
        + " sorts" * (len(rows) > LONG),
        "heads": columns if cards else None,
    }


def _counted(rows: list[list[Any]]) -> bool:
    """Whether the first column holds a bare number, which says nothing without its heading."""
    return any(str(_text(row[0])).replace(".", "", 1).isdigit() for row in rows)


def _least(columns: list[str], rows: list[list[Any]]) -> int:
    """How many characters the table is wide at least: names and numbers stay on one line."""

    def least(value: Any) -> int:
        shown = number(_text(value))
        return max(map(len, [shown] if _width(value) in ("", "name") else shown.split()), default=0)

    return sum(
        max([*map(len, head.split()), *map(least, values)], default=0)
        for head, *values in zip(columns, *rows, strict=False)
    )


def _text(value: Any) -> Any:
    return value.get("text") if isinstance(value, dict) else value


def _width(value: Any) -> str:
    """The class of a cell of words: one word or two stay on a line, sentences get room."""
    if not isinstance(value, str):
        return ""
    return "long" if len(value) > 40 else "name" if len(value) < 20 else "words"


def _numeric(rows: list[list[Any]] | None) -> set[int]:
    """The columns that hold numbers: their heads stand on the right, like them."""
    columns = zip(*rows, strict=False) if rows else []
    return {
        place
        for place, values in enumerate(columns)
        if any(_is_number(v) for v in values)
        and all(v is None or v == "" or isinstance(v, bool) or _is_number(v) for v in values)
    }


def _is_number(value: Any) -> bool:
    if isinstance(value, dict):
        return value.get("kind") == "n"
    return isinstance(value, int | float) and not isinstance(value, bool)
