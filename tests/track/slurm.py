"""A Slurm of one node on this machine, without accounting: started as root, stopped at the end."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tracking import free_port

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
CONF = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5,socket={place}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobRequeue=1
ReturnToService=2
KillWait=2
SlurmctldTimeout=30
SlurmdTimeout=30
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=60 State=UP
"""


def missing() -> str:
    """Why it cannot be started here, or nothing."""
    if os.getuid():
        return "a Slurm of one's own needs root"
    lacks = [name for name in PROGRAMS if not shutil.which(name)]
    return f"apt-get install slurm-wlm munge: there is no {', '.join(lacks)}" if lacks else ""


@contextmanager
def cluster(place: Path) -> Iterator[dict[str, str]]:
    """The environment in which its commands reach it. Ends what it started, and nothing else."""
    for name in ("state", "spool"):
        (place / name).mkdir(parents=True)
    key = place / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    conf = place / "slurm.conf"
    conf.write_text(
        CONF.format(place=place, host=socket.gethostname().partition(".")[0], cpus=os.cpu_count(),
                    controller=free_port(), node=free_port())
    )  # fmt: skip
    env = {**os.environ, "SLURM_CONF": str(conf)}
    munge = ["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={place}/munge.socket",
             f"--pid-file={place}/munged.pid", f"--seed-file={place}/munged.seed",
             f"--log-file={place}/munged.log"]  # fmt: skip
    started = []
    try:
        for command in (munge, ["slurmctld", "-D"], ["slurmd", "-D"]):
            started.append(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL,
                                            stderr=(place / f"{command[0]}.err").open("w")))  # fmt: skip
            time.sleep(0.5)
        _wait_until_idle(env, place)
        yield env
        _wait_until_empty(env)  # a step outlives its daemon otherwise
    finally:
        for daemon in reversed(started):
            daemon.terminate()
        for daemon in reversed(started):
            daemon.wait(20)


def _wait_until_idle(env: dict[str, str], place: Path) -> None:
    for _ in range(60):
        said = subprocess.run(["sinfo", "-h", "-o", "%T"], env=env, capture_output=True, text=True)
        if said.stdout.strip() in ("idle", "mixed"):
            return
        time.sleep(0.5)
    logs = "\n".join(p.read_text()[-2000:] for p in (*place.glob("*.log"), *place.glob("*.err")))
    raise AssertionError(f"no node is idle: {said.stdout} {said.stderr}\n{logs}")


def _wait_until_empty(env: dict[str, str]) -> None:
    for _ in range(60):
        if not subprocess.run(["squeue", "-h"], env=env, capture_output=True).stdout.strip():
            return
        time.sleep(0.5)
