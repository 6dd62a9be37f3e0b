"""What this machine has left: free disk, free memory. Asked before long work begins."""

import os
import shutil
import stat
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_SHARED = ("nfs", "cifs", "smb", "fuse", "ceph", "lustre", "gluster", "afs")


def free_disk(place: Path) -> int:
    """Bytes that can be written where `place` is, or would be: its nearest existing parent counts."""
    return shutil.disk_usage(_existing(place)).free


def has_disk(place: Path) -> bool:
    """Whether files can be kept there at all: `/proc` and the like are no disk."""
    return shutil.disk_usage(_existing(place)).total > 0


def _existing(place: Path) -> Path:
    place = place.absolute()
    while not place.exists():
        place = place.parent
    return place


def free_memory() -> int | None:
    """Bytes of memory that can still be used, by this container too; None where nobody says."""
    known = [n for n in (_system(), _container()) if n is not None]
    return min(known) if known else None


def nvidia() -> bool:
    """Whether a driver for CUDA devices is there; nothing heavy is imported to see it."""
    return any(
        Path(sign).exists() for sign in ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")
    )


def private(handle: int) -> bool:
    """Whether only this user (or root) on this machine can write into the opened directory."""
    folder = os.fstat(handle)
    ours = folder.st_uid in (0, os.getuid())
    return ours and not folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not shared(folder.st_dev)


def seconds(value: float) -> str:
    """`1.5 s`, `16 ms`, `0.41 ms`; where a line ends nothing parts the figure from its unit."""
    if value >= 1:
        return f"{value:.3g}\u00a0s"
    return f"{value * 1000:.{0 if value >= 0.01 else 2}{'f' if value >= 0.01 else 'g'}}\u00a0ms"


def human(nbytes: float) -> str:
    """`1.3 GiB`, `12 MiB`, `800 KiB`."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if nbytes >= 999.5 * size / 1024:  # four digits of the next smaller one
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes / 1024:.3g} KiB"


def many(count: int, noun: str) -> str:
    """`1 claim`, `0 claims`, `2 families`: what is counted, in the number that it has."""
    several = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else several}"


def free(port: int) -> bool:
    """Whether nobody listens there on this machine; 0 is any free one."""
    import socket

    with socket.socket() as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what was just closed is free
        try:
            ours.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def shared(device: int) -> bool:
    """Whether other machines, or a program, may serve and change what lies on this device."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return False
    kinds = [m.partition(" - ")[2].split()[0] for m in mounts if m.split()[2] == number]
    return any(kind.startswith(_SHARED) for kind in kinds)


def _system() -> int | None:
    try:
        with Path("/proc/meminfo").open() as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvail"))
    except (OSError, StopIteration, ValueError, IndexError):
        return None


def _container() -> int | None:
    """What the control group (version 2) leaves; file caches can be dropped, so they count as free."""
    try:
        group = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip()
        folder, left = _CGROUP / group.lstrip("/"), []
        while folder.is_relative_to(_CGROUP):
            limit = folder / "memory.max"
            if limit.exists() and (value := limit.read_text().strip()) != "max":
                used = int((folder / "memory.current").read_text())
                stat = dict(s.split() for s in (folder / "memory.stat").read_text().splitlines())
                left.append(int(value) - used + int(stat.get("inactive_file", 0)))
            folder = folder.parent
        return max(min(left), 0) if left else None
    except (OSError, ValueError):
        return None
