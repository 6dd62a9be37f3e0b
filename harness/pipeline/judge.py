"""Judge a restored run: first the yardstick, then the measurement, all in the same run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import torch

from harness.compare import metrics as measure
from harness.compare.checks import FAILED, NOT_ASKED, PASSED, Check, failed, unasked
from harness.compare.diagnosis import Diagnosis
from harness.compare.identity import Difference
from harness.compare.soundness import Soundness
from harness.compare.verdict import FACTOR, decide, errors, same_tokens, tie
from harness.config import CompareConfig
from harness.model.loaded import Loaded
from harness.model.sampler import Sampler
from harness.pipeline import yardstick
from harness.pipeline.drive import Rollout
from harness.pipeline.float64 import unbranched
from harness.pipeline.logic import in_place, logic
from harness.pipeline.stored import alike, appended, stored
from harness.pipeline.way import Way, meant
from harness.present.conclusion import conclusion, on_purpose
from harness.present.messages import worded
from harness.results.reason import Reason
from harness.snapshot import history
from harness.snapshot.result import GOOD, UNJUDGED
from harness.snapshot.state import State
from harness.snapshot.words import altered

COMPOSED = 100.0  # no order of the same sums makes so much of an error
UNINTERRUPTED, ITSELF = "uninterrupted", "itself"
UNTOLD = (UNJUDGED, "unsound")
STRANGE = (
    "What the codes give back is no nearer to its own tokens than to others: a fault of the quantizer, or too few levels "
    "for these keys and values"
)


@dataclass(frozen=True)
class Judgement:
    """Everything that `result.json` says about equivalence; printed, it is the sentence for a person. `good` and `broken`
    are what a test asks; `verdict` is beside the full cache, which pruning and quantizing part from on purpose.
    `curves`: per step, for the plots. Steps are numbers from 0 (`first_divergence`), and in sentences
    counted from 1. `reason`: a code and its arguments. `diagnosis`: of `harness.judge`, where the verdict is worse than
    `equivalent`: cause (what kind of damage: `block` is of cache rows, one for each kept token; `layer`,
    `head`, `position`, `mask`, `cache`, ...), element, layer, head, token, evidence, picture (errors by
    layer and row, in noise floors). itself: a pruned or a quantized state beside itself under another
    cache, see `pipeline/self_check.py`. made: what was done to such a state on purpose, under the names
    of `result.json`. checks: what was asked, what came out, and by which figures."""

    verdict: str
    reason: Reason
    metrics: dict[str, Any]
    noise: dict[str, Any]
    oracle: dict[str, Any]
    soundness: dict[str, Any] = field(default_factory=dict)
    against: str = UNINTERRUPTED
    curves: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    diagnosis: dict[str, Any] = field(default_factory=dict)
    itself: dict[str, Any] = field(default_factory=dict)
    made: dict[str, Any] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    __hash__ = None  # type: ignore[assignment]  # its figures are dicts

    def __bool__(self) -> bool:
        raise TypeError(
            "a Judgement is neither true nor false: ask `.good` (it goes on as it was) or `.broken` (it does not)."
        )

    def __repr__(self) -> str:
        meant = " on purpose" * bool(on_purpose(self.record() | self.made) and not self._strange)
        own = f", the state itself {self.itself['verdict']}" if self.itself else ""
        return f"Judgement({self.verdict}{meant}{own}: {worded(self.reason)})"

    def __str__(self) -> str:
        told = self.record() | self.made
        meant, good = on_purpose(told), ""
        if meant and self.good:
            good = f"Good: the {altered(told)} state goes on as it was. "
        why = "\n{cause}: {evidence}" if self.diagnosis and not meant else ""
        if self._strange:
            why = f"\n{STRANGE}: {{evidence}}"
        beside = f" Verdict beside the full cache: {self.verdict}." if meant else ""
        return good + conclusion(told) + beside + why.format_map(self.diagnosis)

    @property
    def good(self) -> bool:
        """Whether it goes on as it was: `exact` or `equivalent`; of a pruned or a quantized state, whether what was kept
        does, under this cache and another, and is that of its tokens, however far the full cache is from it."""
        return self._own in GOOD and not self._strange

    @property
    def broken(self) -> bool:
        """Whether it does not go on as it was. Neither this nor `good` where nothing could be told: of an `unsound`
        model, of a pruned state that no other cache serves."""
        return self._own not in (*GOOD, *UNTOLD) or self._strange

    @property
    def _own(self) -> str:
        """The verdict on the state itself, whatever a pruning did to it."""
        return str(self.itself.get("verdict", self.verdict))

    @property
    def _strange(self) -> bool:
        """Whether the codes of a quantized state are no nearer to their own tokens than to others."""
        seen = self.diagnosis.get("cause", "rounding") not in ("rounding", "routing")
        return bool(self.made.get("codes_alone") and seen and self.diagnosis["layer"] is not None)

    def record(self) -> dict[str, Any]:
        """These fields under the names of `result.json`."""
        itself = {"itself": self.itself} if self.itself else {}
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "metrics": self.metrics,
            "noise_floor": self.noise,
            "oracle": self.oracle,
            "soundness": self.soundness,
            "against": self.against,
            "curves": self.curves,
            "checks": [check.row() for check in self.checks],
            **itself,
        }


def judge(
    loaded: Loaded,
    state: State,
    reference: Rollout,
    restored: Rollout,
    settings: CompareConfig,
    waived: Sequence[Difference] = (),
    chunk: int | None = None,
    held: State | None = None,
    way: Way | None = None,
) -> Judgement:
    """Compare `restored` with `reference`, both fed the same ids after the unpruned `state`.

    settings: a CompareConfig. chunk: in which pieces the reference's prompt was prefilled. held: what `restored` went on
    from, and the `way` it did; where they are not given, neither is asked. The reference itself is judged first, against
    runs without a cache. Mutates nothing.
    """
    nexts = reference.ids[:, 1:]
    branches = 1 if way is None else way.cache.branches
    measured = yardstick.measure(loaded, state, reference, settings, chunk, branches)
    paths = {
        "without a cache": measured.uncached[:, 1:],
        f"prefill in chunks of {yardstick.noise_pieces(settings, state.tokens)}": measured.rechunked,
    }
    metrics = measure.compare(restored.logits, reference.logits, nexts)
    noise = measure.noise_floor(paths.values(), reference.logits, nexts)
    oracle = _errors(loaded, state, reference, restored, measured)
    other = (restored.ids != reference.ids).any(0).nonzero()
    other_token = int(other[0, 0]) if len(other) else None
    sound, pair = measured.soundness, (restored.logits, reference.logits)
    verdict, reason = decide(
        *pair,
        metrics,
        noise,
        oracle,
        other_token,
        waived,
        sound,
        stored=_first_logits(reference, restored, measured),
        given=reference.given,
        drawn=reference.drawn,
    )
    checks = [_sound(sound), *_asked(loaded, reference, restored, measured, held, way, branches)]
    whole = held is None or not (meant(held) or (way is not None and way.kept))
    checks.append(_numbers(verdict, oracle, metrics, noise, whole))
    diagnosis: dict[str, Any] = {}
    if verdict in GOOD:
        wrong, missing = failed(checks), unasked(checks)
        if wrong is not None:
            verdict, reason = "drifted", same_tokens(wrong.reason, reference.drawn)
            diagnosis = where(wrong)
        elif missing is not None and whole:
            verdict, reason = UNJUDGED, missing.reason
    curves = {"restored": measure.per_step(restored.logits, reference.logits)}
    curves |= {
        f"noise: {name}": measure.per_step(logits, reference.logits)
        for name, logits in paths.items()
    }
    return Judgement(
        verdict,
        reason,
        metrics,
        noise,
        oracle,
        sound.document(),
        curves=curves,
        diagnosis=diagnosis,
        checks=tuple(checks),
        made={
            "pruned": state.pruned,
            "quantization": {},
            **history.coded(state),
            "codes_alone": bool(state.quantized)
            and all(s.coded for layer in state.layers for s in layer.segments),
            "size": {"tokens": state.tokens, "kept_tokens": state.kept_tokens},
        },
    )


def _sound(soundness: Soundness) -> Check:
    worst = soundness.worst.row()
    figures = {"off": worst["error"], "bound": worst["bound"], **worst}
    outcome = PASSED if soundness.sound else FAILED
    return Check("yardstick", outcome, "" if soundness.sound else "unsound", figures)


def where(check: Check) -> dict[str, Any]:
    """The diagnosis that a failed check gives by itself; empty where the state has to be looked at."""
    if check.name == "stored":
        return {}
    layer, head, token = (check.figures.get(name) for name in ("layer", "head", "token"))
    return Diagnosis("cache", "kv_cache", str(check), layer, head, token).document()


def _numbers(
    verdict: str,
    oracle: Mapping[str, Any],
    metrics: Mapping[str, Any],
    noise: Mapping[str, Any],
    whole: bool,
) -> Check:
    """How the working dtype rounded, by the error against float64 where it was measured. whole: the past is meant to be
    that of the run; another one is compared, and not asked to be the same."""
    exact = oracle["restored"] is not None
    off = oracle["restored"] if exact else metrics["max_abs_diff"]
    bound = FACTOR * (oracle["plain"] if exact else noise["max_abs_diff"])
    outcome = PASSED if verdict in GOOD else FAILED
    if verdict == "unsound":
        return Check("numbers", NOT_ASKED, "unsound", needed=False)
    figures = {"off": off, "bound": bound}
    if outcome == FAILED and not whole:
        return Check("numbers", NOT_ASKED, "on_purpose", figures, needed=False)
    return Check("numbers", outcome, verdict, figures)


def _asked(
    loaded: Loaded,
    reference: Rollout,
    restored: Rollout,
    measured: yardstick.Yardstick,
    held: State | None,
    way: Way | None,
    branches: int,
) -> list[Check]:
    """Logic and stored tensors, where it is known what was continued and how; nothing of it over an unsound yardstick."""
    if held is None or way is None:
        return []
    if not measured.soundness.sound:
        return [Check(name, NOT_ASKED, "unsound", needed=False) for name in ("logic", "stored")]
    here, wide = held.to(loaded.device), measured.wide
    experts = yardstick.routed(loaded)
    checks = logic(loaded, here, way, wide, reference.fed.shape[1])
    checks.append(_stored(loaded, here, reference, measured, branches, experts))
    tails, end = [reference.tail, measured.tail], held.tokens + reference.fed.shape[1]
    past = restored.past if loaded.switch is None else ()  # factors that switch make all of it anew
    checks.append(appended(past, restored.tail, here, wide.tail, tails, end, experts))
    return checks


def _stored(
    loaded: Loaded,
    held: State,
    reference: Rollout,
    measured: yardstick.Yardstick,
    branches: int,
    experts: bool,
) -> Check:
    """The rows of `held` beside float64's and those of two plain runs."""
    if held.pruned and not in_place(held):
        return Check("stored", NOT_ASKED, "reindexed", needed=False)
    stages = held.documents["kv_format"].get("pruned") or []
    if held.pruned and history.since(held) < held.tokens and (stages[1:] or "at" in stages[0]):
        return Check("stored", NOT_ASKED, "pruned_again")
    truth, oracle = measured.wide.truth, measured.wide.asked.oracle
    with oracle.entered() as model:  # of a twin the first layers
        runs = [alike(model, truth, replace(held, layers=held.layers[: len(truth.layers)]))]
    for layers in (reference.begun, measured.begun):
        every = tuple(unbranched(layers, branches))
        run = replace(truth, layers=every, documents=held.documents)
        runs.append(alike(loaded, run, held))
    return stored(held, runs, experts)


