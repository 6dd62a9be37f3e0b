"""Load or build a model with its tokenizer. Nothing is downloaded unless a hub id asks for it.

`Loaded` is the one object the other rooms receive; they call its methods and never import this room.
"""

import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from harness.errors import ConfigProblem, HarnessError, InputProblem, suggestion
from harness.model import footprint, gguf, identity, recurrence, twin
from harness.model.oracle import Oracle
from harness.model.switch import switch_of

ASSETS = Path(__file__).resolve().parent / "assets"
SHIPPED = {"tiny": ASSETS / "tiny"}


@dataclass
class Loaded:
    """A model on its device, its tokenizer and where both came from.

    The weights are never written to. `documents` fingerprints them once and remembers it. `origin`:
    what loads them again, see `origin()`.
    """

    model: Any
    tokenizer: Any
    source: dict[str, Any]
    seconds: float
    origin: dict[str, Any] = field(default_factory=dict)
    _forward_names: frozenset[str] = field(default=frozenset(), repr=False)
    _known: tuple[Any, dict[str, Any]] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        import inspect

        inner = getattr(self.model, "get_base_model", lambda: self.model)()  # adapters hand it on
        self._forward_names = frozenset(inspect.signature(inner.forward).parameters)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    @property
    def text_config(self) -> Any:
        return self.model.config.get_text_config(decoder=True)

    @property
    def max_positions(self) -> int | None:
        """Positions the model was built for, or None when it does not say."""
        return getattr(self.text_config, "max_position_embeddings", None)

    @property
    def documents(self) -> dict[str, Any]:
        """Identity of the weights and config by Big 8+4 element (JSON-able): remembered until a
        weight is written to or replaced."""
        written = tuple((p.data_ptr(), p._version) for p in self.model.parameters())
        if self._known is None or self._known[0] != written:
            self._known = written, identity.documents(self.model)
        return self._known[1]

    @cached_property
    def attention_configs(self) -> list[Any]:
        """Every config object of the model that says which attention its modules use."""
        found = {id(m.config): m.config for m in self.model.modules() if hasattr(m, "config")}
        return [c for c in found.values() if hasattr(c, "_attn_implementation_internal")]

    @cached_property
    def oracle(self) -> Oracle:
        """Float64 runs over the same weights, which are widened one at a time as they are touched."""
        return Oracle(self)

    @cached_property
    def twin(self) -> "Loaded":
        """The first layers of this model, one of each kind at least, with its own class, weights and
        head: it feeds and forgets as the whole does, at a fraction of the price."""
        return Loaded(twin.first_layers(self.model), self.tokenizer, self.source, 0.0)

    @property
    def parameters(self) -> int:
        """How many numbers the weights are."""
        return sum(p.numel() for p in self.model.parameters())

    @property
    def switch(self) -> int | None:
        """Tokens after which the RoPE factors are others, so that a cache from before must go."""
        return switch_of(self.text_config)

    @property
    def layers(self) -> int:
        """Decoder layers."""
        return int(self.text_config.num_hidden_layers)

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor | None = None,
        cache: Any = None,
        keep: int = 0,
    ) -> torch.Tensor:
        """The model's own forward. Mutates `cache`, if one is given, as the library does.

        ids, positions: `[batch, new]`; negative positions (padding) are sent as 0.
        mask: `[batch, past + new]`, or None when nothing is padded.
        keep: logits of the last `keep` tokens only; 0 keeps all.
        Returns logits `[batch, new or keep, vocab]`.
        """
        several = cache is not None and ids.shape[1] > 1
        if several and recurrence.continues(cache) and self.one_at_a_time:
            return recurrence.one_by_one(self.once, ids, positions, mask, cache, keep)
        return self.once(ids, positions, mask, cache, keep)

    @property
    def takes_cache(self) -> bool:
        """Whether the forward takes a cache of the library's, under either of its names."""
        return bool(self._forward_names & {"past_key_values", "cache_params"})

    @cached_property
    def one_at_a_time(self) -> bool:
        """Whether tokens must be fed one by one onto recurrent state; measured on first use."""
        return recurrence.starts_anew(self.oracle)

    def once(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor | None = None,
        cache: Any = None,
        keep: int = 0,
    ) -> torch.Tensor:
        """One call of the library, whatever it does to recurrent state; see `forward`."""
        wanted = {
            "attention_mask": mask,
            "position_ids": positions.clamp(min=0),
            "past_key_values": cache,
            "use_cache": cache is not None,
        }
        if "past_key_values" not in self._forward_names:  # models that are recurrent throughout
            wanted["cache_params"] = cache
            if recurrence.continues(cache):
                wanted["attention_mask"] = None  # it is applied to the fed tokens, none is padding
        if keep:
            wanted["logits_to_keep"] = keep
        arguments = {k: v for k, v in wanted.items() if k in self._forward_names}
        with torch.no_grad():
            logits = self.model(input_ids=ids, **arguments).logits
        return logits[:, -keep:] if keep else logits

    def uncached(self, ids: torch.Tensor, keep: int) -> torch.Tensor:
        """Logits `[batch, keep, vocab]` of the last `keep` of `ids` `[batch, tokens]`, unpadded, by
        the library alone: no cache, and neither mask nor positions of ours. The yardstick's scale."""
        asked = {"use_cache": False, "logits_to_keep": keep}
        arguments = {k: v for k, v in asked.items() if k in self._forward_names}
        with torch.no_grad():
            return self.model(input_ids=ids, **arguments).logits[:, -keep:]


