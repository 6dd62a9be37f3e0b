"""The report of one run: the conclusion, the picture, what was said, then figures and folds."""

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from harness.report import closing, diagnosis, kept, onward, plots, quantization
from harness.report.badge import badge, pills
from harness.report.html import cell, grouped, link, page, section
from harness.report.names import FORCED, itself, plain
from harness.snapshot.elements import DIGEST, called, spoken
from harness.snapshot.result import GOOD, counted, exit_code, recomputing, write_text
from harness.snapshot.words import Span, other, others, required

FAR = 10**6  # units in the last place; more say nothing
PART = 40  # characters of two texts, from where they first differ
TWICE = 2.0  # that of the run without a cache is what an error may be
GAPS = ("max_abs_diff", "mean_abs_diff", "kl_max", "kl_mean")  # what the noise floor has, too
PLAIN = re.compile(r"error against float64 (\S+), plain path (\S+)")
OWN = r"largest error of a logit against float64 \1; rounding's own, of the model run without a cache, \2"
DIGESTS = ("digest_before", "digest_after")


def write(path: Path, result: dict[str, Any]) -> Path:
    """The report of one experiment. Returns `path`."""
    sections = _comparison(path, result) if result.get("curves") else []
    sections += [
        *diagnosis.sections(result.get("diagnosis"), bool(result.get("quantization"))),
        *kept.sections(result),
        _text(result["text"], bool(result.get("pruned"))),
    ]
    if result.get("curves"):
        sections.append(_figures(result))
    if result.get("quantization"):
        sections.append(quantization.section_of(result["quantization"], kept.whole(result)))
    sections += [_cost(result), *_yardstick(result), *_details(result, path.parent)]
    words, colour = badge(result)
    said = PLAIN.sub(OWN, closing.said(result))
    if exit_code(result) and result.get("required"):
        said += f"\nRequired: {required(result)}"
    text = page(closing.title(result, path.parent), sections, words, said, colour,
                links(path.parent, result), answers(result["text"], bool(result.get("pruned"))), closing.under(result, path.parent), pills(result))  # fmt: skip
    write_text(path, text)
    return path


def answers(text: dict[str, Any], pruned: bool = False) -> list[dict[str, str]]:
    """Whether what was said holds the expected answer, and what the restored (or pruned) run chose; nothing where
    none was expected."""
    if "expected" not in text:
        return []
    runs = (
        ("Answer of the uninterrupted run:", "continuation"),
        (f"of the {onward.WHOSE[pruned][1]} run, fed the same tokens:", "restored"),
    )
    said = [(words, text[f"{run}_right"]) for words, run in runs]
    first = {"text": f"Expected: {text['expected']!r}.", "said": "", "kind": ""}
    return [first, *({"text": words, "said": "right" if right else "wrong",
                      "kind": "good" if right else "bad"} for words, right in said)]  # fmt: skip


def links(folder: Path, result: dict[str, Any]) -> list[tuple[str, str]]:
    """To the sweep that the run is a point of, to its own files and to the snapshot's manifest."""
    tables = (f"{result.get('task')}.json", "answers.jsonl", "questions.jsonl")
    snapshot = (result.get("snapshot") or {}).get("path")
    made = link("sweep", folder.parent / "sweep.html", folder)
    if not made and (folder.parent / "multirun.yaml").is_file():  # it is written after its points
        made = [("sweep", "../sweep.html")]
    if snapshot and "://" not in str(snapshot):
        made += link("manifest of the snapshot", Path(snapshot) / "manifest.json", folder)
    made += [("result.json", "result.json"), ("record.json", "record.json")]
    return made + [pair for name in tables for pair in link(name, folder / name, folder)]


def _comparison(path: Path, result: dict[str, Any]) -> list[dict[str, Any]]:
    curves = result["curves"]
    panels = plots.divergence(curves)
    pruned = bool(result.get("pruned"))
    names = ["pruned" if pruned and name == "restored" else name for name in curves]
    drawn = plots.together(panels, names)  # for a run's description in MLflow
    write_text(path.parent / "divergence.svg", drawn.replace("currentColor", "#7a828c"))
    return [
        section(
            "Pruned against the full cache" if pruned else "Restored against uninterrupted",
            text="Per step, beside what a full recompute and another prefill split do to the same "
            "logits with nothing wrong (the noise floor)." + _above(result),
            legend=plots.curve_names(names),
            panels=panels,
        )
    ]


