"""The report of one run: the conclusion, the picture, what was said, then figures and folds."""

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from harness import machine
from harness.config import draws
from harness.present.messages import worded
from harness.report import footer, glossary, headline, loop
from harness.report.badge import badge, pills
from harness.report.html import cell, grouped, link, page, section, within
from harness.report.names import beside, itself_as, judged_by, plain
from harness.report.picture import plots
from harness.report.run import diagnosis, kept_tokens, quantization, yardstick
from harness.report.terminal import command
from harness.snapshot.elements import DIGEST, called, spoken
from harness.snapshot.result import (
    MOMENT,
    counted,
    exit_code,
    recomputing,
    timed_twice,
    times_faster,
    write_text,
)
from harness.snapshot.words import (
    FORCED,
    Span,
    altered,
    numbered,
    other,
    required,
    stepwise,
    streamed,
    unchosen,
)

FAR = 1000  # units in the last place; more are those of logits near zero, and say nothing
PART = 40  # characters of two texts, from where they first differ
GAPS = ("max_abs_diff", "mean_abs_diff", "kl_max", "kl_mean")  # what the noise floor has, too
PLAIN = re.compile(r"error against float64 (\S+), plain path (\S+)")
OWN = r"largest error of a logit against float64 \1; rounding's own, of the model run without a cache, \2"
REHEARSED = " A step that is not kept went before the first token, so it pays for no kernels."
DIGESTS = ("digest_before", "digest_after")


def write(path: Path, result: dict[str, Any]) -> Path:
    """The report of one experiment. Returns `path`."""
    sections = _comparison(path, result) if result.get("curves") else []
    sections += [
        *diagnosis.sections(result.get("diagnosis"), bool(result.get("quantization"))),
        *kept_tokens.sections(result),
        _text(result["text"], altered(result), bool(result.get("curves"))),
    ]
    if result.get("curves"):
        sections += figures(result)
    if "quantizer" in (result.get("quantization") or {}):  # by this run itself
        sections.append(quantization.section_of(result["quantization"], kept_tokens.whole(result)))
    sections += [_cost(result), *yardstick.sections(result), *_details(result, path.parent)]
    words, colour = badge(result)
    said = PLAIN.sub(OWN, headline.said(result))
    if exit_code(result) and result.get("required"):
        said += f"\nRequired: {required(result)}"
    if result["mutation"].get("mutated") and "loop" not in result:
        said += (
            "\nThe cache that it went on from was written into: it holds that past alone no more."
        )
    own = pills(result)
    if "loop" in result:
        steps = loop.trace(path.parent)
        said, own = loop.sentence(result, steps), loop.pills(result, steps)
        sections = [*loop.sections(result, steps), *sections]
    text = page(footer.title(result, path.parent), sections, words, said, colour,
                links(path.parent, result), answers(result["text"], altered(result)), footer.under(result, path.parent), own, glossary.of_result(result))  # fmt: skip
    write_text(path, text)
    return path


def answers(text: dict[str, Any], done: str = "") -> list[dict[str, str]]:
    """Whether what was said holds the expected answer, and what the restored run chose, called by what was `done` to its state;
    nothing where none was expected."""
    if "expected" not in text:
        return []
    runs = (
        ("Answer of the uninterrupted run:", "continuation"),
        (f"of the {command.whose(done)[1]} run, fed the same tokens:", "restored"),
    )
    said = [(words, text[f"{run}_right"]) for words, run in runs]
    first = {"text": f"Expected: {text['expected']!r}.", "said": "", "kind": ""}
    return [first, *({"text": words, "said": "right" if right else "wrong",
                      "kind": "good" if right else "bad"} for words, right in said)]  # fmt: skip


