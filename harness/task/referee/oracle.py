"""Float64 of an engine's own weights: what every answer is measured against, its cold ones as well."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from harness.config import Config
from harness.config.option import option
from harness.engine import Engine
from harness.engine.base import Prompt
from harness.errors import HarnessError, InputProblem
from harness.model import gguf
from harness.model.loaded import Loaded, load
from harness.pipeline.own_engine import Ours
from harness.task.referee.reasons import Reason
from harness.task.referee.verdict import FACTOR
from harness.task.referee.yardstick import Exact, Yardstick

FAR = 10  # times the noise floor: float64 is then so far away that the floor alone decides
KEPT = ("K and V", "dtype", "kv_bits")  # of what an engine says of itself
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


def described(
    where: str,
    yard: Yardstick | Reason,
    asked: bool,
    wrong: float = math.inf,
    kept: Sequence[str] = (),
) -> Reason:
    """What the report says about it. asked: whether there are weights to measure with. wrong: how far the nearest
    wrong state is from cold runs, in nats. kept: in what numbers the engine keeps what it computes with."""
    if isinstance(yard, Reason) or not asked:
        return Reason("float64_absent", {"why": where})
    if yard.plain is None:
        what = "the prompt is sent" if isinstance(yard.prompt, str) else "tokens are listed"
        return Reason("float64_text", {"where": where, "what": what})
    floor = yard.floor["max_abs_diff"]
    args = {"where": where, "plain": yard.plain, "floor": floor}
    if yard.plain <= FAR * floor:
        return Reason("float64_near", args)
    code = "float64_elsewhere" if FACTOR * yard.plain >= wrong else "float64_coarse"
    return Reason(code, args | {"kept": f" ({', '.join(kept)})" * bool(kept)})


def numbers(cfg: Config, engine: Engine) -> list[str]:
    """In what numbers the weights are stored, and keys and values where the engine says so."""
    known = [f"{k} {v}" for k, v in engine.versions().items() if k in KEPT]
    named = getattr(cfg.engine, "weights", None)
    place = Path(named).expanduser() if named else engine.weights
    if place is None:
        return known
    if gguf.is_file(place):
        from gguf import GGUFReader

        kinds = {t.tensor_type.name for t in GGUFReader(place).tensors}
    else:
        from safetensors import safe_open

        kinds = set()
        for file in place.glob("*.safetensors"):
            with safe_open(file, "pt") as opened:
                names = list(opened.keys())
                kinds |= {opened.get_slice(name).get_dtype() for name in names}
    return [f"weights in {' and '.join(sorted(kinds))}", *known] if kinds else known


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
        last = loaded.text_config.vocab_size - 1
        if (largest := max(*prompt, *tokens)) > last:
            raise InputProblem(
                f"the engine's token {largest} is none of the float64 weights, whose last is {last}: "
                "engine.weights=DIR names the weights that it runs, compare.oracle=false asks none."
            )
        logits = loaded.oracle.uncached(ids, len(tokens))[0]
        return logits.double().log_softmax(-1).cpu().numpy()

    return log_probabilities


def _size(place: Path) -> int:
    files = [place] if place.is_file() else place.glob("*.safetensors")
    return sum(f.stat().st_size for f in files)