def _above(result: dict[str, Any]) -> str:
    """Why a run is equivalent of which figures lie above the noise floor; nothing elsewhere."""
    floor, oracle = result["noise_floor"], result["oracle"]
    high = [k for k in GAPS if (result["metrics"].get(k) or 0) > (floor.get(k) or 0)]
    if result["verdict"] != "equivalent" or not high or oracle.get("restored") is None:
        return ""
    return (
        " Above the noise floor, which is that of a few plain runs and so the least that rounding does: "
        f"{', '.join(plain(k) for k in high)}. The verdict rests on the error against float64: "
        f"{oracle['restored']:.3g}, where the plain path's is {oracle['plain']:.3g} and twice that is allowed."
    )


def _figures(result: dict[str, Any]) -> dict[str, Any]:
    noise = result["noise_floor"]
    return section(
        "Figures",
        text=f"Required: {required(result)}" * ("required" in result),
        columns=["what", "measured", "noise floor"],
        rows=[
            *(
                [_step(k, measured), *(grouped(counted(k, v)) for v in (measured, noise.get(k)))]
                for k, measured in result["metrics"].items()
                if k != "max_ulp" or (measured or 0) <= FAR
            ),
            *itself(result),
        ],
    )


def _step(key: str, value: Any) -> str:
    """What a figure is called; of a step, which people count from 1, also where `result.json` has it."""
    name = plain(key)
    if value is None or counted(key, value) == value:
        return name
    return f"{name}, counted from 1 (index {value} in result.json)"


def _text(said: dict[str, Any], pruned: bool = False) -> dict[str, Any]:
    said = {**said, "continuation": said["streamed"]} if "streamed" in said else said
    parts = ("prompt", "expected", "continuation", "restored")
    first, second = onward.WHOSE[pruned]
    called = {"restored": f"{second}, what it chooses {FORCED}"}
    called |= {"continuation": f"continuation, {first}"} if "restored" in said else {}
    one, two = (str(said.get(k, "")) for k in parts[2:])
    places = other(one, two) if "restored" in said else None
    spans = dict(zip(parts[2:], others(one, two))) if places else {}
    lines = [
        f"{called.get(k, k)}: {marked(str(said[k]), spans.get(k, [])) or escape(_silent(said, k))}"
        for k in parts
        if k in said
    ]
    if places:
        start = places[0][0]
        lines.append(f"from the first other word on, the first of those marked above: {escape(repr(one[start:start + PART]))} against {escape(repr(two[start:start + PART]))}")  # fmt: skip
    return section("What was said", marked="\n".join(lines))


def _silent(said: dict[str, Any], part: str) -> str:
    """What stands where a part has no text: of ids that have none, the first of these."""
    key = {"continuation": "token_ids", "restored": "restored_ids"}.get(part, "")
    return onward.without_text(said.get(key) or []) or "(no text)"


def marked(text: str, spans: Sequence[Span] = ()) -> str:
    """`text` as HTML, the characters of each of `spans`, in order, marked, the first one most of all."""
    made, done = "", 0
    for place, (start, end) in enumerate(spans):
        first = ' class="first"' * (place == 0)
        made += f"{escape(text[done:start])}<mark{first}>{escape(text[start:end])}</mark>"
        done = end
    return made + escape(text[done:])


def _cost(result: dict[str, Any]) -> dict[str, Any]:
    known = {k: v for k, v in (result["size"] | result["mutation"]).items() if v is not None}
    after = (result.get("next") or {}).get("size") or {}
    told = {plain(k): v for k, v in known.items() if k not in DIGESTS}
    told |= _beside_the_full(result)
    told |= {f"next snapshot: {plain(k)}": v for k, v in after.items()}
    rows = [[k, f"{v:,}" if type(v) is int else v] for k, v in told.items()]
    return section(
        "Time and size",
        panels=[plots.timings(result["time_s"] | _compared(result)), _rows(rows)],
        text="Seconds, on a logarithmic scale, each timed once.",
    )


