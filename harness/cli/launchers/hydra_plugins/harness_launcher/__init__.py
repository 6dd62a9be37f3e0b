"""`hydra/launcher=submitit_slurm_packed` and `submitit_local_packed`: several points in each job.

Hydra looks for launchers in this namespace only. Submitit gives every point a job of its own, and a job
begins with the import of torch and a tracking store: seconds, where a cheap point takes a tenth of one.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

with suppress(ImportError):  # without the extra `submitit` Hydra finds nothing here
    from hydra.core.config_store import ConfigStore
    from hydra_plugins.hydra_submitit_launcher.config import LocalQueueConf, SlurmQueueConf
    from hydra_plugins.hydra_submitit_launcher.submitit_launcher import (
        LocalLauncher,
        SlurmLauncher,
    )

    class Packed:
        """`points_per_job` points, one after the other, are what submitit takes for one.

        A job that is requeued runs the whole pack again: points that are finished answer at once.
        """

        def __init__(self, points_per_job: int, **params: Any):
            super().__init__(**params)
            self.points_per_job = points_per_job

        def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[Any]:
            points = [
                json.dumps([initial_job_idx + i, list(overrides)])
                for i, overrides in enumerate(job_overrides)
            ]
            size = max(self.points_per_job, 1)
            packs = [points[i : i + size] for i in range(0, len(points), size)]
            answers = super().launch(packs, initial_job_idx)  # type: ignore[misc]
            return [one for pack in answers for one in pack]

        def __call__(self, pack: list[str], place: str, _: int, name: str, state: Any) -> list[Any]:
            run = super().__call__  # type: ignore[misc]
            points = map(json.loads, pack)
            return [run(overrides, place, number, name, state) for number, overrides in points]

    class PackedSlurm(Packed, SlurmLauncher):  # type: ignore[misc]
        """Packs as tasks of one job array."""

    class PackedLocal(Packed, LocalLauncher):  # type: ignore[misc]
        """Packs as processes of this machine."""

    @dataclass
    class PackedSlurmConf(SlurmQueueConf):  # type: ignore[misc]
        _target_: str = f"{__name__}.PackedSlurm"
        points_per_job: int = 25

    @dataclass
    class PackedLocalConf(LocalQueueConf):  # type: ignore[misc]
        _target_: str = f"{__name__}.PackedLocal"
        points_per_job: int = 25

    for kind, node in (("slurm", PackedSlurmConf), ("local", PackedLocalConf)):
        choice = {"group": "hydra/launcher", "name": f"submitit_{kind}_packed", "node": node}
        ConfigStore.instance().store(**choice, provider="harness")
