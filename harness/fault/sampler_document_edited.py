"""The sampler's settings edited in the manifest, which is then hashed anew."""

from pathlib import Path
from typing import Any

from harness.fault import edit
from harness.fault.base import Fault


class SamplerDocumentEdited(Fault):
    element = 13
    bed = "sampled"
    why = "whoever resumes goes on with another sampler, and is told it was saved so"

    def disk(self, folder: Path) -> None:
        def warm(manifest: dict[str, Any]) -> None:
            manifest["documents"]["generation"]["sampler"]["temperature"] = 1.9

        edit.manifest(folder, warm)
