"""A PostgreSQL that the tests of servers share, and a sweep that goes on."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tracking import free_port

from harness import __main__ as front

POSTGRES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)), None)


@pytest.fixture(scope="module")
def postgres():
    """A PostgreSQL of our own on localhost, gone afterwards."""
    if POSTGRES is None:
        pytest.skip("no PostgreSQL server: apt-get install postgresql")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("no PostgreSQL driver: pip install 'harness[postgres]'")
    with TemporaryDirectory(
        prefix="postgres-"
    ) as place:  # not below a folder that only root may enter
        yield from _served(Path(place), free_port())


def _served(place: Path, port: int) -> Iterator[str]:
    user = []
    if os.geteuid() == 0:  # it refuses to run as root
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        shutil.chown(place, "postgres", "postgres")
    bins, data = POSTGRES.parent, place / "data"
    subprocess.run([*user, bins / "initdb", "-D", data, "-U", "harness", "-A", "trust"], check=True, capture_output=True)  # fmt: skip
    control = [*user, bins / "pg_ctl", "-D", data]
    options = (
        f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={place} -c fsync=off"
    )
    subprocess.run([*control, "-w", "-l", place / "log", "-o", options, "start"], check=True, capture_output=True)  # fmt: skip
    yield f"postgresql://harness@127.0.0.1:{port}/postgres"
    subprocess.run([*control, "-m", "immediate", "stop"], capture_output=True)


@pytest.fixture
def resumed(monkeypatch, capfd):
    """Resume the sweep of a folder in this process: the exit code and what was said."""

    def run(folder: Path) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["harness", "-m", f"resume={folder}"])
        code = front.main()
        return code, "".join(capfd.readouterr())

    return run
