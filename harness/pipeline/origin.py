"""Where a snapshot's weights came from: the model to load for it, and whether another could be it.

A snapshot is data: it may name a directory or a model that this project ships, which is loaded and
then compared by digest like any other. It never makes anything be downloaded or built.
"""

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from harness.compare.identity import Difference, fits
from harness.config import ModelConfig, moved
from harness.errors import InputProblem, RestoreRefused, printable
from harness.model.build import SHIPPED, declared
from harness.model.ids import IDS
from harness.snapshot.elements import BY_NAME
from harness.snapshot.tokenizer import NO_ID

PLACE = ("option", "id", "path")  # of a model: where it comes from
_RECORDED: set[str] = set()
TOKENS = "token_buffer"
# options that do not say by themselves which model it is
UNNAMED = ("None", "path", "shape", "wrapped")
# what a config says of the shapes of its weights, outermost first
SHAPES = ("model_type", "num_hidden_layers", "n_layer", "hidden_size", "n_embd", "vocab_size")


def resolved(cfg: Any, manifest: dict[str, Any]) -> Any:
    """`cfg` with the model and dtype of the snapshot, where the command line chose none.

    A model that was chosen is compared by its config, before any weight is read. Raises
    RestoreRefused when it cannot be the one that was saved, InputProblem when that one is gone.
    """
    source = manifest["documents"].get("source") or {}
    if not chosen("model") and source:
        words = IDS if ids_alone(manifest["documents"]) else source.get("tokenizer")
        cfg = replace(cfg, model=_settings(source, cfg.model, words))
        if not chosen("dtype"):
            cfg = replace(cfg, dtype=manifest["dtype"])
    elif cfg.restore.strict:
        _check(cfg, manifest, source)
    return cfg


def chosen(group: str) -> bool:
    """Whether the command line chose `group` or one of its keys (`model`: a model is wanted), or a record that is run
    again."""
    typed = any(a.lstrip("+").startswith((f"{group}=", f"{group}.")) for a in sys.argv[1:])
    return typed or group in _RECORDED


def recorded(cfg: Any, dtype: bool = True) -> None:
    """From here on the model (and the dtype) of `cfg`, which a record says, are chosen, whatever this process was told:
    but not a model that ships, which older records name where they took the snapshot's."""
    _RECORDED.clear()
    if cfg.model.name not in SHIPPED:
        _RECORDED.update(["model", *["dtype"] * dtype])


def _settings(source: dict[str, Any], default: Any, words: str | None) -> Any:
    """The model block that loads what `source` names. words: where its tokenizer is."""
    path, name = source.get("path"), source.get("id")
    attention = source.get("attention") or "auto"
    if isinstance(path, str):
        if not moved.there(path):
            raise InputProblem(
                f"this snapshot was saved from the weights at {path}, which are not there any more. "
                "Say where they are now: model=path model.path=DIR."
            )
        return ModelConfig("path", path=path, tokenizer=words, attention=attention)
    if name in SHIPPED:
        return ModelConfig(name, id=name, attention=attention)
    if source.get("option") == default.name:
        return default
    if source.get("option") == "wrapped":
        what = printable(str(source.get("class") or "model"))
        raise InputProblem(
            f"this snapshot was saved from a {what} of Python, an object that no command knows. Keep that model "
            "(model.save_pretrained(DIR), and its tokenizer there) and say where: model=path model.path=DIR."
        )
    raise InputProblem(
        f"this snapshot was saved from model={source.get('option')}, which is not loaded on a "
        f"snapshot's word alone. Say it: model={source.get('option')}"
        + (" with the same model.config values." if source.get("architecture") else ".")
    )


def _check(cfg: Any, manifest: dict[str, Any], source: dict[str, Any]) -> None:
    """Raise RestoreRefused when the config of the chosen model has other shapes than the saved one."""
    saved = manifest["documents"].get("model_config", {}).get("config", {})
    live = declared(cfg.model)
    if live is None or not isinstance(saved, dict):
        return  # the loader says better what is wrong with it
    known = [key for key in SHAPES if live.get(key) is not None]
    if any(saved.get(key) != live[key] for key in known):
        was, now = _described(saved, source), _described(live, {"path": cfg.model.path})
        now = now if cfg.model.path else f"{cfg.model.name}, {now}"
        place = str(cfg.snapshot)
        label = f"{BY_NAME['model_config'].label} model_config"
        differ = [Difference(label, "weights", was, now)]
        chosen_now = {"option": cfg.model.name, "id": cfg.model.id, "path": cfg.model.path}
        load = typed(source, chosen_now)
        problem = RestoreRefused(place, differ, fits=fits(saved, live), load=load)
        problem.known = read(manifest)
        raise problem


def read(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What the `manifest` of a snapshot says of its tokens and which it is, as keys of a `result.json`."""
    tokens = [e for e in manifest["elements"] if e["name"] == TOKENS]
    return {
        "elements": [{"name": e["name"], "digest": e["digest"]} for e in tokens],
        "size": {"tokens": manifest["tokens"]},
        "snapshot_id": manifest["id"],
    }


def ids_alone(documents: Mapping[str, Any]) -> bool:
    """Whether the state of these documents is of a model without a tokenizer."""
    known = documents.get("tokenizer")
    special = known.get("special_tokens") if isinstance(known, Mapping) else None
    return isinstance(special, Mapping) and special.get("unk_token") == NO_ID


def typed(source: Any, now: Mapping[str, Any]) -> str:
    """The options that load what `source` of a snapshot names, as they are typed; empty where nothing tells them, or
    where it is the one that is loaded `now`."""
    if not isinstance(source, Mapping) or all(source.get(key) == now.get(key) for key in PLACE):
        return ""
    path, option = source.get("path"), str(source.get("option"))
    if isinstance(path, str):
        return f"model=path model.path={shlex.quote(path) if moved.there(path) else 'DIR'}"
    return f"model={option}" if re.fullmatch(r"\w+", option) and option not in UNNAMED else ""


def _described(config: dict[str, Any], source: dict[str, Any]) -> str:
    """`a 22-layer llama of 1.1B at DIR`."""
    layers = config.get("num_hidden_layers") or config.get("n_layer")
    count = source.get("parameters")
    size = (
        ""
        if not count
        else f" of {count / 1e9:.2g}B"
        if count >= 1e8
        else f" of {count / 1e6:.2g}M"
    )
    where = source.get("path") or source.get("id")
    return f"a {layers}-layer {config.get('model_type')}{size}" + (f" at {where}" if where else "")