def _errors(
    loaded: Loaded,
    state: State,
    reference: Rollout,
    restored: Rollout,
    measured: yardstick.Yardstick,
) -> dict[str, Any]:
    """`errors` of the restored run beside the uncached one. Where that has rounded less than half as far,
    the uncached run is taken in the composition of decode steps, too, and the larger error of both counts:
    a product of one row may be summed otherwise than that of many, by either path."""
    exact = None if measured.exact is None else measured.exact[:, 1:]
    whole = errors(restored.logits, measured.uncached[:, 1:], exact)
    if whole["ratio"] is None or not FACTOR < whole["ratio"] <= COMPOSED:
        return whole
    rows = yardstick.alone(loaded, state, reference.fed, chunks=reference.chunks, singly=True)
    return max(whole, errors(restored.logits, rows, exact), key=lambda e: e["plain"])


def _first_logits(
    reference: Rollout, restored: Rollout, measured: yardstick.Yardstick
) -> dict[str, Any] | None:
    """Errors of the logits that `restored` brought with it, which no step after it shows; None where
    they are bit-equal to those that `reference` began with, or where a path does not say."""
    ours, theirs = restored.stored, reference.stored
    if ours is None or theirs is None or torch.equal(ours, theirs):
        return None
    if ours.shape != theirs.shape:
        return {"restored": float("nan"), "plain": 0.0, "ratio": None}
    exact = theirs.double() if measured.exact is None else measured.exact[:, 0]
    return errors(ours, measured.uncached[:, 0], exact)