_MEMORY: dict[str, Loaded] = {}


def load(settings: Any, dtype: str, device: str) -> Loaded:
    """The model that `settings` (a ModelConfig) declares; jobs of one process share it.

    Raises InputProblem when the weights cannot be had, ConfigProblem for an unknown architecture.
    """
    key = f"{settings} {dtype} {device}"
    if key not in _MEMORY:
        _MEMORY.clear()  # one model at a time: the next sweep point may need the memory
        start = time.perf_counter()
        torch_device = resolve_device(device)
        model, tokenizer, source = _build(settings, getattr(torch, dtype), torch_device)
        model.to(torch_device).eval()
        loaded = Loaded(model, tokenizer, source, time.perf_counter() - start)
        loaded.origin = origin(settings, model)
        _MEMORY[key] = loaded
    return _MEMORY[key]


def declared(settings: Any) -> dict[str, Any] | None:
    """The config of the model that `settings` names, from its config.json alone; None where there is
    none to read on this machine."""
    from transformers import AutoConfig

    try:
        if settings.architecture:
            config = AutoConfig.for_model(settings.architecture, **settings.config)
            return {**config.to_dict(), "vocab_size": settings.config.get("vocab_size")}
        place, revision = _place(settings)
        config = AutoConfig.from_pretrained(place, revision=revision, local_files_only=True)
    except Exception:  # the loader says it better
        return None
    return config.to_dict()


def origin(settings: Any, model: Any) -> dict[str, Any]:
    """Where the weights of `model` came from, as a snapshot says it (JSON-able)."""
    kept = {
        "option": settings.name,
        "id": settings.id,
        "revision": settings.revision,
        "path": str(Path(settings.path).expanduser().absolute()) if settings.path else None,
        "architecture": settings.architecture,
        "tokenizer": settings.tokenizer,
        "attention": None if settings.attention == "auto" else settings.attention,
    }
    count = sum(p.numel() for p in model.parameters())
    return {**{k: v for k, v in kept.items() if v is not None}, "parameters": count}


