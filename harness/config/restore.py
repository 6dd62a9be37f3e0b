"""What a restore insists on."""

from dataclasses import dataclass, field


@dataclass
class RestoreConfig:
    strict: bool = True
    map: bool | None = None  # restored tensors mapped from their files; null: where that is safe
    trusted: list[str] = field(default_factory=list)  # public keys, one of which must have signed
