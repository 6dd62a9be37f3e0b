"""The YAML of a sweep, parsed once however many points are composed of it."""

import copy
from typing import Any

from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource


class Remembered(ConfigRepository):
    """Hydra's own repository, which keeps what it has looked up and parsed. Hydra takes a deep copy for
    every point and changes what it is handed: such copies share what was parsed, and hand out copies of
    that. A file that is edited while a sweep runs is not read again: all points are of one sweep."""

    def initialize_sources(self, config_search_path: ConfigSearchPath) -> None:
        super().initialize_sources(config_search_path)
        self._parsed: dict[str, ConfigResult | None] = {}
        self._places: dict[tuple[str, ObjectType | None], ConfigSource | None] = {}

    def __deepcopy__(self, memo: Any) -> "Remembered":
        return copy.copy(self)

    def load_config(self, config_path: str) -> ConfigResult | None:
        if config_path not in self._parsed:
            self._parsed[config_path] = super().load_config(config_path)
        return copy.deepcopy(self._parsed[config_path])

    def _find_object_source(
        self, config_path: str, object_type: ObjectType | None
    ) -> ConfigSource | None:
        key = (config_path, object_type)
        if key not in self._places:
            self._places[key] = super()._find_object_source(config_path, object_type)
        return self._places[key]


def remember() -> None:
    """From now on the Hydra that runs parses each YAML once."""
    loader: Any = GlobalHydra.instance().config_loader()
    loader.repository = Remembered(loader.config_search_path)
