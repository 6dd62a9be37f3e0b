"""`report.html`: one self-contained page, nothing fetched, readable in light and dark, at any width."""

import os
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness.report.badge import SIGNS, kind
from harness.report.console import number

TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{{ style | safe }}</style></head>
<body><h1>{{ title }}</h1>
{% if verdict or reason %}<p class="conclusion">{% if verdict %}<span class="verdict {{ tone }}">
{%- if sign %}<i aria-hidden="true">{{ sign }}</i> {% endif %}{{ verdict }}</span>
{% endif %}{{ reason }}</p>{% endif %}
{% if answers %}<p class="answer">{% for line in answers %}<span>{{ line.text }} <b class="{{ line.kind }}">{{ line.said }}</b></span>{% endfor %}</p>{% endif %}
{% if links %}<p class="links">{% for name, target in links %}<a href="{{ target }}">{{ name }}</a>
{% endfor %}</p>{% endif %}
{% macro cells(row, right) %}{% for cell in row %}{% if cell is mapping %}<td class="{{ cell.kind }}">
{%- if cell.sign %}<i aria-hidden="true">{{ cell.sign }}</i> {% endif %}{% if cell.href %}<a href="{{ cell.href }}">{{ cell.text }}</a>{% else %}{{ cell.text }}{% endif %}</td>
{%- else %}<td{% if loop.index0 in right %} class="n"{% elif cell is string and cell | length > 40 %} class="long"{% elif cell is string and cell | length < 20 %} class="name"{% endif %}>{{ cell | show }}</td>
{%- endif %}{% endfor %}{% endmacro %}
{% for section in sections %}{% if section.fold %}<details><summary>{{ section.title }}</summary>{% else %}<h2>{{ section.title }}</h2>{% endif %}
{% if section.text %}<p class="soft">{{ section.text }}</p>{% endif %}
{% if section.legend %}<p class="legend">{{ section.legend | safe }}</p>{% endif %}
{% if section.panels %}<div class="panels">{% for panel in section.panels %}<figure>{{ panel | safe }}</figure>{% endfor %}</div>{% endif %}
{% if section.svg %}<div class="wide">{{ section.svg | safe }}</div>{% endif %}
{% if section.rows %}<div class="wide rows{% if section.columns | length > 4 %} many{% elif section.columns | length > 2 %} some{% endif %}"><table><thead><tr>{% for c in section.columns %}<th{% if loop.index0 in section.right %} class="n"{% endif %}>{{ c }}</th>
{%- endfor %}</tr></thead><tbody>{% for row in section.rows %}<tr>{{ cells(row, section.right) }}</tr>
{% endfor %}</tbody></table></div>{% elif section.columns and not (section.panels or section.svg or section.text) %}<p class="soft">None.</p>{% endif %}
{% if section.pre %}<pre>{{ section.pre }}</pre>{% endif %}
{% if section.fold %}</details>{% endif %}
{% endfor %}</body></html>
"""


def section(title: str, **parts: Any) -> dict[str, Any]:
    """One block of a page, all of its parts optional: `text`, `legend` and `panels` (pictures beside
    one another), `svg`, `columns` with `rows`, `pre`; `fold=True` shows it on request."""
    return {"title": title, **parts}


def cell(text: Any, href: str = "", kind: str = "", sign: str = "") -> dict[str, str]:
    """A table cell with a link, or of a class: `good`, `alike`, `fair`, `bad`, `soft`, `best`, `digest`,
    `n`. sign: stands before the text, so that colour is not all that tells it apart."""
    return {"text": number(text), "href": href, "kind": kind, "sign": sign}


def soundness(block: dict[str, Any]) -> dict[str, Any]:
    """The section of a `soundness` block of `result.json`."""
    return section(
        "Is the yardstick sound?",
        text="Plain cached runs beside the same model without a cache, each row alone: the "
        "largest difference of any logit, and what rounding explains.",
        columns=["plain path", "error", "bound"],
        rows=[[r["path"], r["error"], r["bound"]] for r in block["paths"]],
    )


def page(
    title: str,
    sections: list[dict[str, Any]],
    verdict: str = "",
    reason: str = "",
    good: bool | str = True,
    links: list[tuple[str, str]] | None = None,
    answers: list[dict[str, str]] | None = None,
) -> str:
    """The page as text. Everything but our own SVG is escaped. verdict: stands before `reason`, in its own
    colour and with its sign; good: the colour of any other words there, or whether they are good news.
    links: `(name, target)` below. answers: what was said, with `text`, `said` and `kind`."""
    blocks = [{**block, "right": _numeric(block.get("rows"))} for block in sections]
    tone = good if isinstance(good, str) else "good" if good else "bad"
    if verdict in SIGNS and not isinstance(good, str):
        tone = kind(verdict)
    return _template().render(
        title=title, sections=blocks, style=_style(), verdict=verdict, reason=reason, tone=tone,
        sign=SIGNS.get(verdict), links=links, answers=answers or [],
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
    environment.filters["show"] = number
    return environment.from_string(TEMPLATE)


@cache
def _style() -> str:
    return Path(__file__).with_name("page.css").read_text("utf-8")


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
