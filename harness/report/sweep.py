"""`sweep.csv` and `sweep.html`: one row per point, the verdict grid, size, speed, divergence."""

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

from harness.report import plots
from harness.report.html import cell, page, section
from harness.snapshot.record import PENDING
from harness.snapshot.result import METRICS, TIMES, worse

SECONDS = tuple(f"{k}_s" for k in TIMES)
SIZES = ("tokens", "kept_tokens", "kv_bytes", "stored_bytes")
KIND = {"exact": "good", "equivalent": "good", "drifted": "fair", "diverged": "bad",
        "unsound": "bad", "refused": "bad", "failed": "bad"}  # fmt: skip


def rows(points: list[Path]) -> list[dict[str, Any]]:
    """One flat row per finished point folder, the same columns in each."""
    found = [_row(p) for p in points]
    columns = list(dict.fromkeys(key for row in found for key in row))
    return [{key: row.get(key) for key in columns} for row in found]


def _row(folder: Path) -> dict[str, Any]:
    import yaml

    result = json.loads((folder / "result.json").read_text("utf-8"))
    overrides = yaml.safe_load((folder / ".hydra" / "overrides.yaml").read_text("utf-8")) or []
    given = dict(str(o).lstrip("+~").partition("=")[::2] for o in overrides)
    verdict, required = result["verdict"], result.get("required")
    code = 1 if required and verdict in KIND and worse(verdict, required) else 0
    return {
        "point": folder.name,
        "verdict": verdict,
        "exit_code": result.get("exit_code", code),
        "reason": result["reason"],
        **(result.get("options") or {}),
        **{k: v for k, v in given.items() if k not in (result.get("options") or {})},
        **{k: (result.get("metrics") or {}).get(k) for k in METRICS},
        "error_ratio": (result.get("oracle") or {}).get("ratio"),
        "noise_kl_max": (result.get("noise_floor") or {}).get("kl_max"),
        "mutated": (result.get("mutation") or {}).get("mutated"),
        "bytes_copied_per_token": (result.get("mutation") or {}).get("bytes_copied_per_token"),
        **{k: (result.get("size") or {}).get(k) for k in SIZES},
        **{k: (result.get("time_s") or {}).get(k.removesuffix("_s")) for k in SECONDS},
        "snapshot_id": (result.get("snapshot") or {}).get("id"),
        "mlflow_run_id": (result.get("mlflow") or {}).get("run_id"),
        "folder": result.get("folder", str(folder)),
    }


def read_csv(folder: Path) -> list[dict[str, str]]:
    """The rows of a `sweep.csv`, as text. Raises OSError."""
    with (folder / "sweep.csv").open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def as_text(found: list[dict[str, Any]]) -> list[dict[str, str]]:
    """`rows` as they read back from a CSV file."""
    return [{k: "" if v is None else str(v) for k, v in row.items()} for row in found]


def varied(found: list[dict[str, Any]]) -> list[str]:
    """The columns that were swept: options or overrides with more than one value."""
    measured = {"point", "verdict", "exit_code", "reason", "error_ratio", "noise_kl_max", "mutated",
                "bytes_copied_per_token", "snapshot_id", "mlflow_run_id", "folder",
                *METRICS, *SIZES, *SECONDS}  # fmt: skip
    return [k for k in found[0] if k not in measured and len({str(r[k]) for r in found}) > 1]


def write(folder: Path, found: list[dict[str, Any]], total: int | None) -> None:
    """Both files, into the sweep's directory."""
    with (folder / "sweep.csv").open("w", newline="", encoding="utf-8") as handle:
        writer = csv.DictWriter(handle, list(found[0]))
        writer.writeheader()
        writer.writerows(found)
    axes = varied(found)
    sections = [*_grid(found, axes), *_pictures(found, axes), _table(found, axes)]
    if waiting := pending(folder, found):
        told = f"Points {', '.join(waiting)}. Upload them: {again(folder)}"
        sections.append(section("Not yet on the tracking server", text=told))
    bad = sum(int(r["exit_code"]) != 0 for r in found)
    said = f"{len(found)} of {total} points" if total else f"{len(found)} points"
    verdict = _headline(found, bad, total or len(found))
    reason = f"{said}: " + ", ".join(f"{n} {v}" for v, n in _counts(found).items())
    kinds = {KIND.get(str(r["verdict"]), "good") for r in found}
    good = not bad and len(found) >= (total or 0) and "bad" not in kinds
    (folder / "sweep.html").write_text(page(f"Sweep {folder.name}", sections, verdict, reason, good), "utf-8")  # fmt: skip


def _headline(found: list[dict[str, Any]], bad: int, total: int) -> str:
    """What the points came to, in one line. A sweep that asked for little says what it got, not only
    that it got what it asked for."""
    if bad or len(found) < total:
        return f"{len(found) - bad} of {total} as required"
    return ", ".join(f"{count} {verdict}" for verdict, count in _counts(found).items())


