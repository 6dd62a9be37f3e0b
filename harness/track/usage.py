"""What a longer run took of its machine, sampled from `/proc` beside it, under MLflow's own names."""

import os
import threading
import time
from pathlib import Path
from typing import Any

EVERY = 2.0  # seconds between two samples, at first
SAMPLES = 240  # when so many are kept every second one goes, and the pace halves
LONGER = 20.0  # seconds from which on a run has such metrics

BATCH = 1000  # metrics per request, the server's limit

Sample = tuple[str, float, int, int]  # name, value, milliseconds since 1970, which of its name


class Watch(threading.Thread):
    """Samples the process `pid` and the machine until this process ends."""

    def __init__(self, pid: int):
        super().__init__(daemon=True)
        self.pid, self.every = pid, EVERY
        self._samples: list[tuple[int, dict[str, float]]] = []
        self._before = (0.0, 0.0)
        if Path("/proc/self/stat").exists():
            self._before = self._ticks()
            self.start()

    def run(self) -> None:
        """One sample each `every` seconds."""
        while True:
            time.sleep(self.every)
            try:
                self._samples.append((int(time.time() * 1000), self._sample()))
            except (OSError, ValueError):
                return  # the process is gone
            if len(self._samples) >= SAMPLES:
                self._samples, self.every = self._samples[::2], self.every * 2

    def since(self, began: int, ended: int) -> list[Sample]:
        """The samples between two times in milliseconds; none for a short run."""
        if ended - began < LONGER * 1000:
            return []
        inside = [(when, values) for when, values in self._samples if began <= when <= ended]
        return [
            (f"system/{name}", value, when, step)
            for step, (when, values) in enumerate(inside)
            for name, value in values.items()
        ]

    def _sample(self) -> dict[str, float]:
        """What is in use now. Raises OSError where the process is gone."""
        busy, whole = self._ticks()
        share = (busy - self._before[0]) / max(whole - self._before[1], 1e-9)
        self._before = busy, whole
        memory = dict(
            line.split(":")
            for line in Path("/proc/meminfo").read_text().splitlines()
            if ":" in line
        )
        total, free = (float(memory[key].split()[0]) for key in ("MemTotal", "MemAvailable"))
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        if not pages:
            raise ProcessLookupError(f"process {self.pid} has ended and waits to be collected")
        return {
            "cpu_utilization_percentage": 100 * share,
            "system_memory_usage_percentage": 100 * (1 - free / total),
            "process_memory_megabytes": pages * os.sysconf("SC_PAGESIZE") / 2**20,
        }

    def _ticks(self) -> tuple[float, float]:
        """`(busy, all)` ticks of the machine's cores since it began."""
        ticks = [float(v) for v in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def log(client: Any, run_id: str, watch: Watch | None, began: int, ended: int) -> None:
    """What was sampled of the machine between two times in milliseconds, as metrics of the run."""
    from mlflow.entities import Metric

    samples = watch.since(began, ended) if watch is not None else []
    machine = [Metric(*sample) for sample in samples]
    for start in range(0, len(machine), BATCH):
        client.log_batch(run_id, metrics=machine[start : start + BATCH])
