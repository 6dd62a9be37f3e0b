"""`report.html`: one self-contained page, nothing fetched, readable in light and dark."""

from pathlib import Path
from typing import Any

from harness.report import diagnosis, plots, quantization
from harness.report.console import number
from harness.snapshot.result import write_text

STYLE = """
:root { color-scheme: light dark; --ink: #1a1d21; --soft: #5b6470; --line: #d8dde3; --page: #fff;
  --good: #17794f; --bad: #b3303f; --fair: #9a6700; --panel: #f5f7f9 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #9aa4b0; --line: #363d46;
  --page: #14171b; --good: #4cc38a; --bad: #f07a88; --fair: #e3b341; --panel: #1c2026 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 62rem; margin: 2rem auto; padding: 0 1.2rem }
h1 { font-size: 1.4rem; margin-bottom: .2rem } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem }
p { margin: .4rem 0 } .soft { color: var(--soft) }
.verdict { display: inline-block; font-weight: 650; padding: .1rem .7rem; border-radius: 1rem;
  border: 2px solid currentColor } .good { color: var(--good) } .bad { color: var(--bad) }
.wide { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .2rem .9rem .2rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top } th { color: var(--soft); font-weight: 500 }
td.n { text-align: right; white-space: nowrap } td a { white-space: nowrap } td.long { min-width: 22rem } code, pre { font: 13px/1.45 ui-monospace, monospace }
pre { background: var(--panel); padding: .7rem; border-radius: .4rem; overflow-x: auto;
  white-space: pre-wrap } svg { width: 100%; min-width: 40rem; height: auto; display: block }
td:last-child:not(.long) { min-width: 11rem } a { color: inherit }
@media (min-width: 66rem) { .rows { width: max-content; min-width: 100%; max-width: calc(50vw + 28rem) } }
td.good, td.bad, td.fair { font-weight: 600 } td.fair { color: var(--fair) }
"""

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{{ style }}</style></head>
<body><h1>{{ title }}</h1>
{% if verdict %}<p><span class="verdict {{ 'good' if good else 'bad' }}">{{ verdict }}</span>
<span class="soft">{{ reason }}</span></p>{% endif %}
{% for section in sections %}<h2>{{ section.title }}</h2>
{% if section.text %}<p class="soft">{{ section.text }}</p>{% endif %}
{% if section.svg %}<div class="wide">{{ section.svg | safe }}</div>{% endif %}
{% if section.rows %}<div class="wide rows"><table><thead><tr>{% for c in section.columns %}<th>{{ c }}</th>
{% endfor %}</tr></thead><tbody>{% for row in section.rows %}<tr>{% for cell in row %}
{% if cell is mapping %}<td class="{{ cell.kind }}">{% if cell.href %}<a href="{{ cell.href }}">{{ cell.text }}</a>{% else %}{{ cell.text }}{% endif %}</td>
{% else %}<td{% if cell is number and cell is not boolean %} class="n"{% elif cell is string and cell | length > 40 %} class="long"{% endif %}>{{ cell | show }}</td>{% endif %}
{% endfor %}</tr>{% endfor %}</tbody></table></div>{% endif %}
{% if section.pre %}<pre>{{ section.pre }}</pre>{% endif %}
{% endfor %}</body></html>
"""


def section(title: str, **parts: Any) -> dict[str, Any]:
    """One block of a page: `text`, `svg`, `columns` with `rows`, `pre`; all optional."""
    return {"title": title, **parts}


def cell(text: Any, href: str = "", kind: str = "") -> dict[str, str]:
    """A table cell with a link, or coloured: `kind` is `good`, `fair` or `bad`."""
    return {"text": number(text), "href": href, "kind": kind}


def soundness(block: dict[str, Any]) -> dict[str, Any]:
    """The section of a `soundness` block of `result.json`."""
    return section(
        "Is the yardstick sound?",
        text="Plain cached runs beside the same model without a cache, each row alone: the "
        "largest difference of any logit, and what rounding explains.",
        columns=["plain path", "error", "bound"],
        rows=[[r["path"], r["error"], r["bound"]] for r in block["paths"]],
    )


def page(title: str, sections: list[dict[str, Any]], verdict: str = "", reason: str = "", good: bool = True) -> str:  # fmt: skip
    """The page as text. Everything but our own SVG is escaped."""
    from jinja2 import Environment

    environment = Environment(autoescape=True)
    environment.filters["show"] = number
    return environment.from_string(PAGE).render(
        title=title, sections=sections, style=STYLE, verdict=verdict, reason=reason, good=good
    )


def write(path: Path, result: dict[str, Any]) -> Path:
    """The report of one experiment. Returns `path`."""
    where, said = result["environment"], result["text"]
    sections = _comparison(result) if result.get("curves") else []
    if sections:  # a picture of its own for a run's description in MLflow
        drawn = sections[0]["svg"].replace("currentColor", "#7a828c")
        write_text(path.parent / "divergence.svg", drawn)
    sections += diagnosis.sections(result.get("diagnosis"))
    if result.get("quantization"):
        sections.append(quantization.section_of(result["quantization"]))
    sections += [
        section(
            "The 13 elements",
            columns=["#", "element", "kept as", "digest (BLAKE3)"],
            rows=[[e["label"], e["name"], e["kept_as"], e["digest"]] for e in result["elements"]],
        ),
        section("Time", svg=plots.timings(result["time_s"])),
        section(
            "Mutation and size",
            columns=["what", "value"],
            rows=[[k, v] for k, v in {**result["mutation"], **result["size"]}.items()],
        ),
        section(
            "Text",
            pre="\n".join(
                f"{k}: {said[k]}" for k in ("prompt", "continuation", "restored") if k in said
            ),
        ),
        section(
            "Special tokens",
            columns=["index", "token", "id", "why"],
            rows=[[a["index"], a["token"], a["id"], a["why"]] for a in said["account"]],
        ),
    ]
    if result.get("waived"):
        rows = [[d["element"], d["field"], d["saved"], d["found"]] for d in result["waived"]]
        sections.append(section("Waived differences", columns=["element", "field", "saved", "found"], rows=rows))  # fmt: skip
    facts = {**{k: v for k, v in where.items() if k not in ("versions", "git", "command")},
             **where["versions"], **{f"git {k}": v for k, v in where["git"].items()},
             "command": " ".join(where["command"])}  # fmt: skip
    sections.append(section("Environment", columns=["what", "value"], rows=[[k, v] for k, v in facts.items()]))  # fmt: skip
    good = result["verdict"] in ("exact", "equivalent", "unjudged")
    chosen = result["options"]
    title = f"{chosen['model']} / {chosen['cache']} / {chosen['save']}"
    said = result["conclusion"]
    if result["reason"] not in said:
        said = f"{said} ({result['reason']})"
    write_text(path, page(title, sections, result["verdict"], said, good))
    return path


def _comparison(result: dict[str, Any]) -> list[dict[str, Any]]:
    noise = result["noise_floor"]
    return [
        section(
            "Restored against uninterrupted",
            text="KL and largest difference per step, beside what a full recompute and another "
            "prefill split do to the same logits with nothing wrong (the noise floor).",
            svg=plots.divergence(result["curves"]),
            columns=["metric", "measured", "noise floor"],
            rows=[[k, v, noise.get(k)] for k, v in result["metrics"].items()],
        ),
        section(
            "Against float64",
            text="Largest error of the restored run, and of the run without a cache in the working "
            "dtype, against a float64 run of the same weights; `equivalent` allows twice the latter.",
            columns=["what", "value"],
            rows=[[k, v] for k, v in result["oracle"].items()],
        ),
        soundness(result["soundness"]),
    ]
