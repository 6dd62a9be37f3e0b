"""Does a second run say what the record says? Value by value, by each field's own `compare`: to the bit where the environment
is the same, otherwise `noise` within the floors that the audit measures."""

from collections.abc import Iterator, Mapping
from math import sqrt
from typing import Any

from harness.compare.soundness import FACTOR as SPREAD
from harness.present.messages import worded
from harness.results.record import compare_of
from harness.snapshot.elements import MODEL
from harness.snapshot.record import flat
from harness.snapshot.result import GOOD
from harness.task.audit.finding import Finding

Record = Mapping[str, Any]
# what may change the last bit; the rest of `environment` is reported, not decisive
DECISIVE = ("platform", "cpu", "cpu_capability", "gpu", "cuda", "device", "dtype", "threads",
            "attention_implementation", "deterministic", "matmul_precision",
            *(f"versions.{v}" for v in ("torch", "transformers", "tokenizers", "numpy", "safetensors")))  # fmt: skip
ROUNDED = ("kv_cache", "positions", "logits")  # elements that `rounding` compares number by number
VERSIONED = (
    "model_config",
    "kv_format",
    "tokenizer",
)  # which gain fields with another library version
WEIGHTS = ("token_embeddings", "layer_norm", "attention_weights")
JUDGED = ("experiment", "resume")  # tasks whose judged runs have every one of these blocks
BLOCKS = ("metrics", "noise_floor", "oracle", "soundness", "elements", "size", "time_s")
WHOLE = (
    "options",
    "metrics",
    "noise_floor",
    "oracle",
    "mutation",
    "size",
)  # no figure may be missing
GIVEN = ("options", "model", "environment", "required", "task")  # by the configuration
SALTED = ("snapshot.id", "known.snapshot_id", "next.digest")  # of the encrypted bytes
OPTIONAL = {"exit_code", "mlflow", "next"}
FORMLESS = (AttributeError, TypeError, LookupError, ValueError, ArithmeticError, RuntimeError)
FACTOR = 2.0  # of the noise floor: the record rounds as well as the second run
HEADERS = 0.05  # of the bytes stored
NOTHING = 2.0**-48  # nats; of a sum of probabilities in float64

SAME = "nothing that decides the bits has changed, and the second run says otherwise"
BEYOND = "more than rounding explains; changed since: {}"
OTHER_MODEL = "it was run again with another model than the record's: say where its weights are, model=path model.path=DIR"
CONFIGURED = "the recorded configuration does not give this"
TAKEN, ADDED = "every run writes this block", "a run of this configuration writes no such block"
CONTRADICTS = "the record's own figures say otherwise"


def changes(recorded: Record, again: Record) -> list[dict[str, Any]]:
    """What is different about the environments of two results: `what`, `recorded`, `found`, `decisive`."""
    one, two = recorded.get("environment"), again.get("environment")
    if not isinstance(one, Mapping) or not two:
        return []
    before, after = dict(flat(one)), dict(flat(two))
    return [
        {"what": key, "recorded": was, "found": now, "decisive": key in DECISIVE}
        for key in dict.fromkeys([*before, *after])
        if (was := before.get(key)) != (now := after.get(key)) and key not in ("command", "date")
    ]


def formed(findings: Iterator[Finding]) -> Iterator[Finding]:
    """What a comparison finds; where it breaks off, the record has not the form that a run gives it."""
    try:
        yield from findings
    except FORMLESS as problem:
        broken = f"{type(problem).__name__}: {problem}"[:200]
        yield Finding("result.json", "the blocks of a run", broken, "the record is malformed")


def compare(
    recorded: Record, again: Record, changed: list[dict[str, Any]], salted: bool = False
) -> Iterator[Finding]:
    """Everything in which the second run's result is not the recorded one.

    changed: from `changes`. salted: the snapshots are encrypted, so equal contents have other ids.
    """
    decisive = [c for c in changed if c["decisive"]]
    reasons = "; ".join(f"{c['what']} {c['recorded']} -> {c['found']}" for c in decisive)
    why = BEYOND.format(reasons) if decisive else SAME
    verdict = recorded.get("verdict")
    if verdict == again.get("verdict") == "failed" and "options" not in again:
        return  # neither had a sound configuration: nothing ran
    if _other_model(recorded, again, decisive):
        why = OTHER_MODEL
    if again.get("verdict") in ("failed", "refused") and verdict != again["verdict"]:
        yield Finding("verdict", verdict, again["verdict"], worded(again.get("reason")))
        return
    yield from _elements(recorded, again, decisive, why)
    for key in recorded.keys() - again.keys() - OPTIONAL:
        yield Finding(key, "a block", None, ADDED)
    for key in BLOCKS if again.get("task") in JUDGED else ():
        if again.get(key) and not recorded.get(key):
            yield Finding(key, recorded.get(key), "a block", TAKEN)
    if again.get("environment") and not recorded.get("environment"):
        yield Finding("environment", None, "a block", TAKEN)
    if again.get("itself") and not recorded.get("itself"):
        yield Finding("itself", None, "a block", TAKEN)
    for path, was, now in leaves(recorded, again):
        if path.startswith(("elements", "known.elements")) or (salted and path in SALTED):
            continue
        if decisive and (path.startswith("curves") or within(path, was, now, again)):
            continue
        configured = path.partition(".")[0] in GIVEN and why != OTHER_MODEL
        yield Finding(path, was, now, CONFIGURED if configured else why)
    if decisive:
        yield from _curves(recorded.get("curves") or {}, again.get("curves") or {}, _scale(again))
    yield from contradictions(recorded)