def markdown(found: list[dict[str, Any]]) -> str:
    """What was varied and what came out, point by point: the parent run's description."""
    axes = varied(found)
    head = ["point", *axes, "verdict", "reason"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for r in found[:200]:
        told = str(r["reason"]).splitlines()[0][:120] if r["reason"] else ""
        cells = [r["point"], *(r[a] for a in axes), r["verdict"], told]
        lines.append(f"| {' | '.join(str(c).replace('|', '/') for c in cells)} |")
    return "\n".join(lines)


def pending(folder: Path, found: list[dict[str, Any]]) -> list[str]:
    """The points that the tracking server does not have yet."""
    return [r["point"] for r in found if (folder / r["point"] / PENDING).exists()]


def again(folder: Path) -> str:
    """The command that runs what is missing in a sweep and uploads what is pending."""
    return f"python -m harness -m resume={_here(folder)}"


def _here(path: Path) -> Path:
    """Relative to the working directory where it lies below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def closing(
    folder: Path, found: list[dict[str, Any]], total: int | None, aged: list[str]
) -> list[str]:
    """What the console says at the end. aged: points that other code than today's has run."""
    lines = ["", f"verdicts:     {', '.join(f'{n} {v}' for v, n in _counts(found).items())}"]
    failed = [r for r in found if r["verdict"] in ("failed", "refused")]
    lines += [f"  point {r['point']} {r['verdict']}: {str(r['reason']).splitlines()[0][:150]}" for r in failed[:20]]  # fmt: skip
    place = _here(folder)
    if total and len(found) < total:
        lines.append(f"missing:      {total - len(found)} of {total}; run them with `{again(folder)}`")  # fmt: skip
    if waiting := pending(folder, found):
        lines.append(f"not uploaded: points {', '.join(waiting)}; `{again(folder)}` tries again")  # fmt: skip
    if aged:
        lines.append(f"other code:   points {', '.join(aged)} were run before the code changed; delete their folders and resume to run them again")  # fmt: skip
    return [*lines, f"table:        {place}/sweep.csv", f"page:         {place}/sweep.html"]


def _counts(found: list[dict[str, Any]]) -> dict[str, int]:
    counted = Counter(r["verdict"] for r in found)
    return {v: counted[v] for v in (*KIND, "done") if counted[v]}


def _grid(found: list[dict[str, Any]], axes: list[str]) -> list[dict[str, Any]]:
    """Verdicts, the first axis across, the others down; each links to its point's report."""
    if not axes:
        return []
    across, down = axes[0], axes[1:]
    columns = list(dict.fromkeys(str(r[across]) for r in found))
    lines: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in found:
        lines.setdefault(tuple(str(row[a]) for a in down), {})[str(row[across])] = cell(
            row["verdict"], f"{row['point']}/{_target(row)}", KIND.get(row["verdict"], "")
        )
    seen = [list(dict.fromkeys(str(r[a]) for r in found)) for a in down]
    order = sorted(lines, key=lambda key: [known.index(k) for known, k in zip(seen, key)])
    table = [[*key, *(lines[key].get(c, "") for c in columns)] for key in order]
    return [section("Verdicts", text=f"{across} across; every verdict links to its run.",
                    columns=[*down, *columns], rows=table)]  # fmt: skip


def _target(row: dict[str, Any]) -> str:
    return "result.json" if row["verdict"] in ("failed", "refused") else "report.html"


def _pictures(found: list[dict[str, Any]], axes: list[str]) -> list[dict[str, Any]]:
    measured = [r for r in found if r["stored_bytes"] and r["per_token_s"]]
    if not measured:
        return []
    group = next((a for a in axes if a in ("cache", "prune", "save")), axes[0] if axes else "cache")
    pruning = "prune" if "prune" in axes else group
    return [
        section(
            "Size against speed",
            text="Every point: bytes on disk, seconds per continued token and to save and load.",
            svg=plots.scatter(measured, [
                ("stored_bytes", "per_token_s", "Continue", "bytes on disk", "s per token"),
                ("stored_bytes", "save_s", "Save", "bytes on disk", "s"),
                ("stored_bytes", "load_s", "Load", "bytes on disk", "s"),
            ], "save" if "save" in axes else group),
        ),
        section(
            "Divergence against budget",
            text="How far the logits went, by the tokens that were kept; the noise floor is what a "
            "recompute does with nothing wrong.",
            svg=plots.scatter(measured, [
                ("kept_tokens", "kl_max", "Largest KL per step", "tokens kept", "nats"),
                ("kept_tokens", "max_abs_diff", "Largest logit difference", "tokens kept", "logits"),
                ("kept_tokens", "noise_kl_max", "Noise floor", "tokens kept", "nats"),
            ], pruning),
        ),
    ]  # fmt: skip


def _table(found: list[dict[str, Any]], axes: list[str]) -> dict[str, Any]:
    keys = ("kl_max", "max_abs_diff", "top1_agreement", "error_ratio", "stored_bytes", "save_s", "load_s", "per_token_s")  # fmt: skip
    table = [
        [cell(r["point"], f"{r['point']}/{_target(r)}"), *(str(r[a]) for a in axes),
         cell(r["verdict"], "", KIND.get(r["verdict"], "")), *(r[k] for k in keys), r["reason"]]
        for r in found
    ]  # fmt: skip
    return section("Every point", columns=["point", *axes, "verdict", *keys, "reason"], rows=table)
