"""What `harness.load_model` is asked for: an option, a directory or a hub id."""

from difflib import get_close_matches
from pathlib import Path

from harness import config
from harness.errors import InputProblem
from harness.model.build import SHIPPED
from harness.variants import signature


def declared(source: str, revision: str | None, attention: str) -> config.ModelConfig:
    """What `source` names. Raises InputProblem for a folder that is not there, and for what is nearly
    an option."""
    known = [name for name in config.options("model") if name not in ("path", "shape")]
    place = Path(source).expanduser()
    if source not in SHIPPED and place.is_dir():
        return config.ModelConfig(name="path", path=source, attention=attention)
    if source in known and revision is None:
        keys = {k: v for k, v in signature("model", source).items() if k != "name"}
        option: config.ModelConfig = config.option(
            "model", source, **keys | {"attention": attention}
        )
        return option
    if source.startswith(("/", ".", "~")):
        raise InputProblem(f"{source}: there is no such directory. Check the path.")
    if "/" not in source and (near := get_close_matches(source, known, n=1, cutoff=0.7)):
        raise InputProblem(
            f"'{source}' is neither a model of ours nor a directory. Did you mean '{near[0]}'?"
        )
    return config.ModelConfig(name=source, id=source, revision=revision, attention=attention)