def leaves(was: Any, now: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """`(path, recorded, found)` of the values that are compared and differ. What the second run alone has came later."""
    free = bool(path) and compare_of(path) in ("time", "skip")
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in was:
            inner = f"{path}.{key}" if path else str(key)
            if key in now:
                yield from leaves(was[key], now[key], inner)
            elif path and was[key] is not None:
                yield from leaves(was[key], None, inner)
        for key in now.keys() - was.keys() if path in WHOLE else ():
            yield from leaves(None, now[key], f"{path}.{key}")
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, (one, two) in enumerate(zip(was, now, strict=True)):
            yield from leaves(one, two, f"{path}[{index}]")
    elif isinstance(was, list) and isinstance(now, list) and not free:
        yield f"{path}: how many", len(was), len(now)
    elif was != now and not free:
        yield path, was, now


def within(path: str, was: Any, now: Any, again: Record) -> bool:
    """Whether rounding explains that the value at `path` is `was` in the record and `now` in its second run."""
    kind = compare_of(path)
    if kind == "exact":
        return False
    block, _, key = path.partition(".")
    floor = dict(again.get("noise_floor") or {})
    if path in ("verdict", "itself.verdict"):
        return {was, now} <= set(GOOD)
    if block == "metrics":
        return explained(key, was, now, floor)
    if block == "itself" and key != "noise":
        return explained(key, was, now, floor | {"max_abs_diff": again["itself"].get("noise")})
    if not (_number(was) and _number(now)):
        missing = None in (was, now) and float not in (type(was), type(now))
        return kind == "noise" and (missing or type(was) is type(now))
    if type(was) is type(now) is int:  # a count that hangs on rounding
        return kind == "noise" and (not key.endswith("bytes") or abs(was - now) <= HEADERS * now)
    scale = _scale(again)
    if path == "noise_floor.nll_delta":  # at most what a logit is off by, either way
        return abs(was) <= SPREAD * max(floor.get("max_abs_diff") or 0.0, scale)
    if path in ("noise_floor.top1_agreement", "noise_floor.top5_overlap"):
        steps = [len(c["kl"]) for c in (again.get("curves") or {}).values()]
        return 0 <= 1 - was <= SPREAD * (1 - now) + 1 / max(steps, default=1)
    return close(was, now, scale, "kl" in key)


def explained(key: str, was: Any, now: Any, floor: Record) -> bool:
    """Whether the noise floor that the audit measured allows metric `key` to be `was` here and `now` there.

    A logit error of e moves a KL divergence by at most e * |p - q| <= e * sqrt(2 KL) (Pinsker), on top of the noise's own.
    """
    if key == "bitwise_equal":
        return True  # the verdict says whether that matters
    if key == "first_divergence":
        return floor.get(key) is not None
    if not (_number(was) and _number(now)):
        return False
    if key in ("top1_agreement", "top5_overlap"):
        share = floor.get(key)
        return bool(abs(was - now) <= FACTOR * (1 - (1.0 if share is None else share)))
    noise = abs(floor.get(key) or 0.0)
    if key in ("kl_mean", "kl_max", "nll_delta"):
        spread = 1.0 if key == "nll_delta" else min(1.0, sqrt(2 * max(abs(was), abs(now))))
        noise += (floor.get("max_abs_diff") or 0.0) * spread
    return bool(abs(was - now) <= FACTOR * noise)


def close(was: float, now: float, scale: float, divergence: bool) -> bool:
    """Within SPREAD of each other (a divergence is of the second order: within its square); or one of
    them nothing, since two orders of a sum may meet, and the other no more than rounding."""
    low, high = sorted((abs(was), abs(now)))
    if divergence:
        return high <= max(SPREAD**2 * low, NOTHING) or (low <= NOTHING and high <= scale**2)
    alike = high <= SPREAD * low and (was < 0) == (now < 0)
    return alike or (low == 0 and high <= scale)


def _curves(recorded: Any, again: Any, scale: float) -> Iterator[Finding]:
    """Per step, as many of them and as long; the noise about as high on average."""
    shapes = [[{k: len(v) for k, v in c.items()} for c in r.values()] for r in (recorded, again)]
    if shapes[0] != shapes[1]:
        yield Finding("curves", str(shapes[0]), str(shapes[1]), "other steps were compared")
        return
    for (name, was), now in zip(recorded.items(), again.values(), strict=True):
        for quantity, steps in was.items() if name != "restored" else ():
            one, two = _mean(steps), _mean(now[quantity])
            if one != two and not close(one, two, scale, quantity == "kl"):
                why = "on average more than rounding explains"
                yield Finding(f"curves.{name}.{quantity}", one, two, why)


def _elements(recorded: Record, again: Record, decisive: list[Any], why: str) -> Iterator[Finding]:
    """Digests of the 13 elements. What was computed in floating point may round elsewhere."""
    newer = any(c["what"].startswith("versions.") for c in decisive)
    free = (*(ROUNDED if decisive else ()), *(VERSIONED if newer else ()))
    for key in ("", "known"):
        sides = ((r.get(key) or {}) if key else r for r in (recorded, again))
        was, now = (side.get("elements") or [] for side in sides)
        if [e | {"digest": ""} for e in was] != [e | {"digest": ""} for e in now]:
            yield Finding(f"{key}.elements".strip("."), len(was), len(now), "other elements")
        digests = {e["name"]: e["digest"] for e in now}
        for entry in sorted(was, key=lambda e: e["name"] not in WEIGHTS):  # what all else hangs on
            name, digest, found = entry["name"], entry["digest"], digests.get(entry["name"])
            if digest != found and name not in free:
                yield Finding(f"element {entry.get('label', '')} {name}", digest, found, why)


def _other_model(recorded: Record, again: Record, decisive: list[Any]) -> bool:
    """Whether the model's elements differ, and what it computes: where that is the same, digests were edited."""
    was, now = (
        {e["name"]: e["digest"] for e in r.get("elements") or []} for r in (recorded, again)
    )
    names = WEIGHTS if decisive else MODEL
    others = any(n in was and n in now and was[n] != now[n] for n in names)
    return others and was.get("kv_cache") != now.get("kv_cache")


def contradictions(result: Record) -> Iterator[Finding]:
    """Figures of one result that cannot all hold, on any machine."""
    curves = result.get("curves") or {}
    for block in ("metrics", "noise_floor"):
        figures = result.get(block) or {}
        shown = [c for name, c in curves.items() if (name == "restored") == (block == "metrics")]
        for key, curve in (("max_abs_diff", "max_abs_diff"), ("kl_max", "kl")):
            steps = [v for c in shown for v in c.get(curve) or []]
            if steps and None not in steps and figures.get(key) not in (None, max(steps)):
                yield Finding(f"{block}.{key}", figures[key], max(steps), CONTRADICTS)
        share, first = figures.get("top1_agreement"), figures.get("first_divergence")
        if share is not None and (share == 1) != (first is None):
            yield Finding(
                f"{block}.first_divergence", first, f"top1_agreement {share}", CONTRADICTS
            )
        if figures.get("bitwise_equal") and figures.get("max_abs_diff"):
            yield Finding(f"{block}.bitwise_equal", True, figures["max_abs_diff"], CONTRADICTS)
    if (
        result.get("verdict") == "exact"
        and (result.get("metrics") or {}).get("bitwise_equal") is False
    ):
        yield Finding("verdict", "exact", "metrics.bitwise_equal false", CONTRADICTS)
    soundness, oracle = result.get("soundness") or {}, result.get("oracle") or {}
    paths = [p for p in soundness.get("paths") or [] if None not in (p["error"], p["bound"])]
    if soundness.get("sound") and any(p["error"] > p["bound"] for p in paths):
        yield Finding("soundness.sound", True, False, CONTRADICTS)
    ours, plain = oracle.get("restored"), oracle.get("plain")
    if ours is not None and plain and oracle.get("ratio") != ours / plain:
        yield Finding("oracle.ratio", oracle.get("ratio"), ours / plain, CONTRADICTS)
    mutation = result.get("mutation") or {}
    moved = mutation.get("digest_before") != mutation.get("digest_after")
    if mutation.get("mutated") is not None and moved and not mutation["mutated"]:
        yield Finding("mutation.digest_after", "another digest", "not mutated", CONTRADICTS)


def machine(result: Record, wanted: Any = None) -> Iterator[Finding]:
    """Whether the recorded machine can be: its device beside its GPU, its build of torch and the device that the
    configuration asks for (`wanted`)."""
    place = result.get("environment") or {}
    device = str(place.get("device") or "")
    if not device:
        return
    cuda, why = device.startswith("cuda"), f"no such machine: the device is {device}"
    for key in ("gpu", "cuda"):
        if (place.get(key) is not None) != cuda:
            yield Finding(f"environment.{key}", place.get(key), "a GPU's" if cuda else None, why)
    if wanted not in (None, "auto") and not device.startswith(str(wanted)):
        yield Finding("environment.device", device, wanted, CONFIGURED)
    if cuda and "+cpu" in str((place.get("versions") or {}).get("torch")):
        yield Finding(
            "environment.device", device, "cpu", "no such machine: torch is built for the CPU"
        )


def _scale(again: Record) -> float:
    """What rounding makes of a logit in the second run: the error of its uncached run."""
    scale = (again.get("soundness") or {}).get("scale") or {}
    return float((again.get("oracle") or {}).get("plain") or scale.get("error") or 0.0)


def _mean(curve: Any) -> float:
    numbers = [float(v) for v in curve if v is not None]
    return sum(numbers) / len(numbers) if numbers else 0.0


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
