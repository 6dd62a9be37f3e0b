"""A Ray of two nodes on this machine: started for a test, stopped at its end. Ray listens on every address,
whatever it is told, so it is given a token that only this test knows."""

import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracking import ENV, free_port, kill

HERE = "127.0.0.1"
QUIET = {**ENV, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token",
         "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # fmt: skip


@contextmanager
def cluster() -> Iterator[tuple[str, subprocess.Popen]]:
    """`(address, the second node)` of a head and a node with a core each."""
    port = free_port()
    address = f"{HERE}:{port}"
    # Ray's sockets have long names, pytest's folders too
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as place:
        head = _start(
            place, "--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={place}"
        )
        try:
            _wait(address, head, 1)
            node = _start(place, f"--address={address}")
            try:
                _wait(address, node, 2)
                yield address, node
            finally:
                kill(node)
        finally:
            kill(head)


def _start(place: str, *arguments: str) -> subprocess.Popen:
    ray = Path(sys.executable).with_name("ray")
    return subprocess.Popen(
        [ray, "start", "--block", f"--node-ip-address={HERE}", "--num-cpus=1", "--disable-usage-stats",
         "--object-store-memory=100000000", *arguments],
        env=QUIET, stdout=(Path(place) / "said").open("a"), stderr=subprocess.STDOUT,
    )  # fmt: skip


def _wait(address: str, process: subprocess.Popen, nodes: int) -> None:
    ray = Path(sys.executable).with_name("ray")
    give_up = time.time() + 60
    while True:
        said = subprocess.run([ray, "status", f"--address={address}"], env=QUIET, text=True,
                              capture_output=True).stdout  # fmt: skip
        if said.count("node_") >= nodes:
            return
        assert process.poll() is None and time.time() < give_up, said
        time.sleep(0.5)