def _compared(result: dict[str, Any]) -> dict[str, float]:
    """The two times that a headline compares where it says how much faster a restore was."""
    again, back = recomputing(result)
    return {"back": back, "again": again} if again and back else {}


def _beside_the_full(result: dict[str, Any]) -> dict[str, str]:
    """Of a pruned state its tokens and its bytes as shares of the full cache's, by the names of both."""
    size, full = result["size"], kept.whole(result)
    tokens, few = size.get("tokens") or 0, size.get("kept_tokens") or 0
    told = {plain("kept_tokens"): kept.share(few, tokens)} if few < tokens else {}
    if told and full:
        told[plain("kv_bytes")] = f"{kept.share(size['kv_bytes'], full)} of the full cache"
    return told


def _rows(rows: list[list[Any]]) -> str:
    from harness.report.console import number

    lines = "".join(
        f'<tr><td>{escape(a)}</td><td class="n">{escape(number(b))}</td></tr>' for a, b in rows
    )
    return f'<table class="figures"><tbody>{lines}</tbody></table>'


def _yardstick(result: dict[str, Any]) -> list[dict[str, Any]]:
    if not result.get("curves"):
        return []
    pruned = bool(result.get("pruned"))
    free = pruned and result.get("required") not in (None, *GOOD)
    held = f" The pruned run is not held to rounding. Required: {required(result)}" * free
    return [
        section(
            "Against float64, and whether the yardstick is sound",
            text="Largest error of any logit against a float64 run of the same weights without a cache: of the "
            f"{'pruned' if pruned else 'restored'} run, and of the plain path, which is the model run without a cache. Below them: plain cached runs beside "
            "the same model without a cache, and how much of a difference rounding explains."
            + held,
            columns=["what", "error", "bound"],
            rows=[
                *(
                    [_error(k, pruned, free), v, None if free else _bound(k, result["oracle"])]
                    for k, v in result["oracle"].items()
                ),
                *([r["path"], r["error"], r["bound"]] for r in result["soundness"]["paths"]),
            ],
        )
    ]


def _error(key: str, pruned: bool, free: bool) -> str:
    """What an error against float64 is called. free: it is not held to rounding."""
    name = plain(key).removesuffix(" (2 is allowed)" * free)
    return name.replace("restored run", "pruned run") if pruned else name


def _bound(key: str, oracle: dict[str, Any]) -> Any:
    """What an error against float64 is held to: twice that of the run without a cache; nothing of what is measured."""
    least = {"restored": oracle.get("plain"), "ratio": 1.0}.get(key)
    return None if least is None else TWICE * least


def _details(result: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """What is wanted now and then, folded: elements with their digests, special tokens, environment."""
    digests = [[plain(k), cell(result["mutation"][k], kind="digest")] for k in DIGESTS if result["mutation"].get(k)]  # fmt: skip
    made = [
        section(
            "The 13 elements and their digests",
            text="Each digest (BLAKE3) covers the element's tensors and its document. Of an element that is kept "
            "as a digest, a refusal, task=diff and task=inspect name that of its weights, too.",
            columns=["#", "element", "kept as", DIGEST],
            rows=[
                [e["number"], e["name"], e["kept_as"], cell(e["digest"], kind="digest")]
                for e in result["elements"]
            ],
            fold=True,
        )
    ]
    if digests:
        made.append(section("Digests of the caller's cache", columns=["what", "digest"], rows=digests, fold=True))  # fmt: skip
    if account := result["text"].get("account"):
        rows = [[a["index"], a["token"], a["id"], a["why"]] for a in account]
        made.append(section("Special tokens", columns=["index", "token", "id", "why"], rows=rows, fold=True))  # fmt: skip
    if result.get("waived"):
        rows = [
            [spoken(d["element"]), called(d["element"], d["field"]), d["saved"], d["found"]]
            for d in result["waived"]
        ]
        made.append(section("Waived differences", columns=["element", "field", "saved", "found"], rows=rows))  # fmt: skip
    more = [f"python -m harness task=audit run={result['folder']}"]
    if path := (result.get("snapshot") or {}).get("path"):
        more.append(f"python -m harness task=diff a={path} b=ANOTHER-SNAPSHOT")
    return [*made, *closing.sections(result, folder, more)]
