"""What two whole states are to each other, where one sentence says it: of another model, or in another dtype."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.compare.identity import differences
from harness.pipeline.round_trip import moved
from harness.report.terminal.console import number
from harness.snapshot.elements import called, spoken
from harness.snapshot.state import State
from harness.task.diff.deviation import Deviation, read_alike

# of a config: what its weights are as large as, under the names that families have for it
SIZES = ("hidden_size", "n_embd", "vocab_size", "intermediate_size")
WEIGHTS = ("token_embeddings", "attention_weights", "layer_norm")


def models(one: State, two: State) -> str:
    """That they are of two models, and which, as the begin of a sentence; empty where they are of one. In another dtype
    the weights of one model have other digests, too."""
    a, b = (_config(state) for state in (one, two))
    names = [_called(config) for config in (a, b)]
    if names[0] != names[1]:
        return f"another model: {names[0]} against {names[1]}; "
    if sizes := [key for key in SIZES if a.get(key) != b.get(key)]:
        return (
            f"another model: {names[0]} of {sizes[0]} {a.get(sizes[0])} against {b.get(sizes[0])}; "
        )
    weights = [[_digest(state, name) for name in WEIGHTS] for state in (one, two)]
    if weights[0] != weights[1] and _dtype(one) == _dtype(two):
        return f"another model: other weights of {names[0]}; "
    return ""


def unheld(one: State, two: State) -> str:
    """Why no one model holds both, so that none takes a next step from both: the first thing that a restore would find
    other. Empty where one does."""
    apart = differences(one.documents, two.documents, _dtype(one), _dtype(two))
    if not apart:
        return ""
    first = apart[0]
    if first.field == "dtype":
        return f"one is in {_dtype(one)}, the other in {_dtype(two)}"
    return f"they differ in {spoken(first.element)}, {called(first.element, first.field)}"


def retyped(
    own: Sequence[Deviation], one: State, two: State, figures: Mapping[str, float | None]
) -> str | None:
    """That they are the same text in two dtypes, and how far apart, where nothing else differs. own: `independent`;
    figures: `figured`."""
    gap = figures["largest_kv_difference"]
    if not read_alike(one, two) or gap is None or _dtype(one) == _dtype(two):
        return None
    if any(
        (d.what, d.where) != ("kv_format", "dtype") and (d.where != "form" or d.gap is None)
        for d in own
    ):
        return None
    logits = next((d.gap for d in own if d.what == "logits"), None)
    said = f", the stored logits by at most {number(logits)}" if logits is not None else ""
    (other,) = dtypes(one, two)
    return f"the same text in {other}: keys and values differ by at most {number(gap)}{said}"


def exchanged(one: State, two: State) -> str:
    """Which layers of `one` are bit for bit other layers of `two`, as the begin of a sentence; empty where none is."""
    pairs = moved(one, two)
    if not pairs:
        return ""
    first, second = pairs[0]
    if {*pairs} == {(first, second), (second, first)}:
        return f"layers {first} and {second} are exchanged, each holds the keys and values of the other; "
    more = f", and {len(pairs) - 1} more stand elsewhere" * bool(pairs[1:])
    return f"layer {first} of a is layer {second} of b, bit for bit{more}; "


def stepped(figures: Mapping[str, float | None]) -> str:
    """How far apart one more token takes both, as the end of a sentence; empty where none was fed. figures: `figured`."""
    gap, kl = figures.get("next_step_max_abs_diff"), figures.get("next_step_kl")
    if gap is None or kl is None:
        return ""
    return f"; after one more token their logits differ by at most {number(gap)} (KL {number(kl)} nats)"


def dtypes(one: State, two: State) -> list[str]:
    """`another dtype, float32 against bfloat16`; nothing of two states in the same."""
    names = [_dtype(state) for state in (one, two)]
    return [f"another dtype, {' against '.join(names)}"] if names[0] != names[1] else []


def _config(state: State) -> Mapping[str, Any]:
    config = (state.documents.get("model_config") or {}).get("config")
    known = config if isinstance(config, Mapping) else {}
    return {**(known.get("text_config") or {}), **known}


def _called(config: Mapping[str, Any]) -> str:
    layers = config.get("num_hidden_layers") or config.get("n_layer")
    return f"a {layers}-layer {config.get('model_type')}" if layers else "one without a config"


def _dtype(state: State) -> str:
    return str(state.documents["kv_format"].get("dtype"))


def _digest(state: State, name: str) -> Any:
    document = state.documents.get(name)
    return document.get("digest") if isinstance(document, Mapping) else None
