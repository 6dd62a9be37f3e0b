"""Float64 of an engine's own weights: what every answer is measured against, its cold ones as well."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from harness.config import Config
from harness.config.option import option
from harness.engine import Engine
from harness.engine.base import Prompt
from harness.errors import HarnessError, InputProblem
from harness.model.loaded import Loaded, load
from harness.pipeline.own_engine import Ours
from harness.task.referee.yardstick import Exact, Yardstick

WORK = 2e10  # bytes of weights times tokens: beyond, only `engine.weights` asks for it


def oracle(
    cfg: Config, engine: Engine, tokens: int, ours: Callable[[], Ours] | None
) -> tuple[Exact | None, str]:
    """`(float64 of the engine's weights, where they are from)`; None with the reason.

    ours: gives our own model where the engine runs that. Raises InputProblem where `engine.weights`
    cannot be loaded; the engine's own file is tried and left alone where it is large or of a kind that
    the library does not read.
    """
    if not cfg.compare.oracle:
        return None, "not asked (compare.oracle=false)"
    if ours is not None:
        return _exact(ours().loaded), "the weights of the model that runs"
    weights, place = getattr(cfg.engine, "weights", None), engine.weights
    if weights:
        return _exact(_loaded(Path(weights), cfg.device)), str(weights)
    if place is None:
        return None, "no weights to read; engine.weights=DIR names them"
    if _size(place) * tokens > WORK:
        return None, f"not asked, {place.name} is large; engine.weights={place} asks"
    try:
        return _exact(_loaded(place, cfg.device)), place.name
    except HarnessError as problem:
        return None, str(problem)


def encoded(cfg: Config, engine: Engine, text: str) -> Prompt:
    """`text` as ids by the tokenizer beside `engine.weights`, where there is one and the engine takes ids;
    else the text."""
    place = Path(getattr(cfg.engine, "weights", None) or "").expanduser()
    if not cfg.compare.oracle or not _tokenizes(place):
        return text
    ids = [int(i) for i in _loaded(place, cfg.device).tokenizer(text)["input_ids"]]
    try:
        engine.evaluate(ids, 1)
    except InputProblem:
        return text
    return ids


def described(where: str, yard: Yardstick | str, asked: bool) -> str:
    """What the report says about it. asked: whether there are weights to measure with."""
    if isinstance(yard, str) or not asked:
        return where
    if yard.exact is None and yard.blunt is None:
        named = "the prompt is sent" if isinstance(yard.prompt, str) else "tokens are listed"
        return f"{where}: not used, since {named} as text. prompt.ids=[...] sends ids, where the server takes them"
    if yard.blunt is not None:
        return (
            f"{where}: {yard.blunt:.3g} nats from the engine's own cold runs, where a wrong state is no "
            "further (other weights, coarse keys and values?); the noise floor decides"
        )
    return f"{where}: cold runs are within {yard.plain:.3g} nats of it"


def _loaded(place: Path, device: str) -> Loaded:
    """The weights in float32, which holds whatever they are stored in."""
    beside = None if _tokenizes(place.expanduser()) else "tiny"
    settings = option("model", "path", path=str(place.expanduser()), tokenizer=beside)
    return load(settings, "float32", device)


def _tokenizes(place: Path) -> bool:
    return any((place / f"tokenizer{end}").is_file() for end in (".json", ".model", "_config.json"))


def _exact(loaded: Loaded) -> Exact:
    def log_probabilities(prompt: Sequence[int], tokens: Sequence[int]) -> np.ndarray:
        ids = torch.tensor([[*prompt, *tokens[:-1]]], device=loaded.device)
        logits = loaded.oracle.uncached(ids, len(tokens))[0]
        return logits.double().log_softmax(-1).cpu().numpy()

    return log_probabilities


def _size(place: Path) -> int:
    files = [place] if place.is_file() else place.glob("*.safetensors")
    return sum(f.stat().st_size for f in files)
