"""Load a model with its tokenizer, or build one. Nothing is downloaded unless a hub id asks for it."""

from pathlib import Path
from typing import Any

import torch

from harness import folder
from harness.config import ModelConfig, moved
from harness.config.place import NO_CONFIG
from harness.errors import ConfigProblem, HarnessError, InputProblem, suggestion
from harness.model import configured, files, fit, footprint, gguf
from harness.model.configured import first_line
from harness.model.hub import hub
from harness.model.ids import IDS, numbers
from harness.model.ledger import Ledger

ASSETS = Path(__file__).resolve().parent / "assets"
SHIPPED = {"tiny": ASSETS / "tiny"}
SMALL = 1024  # tokens of a shape that nobody gave a vocabulary
NO_FILES = "there are no tokenizer files that know a word."
Built = tuple[Any, Any, dict[str, Any], Ledger | None]


def build(settings: ModelConfig, dtype: torch.dtype, device: torch.device) -> Built:
    """`(model, tokenizer, source, ledger entry)`."""
    _quiet()
    if settings.architecture:
        return _from_architecture(settings, dtype, device)
    if settings.path and gguf.is_file(str(moved.place(settings.path))):
        return _from_gguf(settings, dtype)
    place, revision = _place(settings)
    with folder.opened(place) as keywords:
        return _from_folder(settings, dtype, device, place, {"revision": revision, **keywords})


def _from_folder(
    settings: ModelConfig,
    dtype: torch.dtype,
    device: torch.device,
    place: str,
    where: dict[str, Any],
) -> Built:
    from transformers import AutoConfig, AutoModelForCausalLM

    here, revision = Path(place).is_dir(), where["revision"]
    away = None if here else hub().away()
    where = {"local_files_only": bool(away), **where}
    declared: Any = None
    try:
        declared = AutoConfig.from_pretrained(place, **where)
        held = folder.weights(Path(place)) or None if here else None
        footprint.check_weights(settings.name, declared, dtype, device, held)
        entry = Ledger.before(Path(place), dtype) if here else None
        options = {**where, "dtype": dtype, **_kernels(settings.attention, dtype)}
        model, report = AutoModelForCausalLM.from_pretrained(
            place, output_loading_info=True, ignore_mismatched_sizes=True, **options
        )  # what does not fit is told below, with its shapes
    except HarnessError:
        raise
    except Exception as problem:
        if said := configured.wrong(place, declared, problem):
            raise InputProblem(said) from problem
        broken = files.broken(Path(place))
        if broken or here or isinstance(problem, OSError | ValueError | KeyError):
            said = _cannot_load(settings, place, problem, away, broken)
            raise InputProblem(said) from problem
        raise
    named = f"model.path={settings.path}" if settings.path else f"model={settings.name}"
    unread = fit.check(named, model, report)
    tokenizer = _ids(settings, model) or _tokenizer(
        settings.tokenizer or place, revision, bool(away)
    )
    commit = getattr(model.config, "_commit_hash", None)
    called = Path(settings.path).expanduser() if settings.path else None
    shown = settings.id or (called.name if called else settings.name)
    source = {"name": shown, "revision": revision, "commit": commit}
    return model, tokenizer, source | ({"unread": unread} if unread else {}), entry


def fetched(settings: ModelConfig) -> str | None:
    """What is looked for on a hub, and where; None for a model that needs none."""
    if settings.path or settings.architecture or Path(_place(settings)[0]).is_dir():
        return None
    return f"{settings.id} from {hub().address} or its cache here"


def declared(settings: ModelConfig) -> dict[str, Any] | None:
    """The config of the model that `settings` names, from its config.json alone; None where there is
    none to read on this machine."""
    from transformers import AutoConfig

    try:
        if settings.architecture:
            folder.check_counts("model.config", settings.config)
            config = AutoConfig.for_model(settings.architecture, **settings.config)
            return {**config.to_dict(), "vocab_size": settings.config.get("vocab_size")}
        place, revision = _place(settings)
        with folder.opened(place) as keywords:
            where = {"revision": revision, **keywords, "local_files_only": True}
            config = AutoConfig.from_pretrained(place, **where)
    except Exception:  # the loader says it better
        return None
    return config.to_dict()


def stored_in(settings: ModelConfig) -> str | None:
    """The type in which config.json says that the weights are stored; None where it does not say."""
    config = None if settings.architecture or settings.id in SHIPPED else declared(settings)
    return None if config is None else config.get("dtype") or config.get("torch_dtype")


def origin(settings: ModelConfig, model: Any) -> dict[str, Any]:
    """Where the weights of `model` came from, as a snapshot says it (JSON-able)."""
    fields = {
        "option": settings.name,
        "id": settings.id,
        "revision": settings.revision,
        "path": str(Path(settings.path).expanduser().absolute()) if settings.path else None,
        "architecture": settings.architecture,
        "tokenizer": settings.tokenizer,
        "attention": None if settings.attention == "auto" else settings.attention,
    }
    count = sum(p.numel() for p in model.parameters())
    return {**{k: v for k, v in fields.items() if v is not None}, "parameters": count}


