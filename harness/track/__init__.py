"""Where results go besides the run directory. `tracker` gives the option's object."""

from importlib import import_module
from pathlib import Path
from typing import Any

from harness.errors import ConfigProblem, suggestion


def tracker(settings: Any, runs_dir: str) -> Any:
    """The tracker that `settings` (a TrackConfig) names: an object with `begin` and `end`."""
    names = [p.stem for p in Path(__file__).parent.glob("*.py") if p.stem != "__init__"]
    if settings.name not in names:
        near = suggestion(settings.name, names)
        raise ConfigProblem(f"track={settings.name} is not a tracker.{near}")
    return import_module(f"harness.track.{settings.name}").TRACKER(settings, Path(runs_dir))
