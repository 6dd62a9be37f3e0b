"""What recording costs a single short run: pairs of `track=mlflow` and `track=none`, by turns.

    make recording ARGS='--pairs 11 --fresh'

wall_s: until the prompt is back. free_s: of that, without what its main thread waited for a core, as on a machine
with cores to spare. record_s: the run's last stage, in which it waits for its records. cpu_s: of the
run itself; beside_s: of the process that records it, counted to its own end. --fresh: into a store that the run
has to make, as a first run does. Medians; of the ratios also their middle half.
"""

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": str(ROOT)}
STAGE = re.compile(r"^ *record .*\(([\d.]+) s\)", re.MULTILINE)
KEYS = ("wall_s", "free_s", "record_s", "cpu_s", "beside_s")
TRACKS = ("mlflow", "none")
SUBREAPER = 36  # of prctl: who is left behind below this process becomes its child


def run(track: str, place: Path, arguments: list[str]) -> dict[str, float]:
    """One run, and the processes it leaves."""
    command = [sys.executable, "-m", "harness", f"track={track}", f"runs_dir={place}", *arguments]
    said, began = (place / "said").open("w+"), time.perf_counter()
    job = subprocess.Popen(command, cwd=ROOT, env=ENV, stdout=subprocess.DEVNULL, stderr=said)
    os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)
    wall = time.perf_counter() - began
    queued = int(Path(f"/proc/{job.pid}/schedstat").read_text().split()[1]) / 1e9
    _, code, used = os.wait4(job.pid, 0)
    said.seek(0)
    text = said.read()
    assert code == 0, text
    beside = 0.0
    while True:
        try:
            _, _, left = os.wait4(-1, 0)
        except ChildProcessError:
            break
        beside += left.ru_utime + left.ru_stime
    record, cpu = float(STAGE.findall(text)[-1]), used.ru_utime + used.ru_stime
    return dict(zip(KEYS, (wall, wall - queued, record, cpu, beside), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument("--fresh", action="store_true")
    asked, arguments = parser.parse_known_args()
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    pairs = []
    with tempfile.TemporaryDirectory(prefix="recording-") as folder:
        place = Path(folder)
        for number in range(asked.pairs + 1):
            if asked.fresh or not number:
                place = Path(folder, str(number))
                place.mkdir()
            order = TRACKS if number % 2 else TRACKS[::-1]
            pair = {track: run(track, place, arguments) for track in order}
            if number:  # the first warms the machine's caches
                pairs.append(pair)
                print(json.dumps(pair), file=sys.stderr, flush=True)
    told: dict[str, object] = {"pairs": asked.pairs, "fresh": asked.fresh}
    for key in KEYS:
        told[key] = {t: round(median(p[t][key] for p in pairs), 2) for t in TRACKS}
        ratios = [p["mlflow"][key] / (p["none"][key] or 1) for p in pairs]
        low, middle, high = (round(q, 2) for q in quantiles(ratios, n=4))
        if key != "beside_s":
            told[key] |= {"ratio": middle, "middle_half": [low, high]}
    more = median(p["mlflow"]["record_s"] - p["none"]["record_s"] for p in pairs)
    told["waited_s"] = round(more, 2)
    told["waited_share"] = round(more / median(p["none"]["wall_s"] for p in pairs), 3)
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