def resolve_device(device: str) -> torch.device:
    """`auto` is CUDA where there is one. Raises InputProblem for CUDA without a CUDA device."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InputProblem(
            f"device={device}: this machine has no usable CUDA device. Use device=cpu or device=auto."
        )
    return torch.device(device)


def _from_gguf(settings: ModelConfig, dtype: torch.dtype) -> Built:
    file = moved.place(str(settings.path)).absolute()
    model = gguf.model_of(file, dtype, _kernels(settings.attention, dtype))
    named = settings.tokenizer
    tokenizer = _ids(settings, model)
    tokenizer = tokenizer or (_tokenizer(named, None) if named else gguf.tokenizer_of(file))
    return model, tokenizer, {"name": file.name, "revision": None, "commit": None}, None


def _from_architecture(settings: ModelConfig, dtype: torch.dtype, device: torch.device) -> Built:
    from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM

    if settings.architecture not in CONFIG_MAPPING:
        near = suggestion(str(settings.architecture), list(CONFIG_MAPPING))
        raise ConfigProblem(f"model.architecture={settings.architecture} is not known.{near}")
    if settings.tokenizer == IDS:
        rows = int(settings.config.get("vocab_size") or SMALL)
        tokenizer = numbers(rows)
    else:
        tokenizer = _tokenizer(settings.tokenizer or "tiny", None)
        rows = len(tokenizer)
    special = {
        f"{kind}_token_id": getattr(tokenizer, f"{kind}_token_id") for kind in ("bos", "eos", "pad")
    }
    values = {"vocab_size": rows, **special, **settings.config}
    try:
        folder.check_counts("model.config", settings.config)
        config = AutoConfig.for_model(settings.architecture, **values)
        footprint.check_weights(settings.name, config, dtype, device)
        where = device if settings.on_device else torch.device("cpu")
        with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []), where:
            torch.manual_seed(settings.seed)
            model = AutoModelForCausalLM.from_config(
                config, dtype=dtype, **_kernels(settings.attention, dtype)
            )
    except HarnessError:
        raise
    except Exception as problem:  # every family checks its config in its own way
        raise ConfigProblem(
            f"model.architecture={settings.architecture} cannot be built from model.config: "
            f"{first_line(problem.__cause__ or problem)}"
        ) from problem
    name = f"{settings.name}:{settings.architecture}:seed{settings.seed}"
    return model, tokenizer, {"name": name, "revision": None, "commit": None}, None


def _kernels(attention: str, dtype: torch.dtype) -> dict[str, str]:
    """`auto` leaves the choice of attention to the library: sdpa for the classes that have it, else
    eager. Its fused kernels for experts have no float64."""
    chosen = {} if attention == "auto" else {"attn_implementation": attention}
    return chosen | ({"experts_implementation": "eager"} if dtype == torch.float64 else {})


def _place(settings: ModelConfig) -> tuple[str, str | None]:
    """Where to load from: a shipped directory, a given directory, or a hub id and revision."""
    if settings.path:
        place = moved.place(settings.path)
        if not (place / "config.json").is_file():
            raise InputProblem(f"model.path={settings.path} {NO_CONFIG}")
        return str(place), None
    if settings.id in SHIPPED:
        return str(SHIPPED[settings.id]), None
    return str(settings.id), settings.revision


def _ids(settings: ModelConfig, model: Any) -> Any:
    """The tokenizer of ids that `settings` ask for; None where they ask for another."""
    rows = model.get_input_embeddings().weight.shape[0]
    return numbers(rows) if settings.tokenizer == IDS else None


def _tokenizer(place: str, revision: str | None, away: bool = False) -> Any:
    from transformers import AutoTokenizer

    where = str(SHIPPED.get(place, place))
    # said here, or the files it saves would tell HF_HUB_OFFLINE
    try:
        with folder.opened(where) as keywords:
            keywords = {"local_files_only": away, **keywords}
            made = AutoTokenizer.from_pretrained(where, revision=revision, **keywords)
    except HarnessError:
        raise
    except Exception as problem:  # whatever its files make the library raise
        unmade = str(problem).startswith("Couldn't instantiate the backend tokenizer")
        raise _no_tokenizer(where, NO_FILES if unmade else first_line(problem)) from problem
    if len(made) <= len(set(made.all_special_ids)):  # some families make one of no file at all
        raise _no_tokenizer(where, NO_FILES)
    return made


def _no_tokenizer(where: str, why: str) -> InputProblem:
    return InputProblem(
        f"no tokenizer could be loaded from {where}: {why} Save one beside the weights, or give model.tokenizer=DIR; "
        "with model.tokenizer=ids a text is its ids ('5 17 300')."
    )


def _cannot_load(
    settings: ModelConfig, place: str, problem: Exception, away: str | None, broken: str | None
) -> str:
    named_already = settings.path or settings.name == place  # as Python does with either
    option = "" if named_already else f"model={settings.name}: "
    if broken:
        return f"{option}cannot load '{place}': {broken}"
    if (
        settings.id and Path(place).parent.is_dir() and "/" in place
    ):  # a path more likely than a hub id
        return f"{place}: there is no such folder, and no model of that name here. Check the path."
    hint = (
        "Check the directory; it must hold config.json and the weights."
        if settings.path
        else "Without a network, copy it here with `save_pretrained` and use model=path model.path=DIR."
    )
    said = f"{away}, and {hub().cache} does not hold it." if away else first_line(problem)
    named = "there is no such folder here; as a hub id: " * bool(settings.id)
    return f"{option}cannot load '{place}': {named}{said} {hint}"


def _quiet() -> None:
    """The library's own warnings and progress bars stay out of our console."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
