"""Write the golden snapshots of the current format version: python tests/save/golden/make.py

Run it once per format version, never again for an old one: they are what older writers wrote.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[2])]

from store_states import apart, grown, make_state, settings  # noqa: E402

from harness.save import store  # noqa: E402
from harness.snapshot import manifest as manifests  # noqa: E402

for form in ("safetensors", "torch", "pickle", "gzip", "blosc2"):
    place = HERE / f"v{manifests.FORMAT_VERSION}" / form
    store.save(apart(make_state("bfloat16", tokens=8)), place / "a", settings(form))
    back, _ = store.load(place / "a")
    store.save(grown(back, 3, 700), place / "b", settings(form))