def links(folder: Path, result: dict[str, Any]) -> list[tuple[str, str]]:
    """To the sweep that the run is a point of, to its own files and to the snapshot's manifest."""
    own = f"{result.get('task')}.json"
    tables = dict.fromkeys(
        (own, "bench.json", "claims.json", "answers.jsonl", "questions.jsonl", loop.TRACE)
    )
    snapshot = (result.get("snapshot") or {}).get("path")
    made = link("sweep", folder.parent / "sweep.html", folder)
    if not made and (folder.parent / "multirun.yaml").is_file():  # it is written after its points
        made = [("sweep", "../sweep.html")]
    after = (result.get("next") or {}).get("path")
    called = "manifest of what it goes on from" if after else "manifest of the snapshot"
    for name, place in ((called, snapshot), ("manifest of what it wrote", after)):
        if place and "://" not in str(place):
            made += link(name, Path(place) / "manifest.json", folder)
            made += footer.origin(Path(place), folder)
    made += [("result.json", "result.json"), ("record.json", "record.json")]
    return made + [pair for name in tables for pair in link(name, folder / name, folder)]


def _comparison(path: Path, result: dict[str, Any]) -> list[dict[str, Any]]:
    curves = result["curves"]
    panels = plots.divergence(curves)
    own = altered(result) or "restored"
    names = [own if name == "restored" else name for name in curves]
    drawn = plots.together(panels, names)  # for a run's description in MLflow
    write_text(path.parent / "divergence.svg", drawn.replace("currentColor", "#7a828c"))
    return [
        section(
            beside(result),
            text="Per step, beside what a full recompute and another prefill split do to the same "
            "logits with nothing wrong (the noise floor)." + _above(result),
            legend=plots.curve_names(names),
            panels=panels,
        )
    ]


def _above(result: dict[str, Any]) -> str:
    """What a reader of the curves asks: which of its steps read a text, and why a noise path lies at nothing."""
    text, curves = result.get("text") or {}, result["curves"]
    read, made, count = text.get("read"), text.get("steps"), len(curves["restored"]["kl"])
    told = ""
    if read and made is not None:
        more = f", step {count} proves what was stored" * (count > read + made)
        told += f" Steps 1 to {read} read the text, {made} more were generated{more}. {unchosen(result)}".rstrip()
    same = [name for name, curve in curves.items() if name != "restored" and not any(curve["max_abs_diff"])]  # fmt: skip
    if same:
        paths = " and ".join(name.removeprefix("noise: ") for name in same)
        told += f" Bit-equal to the uninterrupted run, so at 0 in every step: {paths}."
    return told + _high(result)


def _high(result: dict[str, Any]) -> str:
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