def resolve_device(device: str) -> torch.device:
    """`auto` is CUDA where there is one. Raises InputProblem for CUDA without a CUDA device."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InputProblem(
            f"device={device}: this machine has no usable CUDA device. Use device=cpu or device=auto."
        )
    return torch.device(device)


def _build(settings: Any, dtype: torch.dtype, device: torch.device) -> tuple[Any, Any, dict[str, Any]]:  # fmt: skip
    _quiet()
    if settings.architecture:
        return _from_architecture(settings, dtype, device)
    if gguf.is_file(settings.path):
        return _from_gguf(settings, dtype)
    place, revision = _place(settings)
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        declared = AutoConfig.from_pretrained(place, revision=revision)
        footprint.check_weights(settings.name, declared, dtype, device)
        model = AutoModelForCausalLM.from_pretrained(
            place, revision=revision, dtype=dtype, **_attention(settings.attention)
        )
    except (OSError, ValueError, KeyError) as problem:
        raise InputProblem(_cannot_load(settings, place, problem)) from problem
    tokenizer = _tokenizer(settings.tokenizer or place, revision)
    commit = getattr(model.config, "_commit_hash", None)
    shown = settings.id or settings.name
    return model, tokenizer, {"name": shown, "revision": revision, "commit": commit}


def _from_gguf(settings: Any, dtype: torch.dtype) -> tuple[Any, Any, dict[str, Any]]:
    file = Path(settings.path).expanduser().absolute()
    model = gguf.model_of(file, dtype, _attention(settings.attention))
    named = settings.tokenizer
    tokenizer = _tokenizer(named, None) if named else gguf.tokenizer_of(file)
    return model, tokenizer, {"name": file.name, "revision": None, "commit": None}


def _from_architecture(settings: Any, dtype: torch.dtype, device: torch.device) -> tuple[Any, Any, dict[str, Any]]:  # fmt: skip
    from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM

    if settings.architecture not in CONFIG_MAPPING:
        near = suggestion(settings.architecture, list(CONFIG_MAPPING))
        raise ConfigProblem(f"model.architecture={settings.architecture} is not known.{near}")
    tokenizer = _tokenizer(settings.tokenizer or "tiny", None)
    special = {
        f"{kind}_token_id": getattr(tokenizer, f"{kind}_token_id") for kind in ("bos", "eos", "pad")
    }
    values = {"vocab_size": len(tokenizer), **special, **settings.config}
    try:
        config = AutoConfig.for_model(settings.architecture, **values)
        footprint.check_weights(settings.name, config, dtype, device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            model = AutoModelForCausalLM.from_config(
                config, dtype=dtype, **_attention(settings.attention)
            )
    except HarnessError:
        raise
    except Exception as problem:  # every family checks its config in its own way
        raise ConfigProblem(
            f"model.architecture={settings.architecture} cannot be built from model.config: "
            f"{_first_line(problem.__cause__ or problem)}"
        ) from problem
    name = f"{settings.name}:{settings.architecture}:seed{settings.seed}"
    return model, tokenizer, {"name": name, "revision": None, "commit": None}


def _attention(name: str) -> dict[str, str]:
    """`auto` leaves the choice to the library: sdpa for the classes that have it, else eager."""
    return {} if name == "auto" else {"attn_implementation": name}


def _place(settings: Any) -> tuple[str, str | None]:
    """Where to load from: a shipped directory, a given directory, or a hub id and revision."""
    if settings.path:
        folder = Path(settings.path).expanduser()
        if not (folder / "config.json").is_file():
            raise InputProblem(
                f"model.path={settings.path} is not a save_pretrained directory: it has no "
                "config.json. Give the folder that holds config.json and the weights, or a GGUF file."
            )
        return str(folder), None
    if settings.id in SHIPPED:
        return str(SHIPPED[settings.id]), None
    return settings.id, settings.revision


def _tokenizer(place: str, revision: str | None) -> Any:
    from transformers import AutoTokenizer

    where = str(SHIPPED.get(place, place))
    local = Path(where).is_dir()  # said here, or the files it saves would tell HF_HUB_OFFLINE
    try:
        return AutoTokenizer.from_pretrained(where, revision=revision, local_files_only=local)
    except (OSError, ValueError, KeyError) as problem:
        raise InputProblem(
            f"no tokenizer could be loaded from {where}: {_first_line(problem)} "
            "Save one beside the weights, or give model.tokenizer=DIR."
        ) from problem


def _cannot_load(settings: Any, place: str, problem: Exception) -> str:
    hint = (
        "Check the directory; it must hold config.json and the weights."
        if settings.path
        else "Without a network, copy it here with `save_pretrained` and use model=path model.path=DIR."
    )
    return f"model={settings.name}: cannot load '{place}': {_first_line(problem)} {hint}"


def _first_line(problem: BaseException) -> str:
    line = (str(problem).strip() or type(problem).__name__).splitlines()[0][:200]
    return line if line.endswith((".", ":", "?")) else line + "."


def _quiet() -> None:
    """The library's own warnings and progress bars stay out of our console."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