def tied(
    judgement: Judgement,
    reference: Rollout,
    sampler: Sampler,
    state: State,
    said: Sequence[int],
    count: int,
) -> bool:
    """Whether `said`, of which only its ids are known, is what `sampler` chooses from the logits of
    `reference`, each id of it raised by what the noise explains: the measure of a top-1 change in `decide`.

    reference: one row, fed `count` ids after `state` and then those that `said` agrees with, but for its
    last. sampler: as it was at `state`; it is advanced.
    """
    margin = tie(judgement.noise)
    if not margin < inf:
        return False
    sampler.begin(state, count)
    context = torch.cat([state.token_ids.cpu(), reference.fed[:, :count]], dim=1)
    for step, token in enumerate(said, start=count):
        scores = reference.logits[:, step - 1].float().clone()
        raised = scores[:, token] + margin
        scores[:, token] = raised.nextafter(torch.full_like(raised, inf))  # a tie is won
        if int(sampler.choose(scores, context)) != token:
            return False
        context = torch.cat([context, reference.fed[:, step : step + 1]], dim=1)
    return True


def mutation(decoder: Any, before: Any, steps: int) -> dict[str, Any]:
    """Whether the object the caller handed in changed while `decoder` took `steps` steps."""
    after = decoder.fingerprint(before.digest is not None)
    changed = any(getattr(before, k) != getattr(after, k) for k in ("length", "identity", "digest"))
    return {
        "mutated": changed,
        "length_before": before.length,
        "length_after": after.length,
        "digest_before": before.digest,
        "digest_after": after.digest,
        "bytes_copied_per_token": decoder.bytes_copied / max(steps, 1),
    }