def figures(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The figures beside the noise floor, and of a state that was pruned or quantized how it came back."""
    noise, deciding = result["noise_floor"], judged_by(result)
    told = [
        f"Required: {required(result).rstrip('.')}." if "required" in result else "",
        f"Judged by: {deciding}." * bool(deciding),
    ]
    made = section(
        "Figures",
        text=" ".join(filter(None, told)),
        columns=["what", "measured", "noise floor"],
        rows=[
            [_step(k, measured), *(grouped(counted(k, v)) for v in (measured, noise.get(k)))]
            for k, measured in result["metrics"].items()
            if k != "max_ulp" or (measured or 0) <= FAR
        ]
        + [[plain(key), grouped(value), ""] for key, value in draws.figures(result).items()],
    )
    return [made, *restored_as_saved(result)]


def _step(key: str, value: Any) -> str:
    """What a figure is called; of a step, which people count from 1, also where `result.json` has it."""
    name = plain(key)
    if value is None or counted(key, value) == value:
        return name
    return f"{name}, counted from 1 (index {value} in result.json)"


def _text(said: dict[str, Any], done: str = "", judged: bool = True) -> dict[str, Any]:
    said, without = numbered(said), said.get("without_text") or []
    said |= {part: "".join(pieces) for part, pieces in (said.get("pieces") or {}).items()}
    if placed := said.get("placed"):  # which nobody typed
        said = {**said, "prompt": str(said["prompt"]).removeprefix(placed)}
    parts = ("prompt", "read", "expected", "continuation", "restored")
    if "streamed" in said:
        read, answer = streamed(said)
        said = {**said, "continuation": answer, "read": read}
        said = {k: v for k, v in said.items() if k != "read" or v}
    else:
        said = {k: v for k, v in said.items() if k != "read"}
    first, second = command.whose(done)
    called = {"restored": f"{second}, what it chooses {FORCED}", "read": "then read"}
    called |= {"prompt": f"prompt, {said['taken']}"} if "taken" in said else {}
    called |= {"continuation": f"continuation, {first}"} if "restored" in said else {}
    one, two = (str(said.get(k, "")) for k in ("continuation", "restored"))
    places = other(one, two) if "restored" in said else None
    spans = dict(zip(("continuation", "restored"), stepwise(said, one, two))) if places else {}
    lines = [
        f"{called.get(k, k)}: {marked(str(said[k]), spans.get(k, [])) or escape(_silent(said, k))}"
        for k in parts
        if k in said
    ]
    if places:
        steps = [part[:1] for part in spans.values()]
        starts = [part[0][0] for part in steps if part] if all(steps) else [places[0][0]] * 2
        cut = [
            f"{text[start : start + PART]}{'...' * (len(text) > start + PART)}"
            for start, text in zip(starts, (one, two))
        ]
        lines.append(f"from where they part: {escape(repr(cut[0]))} against {escape(repr(cut[1]))}")
    ids = said.get("token_ids") or []
    note = command.of_ids(ids, "said", judged and said.get("restored_ids", ids) == ids, without)
    text = f"{note[0].upper()}{note[1:]}." if note else ""
    return section("What was said", text=text, marked="\n".join(lines))


def _silent(said: dict[str, Any], part: str) -> str:
    """What stands where a part has no text: of ids that have none, the first of these."""
    key = {"continuation": "token_ids", "restored": "restored_ids"}.get(part, "")
    return command.of_ids(list(dict.fromkeys(said.get(key) or [])), "") or "(no text)"


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
    told |= kept_tokens.beside_the_full(result)
    told |= {f"next snapshot: {plain(k)}": v for k, v in after.items()}
    rows = [[k, f"{v:,}" if type(v) is int else v] for k, v in told.items()]
    return section(
        "Time and size",
        panels=[plots.timings(_times(result)), _rows(rows)],
        text=f"On a logarithmic scale, each timed once.{REHEARSED * ('loop' in result)}{_price(result)}",
    )


def _price(result: dict[str, Any]) -> str:
    """What a restore took beside a prefill, whichever is faster; empty where nothing was restored."""
    again, back = recomputing(result)
    if not again or not back:
        return ""
    short = f" Of less than {MOMENT:g} s nothing is concluded." * (times_faster(result) is None)
    faster = ", the faster of two prefills" * timed_twice(result)
    return f" Brought back in {machine.seconds(back)}, recomputed in {machine.seconds(again)}{faster}.{short}"


def _times(result: dict[str, Any]) -> dict[str, Any]:
    """What was timed, with the restore that a headline compares where it says how much faster that was. What it is compared
    with is one of the prefills: where there were two of the same tokens, both are rows already."""
    (again, back), twice = recomputing(result), timed_twice(result)
    two = {"back": back} | ({} if twice else {"prefilled": again}) if again and back else {}
    return {k: v for k, v in result["time_s"].items() if twice or not two or k != "recompute"} | two


def _rows(rows: list[list[Any]]) -> str:
    from harness.report.terminal.console import number

    lines = "".join(
        f'<tr><td>{escape(a)}</td><td class="n">{escape(number(b))}</td></tr>' for a, b in rows
    )
    return f'<table class="figures"><tbody>{lines}</tbody></table>'


def restored_as_saved(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Of a pruned or a quantized state how far it goes on as it was before it was saved, under another cache, and what
    is allowed; nothing where nobody measured it."""
    block = result.get("itself") or {}
    if not block.get("cache"):
        return []
    saved = block.get("against") == "saved"
    name = f"largest difference of a logit beside {itself_as(block).rstrip(',')}, under cache={block['cache']}"
    return [
        section(
            "Restored as it was saved?" if saved else "The same in another cache?",
            text=f"{str(block['verdict']).upper()}: {worded(block['reason'])}.",
            columns=["what", "measured", "allowed", ""],
            rows=[
                [
                    name,
                    block["max_abs_diff"],
                    block["noise"],
                    within(block["max_abs_diff"], block["noise"]),
                ]
            ],
        )
    ]


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
    return [*made, *footer.sections(result, folder, footer.onward(result))]
