"""What the model directory's generation_config.json says, as a SamplingConfig."""

import json
from dataclasses import fields
from pathlib import Path

from harness.config import SamplingConfig, option, readable
from harness.errors import ConfigProblem, InputProblem
from harness.model.configured import first_line
from harness.model.loaded import Loaded

# strategies of `generate` that are no choice of one next token: they would be ignored, so they are told
OTHERS = (
    "guidance_scale", "watermarking_config", "encoder_repetition_penalty", "penalty_alpha",
    "encoder_no_repeat_ngram_size", "forced_bos_token_id", "forced_eos_token_id", "dola_layers",
    "constraints", "force_words_ids", "token_healing", "prompt_lookup_num_tokens",
)  # fmt: skip


def absent(loaded: Loaded) -> bool:
    """Whether the model has no generation_config.json, so that it is greedy unless its config.json says more.

    Raises InputProblem for one that cannot be read: the library passes over it in silence.
    """
    if not getattr(loaded.model.generation_config, "_from_model_config", False):
        return False
    folder = loaded.model.config._name_or_path
    file = Path(folder) / "generation_config.json"
    if not folder or not file.is_file():
        return True
    try:
        json.loads(file.read_bytes())
    except (OSError, ValueError) as problem:
        raise InputProblem(
            f"{file} cannot be read: {first_line(problem)} Correct it, or give sampling=greedy or sampling=sample."
        ) from problem
    return True


def declared(loaded: Loaded, settings: SamplingConfig) -> SamplingConfig:
    """`greedy` or `sample` with the values of the model's generation config, filled up as `generate`
    fills it up; `stop`, `eos_token_id` and `seed` of `settings` go before.

    Raises ConfigProblem where it asks for a strategy that chooses no single token (beams, guidance), InputProblem
    for a file that cannot be read.
    """
    from transformers import GenerationConfig

    absent(loaded)
    wanted = GenerationConfig()
    wanted.update(**loaded.model.generation_config.to_dict(), defaults_only=True)
    wanted.update(**wanted._get_default_generation_params(), defaults_only=True)
    others = [key for key in OTHERS if getattr(wanted, key, None) not in (None, 0, 1, False)]
    others += ["num_beams"] if wanted.num_beams not in (None, 0, 1) else []
    if others:
        named = ", ".join(f"{key}={getattr(wanted, key)}" for key in others)
        raise ConfigProblem(
            f"the model's generation config asks for {named}, which chooses no single next token. "
            "Give sampling=greedy or sampling=sample."
        )
    name = "sample" if wanted.do_sample else "greedy"
    known = {f.name for f in fields(SamplingConfig)} & readable("sampling", name)
    values = {key: getattr(wanted, key, None) for key in known}
    values |= {"stop": settings.stop or wanted.stop_strings, "seed": settings.seed}
    values["eos_token_id"] = settings.eos_token_id
    off = {"typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0}  # there it is switched off
    options = {k: v for k, v in values.items() if v is not None and k != "name" and v != off.get(k)}
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]
    return option("sampling", name, **options)
