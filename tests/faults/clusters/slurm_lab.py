"""A real SLURM on this machine for as long as a test session: a controller and two nodes, which talk on the loopback address alone.

Every daemon ends with the process that started it, however that ends: the system sends it a signal.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
COMMANDS = ("sbatch", "squeue", "scontrol", "scancel")
PATIENCE = 120.0  # seconds
PR_SET_PDEATHSIG = 1
CONFIGURATION = """
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPort={controller}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1,requeue_delay=1
MinJobAge=600
KillWait=5
OverTimeLimit=0
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=2 RealMemory=4000 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=cpu Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str | None:
    """Why there can be no SLURM here; None where there can."""
    path = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
    lacking = [name for name in (*DAEMONS, *COMMANDS) if shutil.which(name, path=path) is None]
    if lacking:
        return f"SLURM is not installed here ({', '.join(lacking)}; Debian: slurmctld slurmd slurm-client munge)"
    return None if os.geteuid() == 0 else "SLURM's daemons are started by root"


@dataclass
class Slurm:
    """A controller and two nodes of two cores each."""

    folder: Path
    daemons: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """In which SLURM's commands find it."""
        path = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
        return {**os.environ, "PATH": path, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self) -> None:
        """Start everything, and wait until both nodes can be given work."""
        self.folder.chmod(0o755)
        (self.folder / "state").mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        ports = dict(zip(("controller", "first", "second"), _free_ports(3), strict=True))
        host = socket.gethostname().partition(".")[0]
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(folder=self.folder, host=host, **ports))
        (self.folder / "cgroup.conf").write_text("")
        files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munge.pid"}
        files |= {"log-file": "munge.log", "seed-file": "munge.seed"}
        self._daemon("munged", "-F", "-f", *(f"--{name}={self.folder / file}" for name, file in files.items()))
        self._until(lambda: (self.folder / "munge.socket").exists(), "munge")
        self._daemon("slurmctld", "-D", "-i")
        for node in ("n1", "n2"):
            self._daemon("slurmd", "-D", "-N", node)
        self._until(lambda: self.run("sinfo", "-h", "-N", "-o", "%T").split() == ["idle", "idle"], "the nodes")

    def stop(self) -> None:
        """End all jobs, then the daemons."""
        self.run("scancel", "--full", "--user", "root", check=False)
        self._until(lambda: not self.run("squeue", "-h", check=False), "the end of all jobs")
        for daemon in reversed(self.daemons):
            daemon.terminate()
            daemon.wait(60)

    def kill(self) -> None:
        """End the daemons at once, those that still run."""
        for daemon in self.daemons:
            if daemon.poll() is None:
                daemon.kill()
                daemon.wait()

    def run(self, *words: object, cwd: Path | None = None, check: bool = True) -> str:
        """What a command of SLURM says."""
        done = subprocess.run(
            [str(word) for word in words], cwd=cwd, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 or not check, (words, done.stderr)
        return done.stdout.strip()

    def state(self, job: str) -> set[str]:
        """States of a job, or of all tasks of an array."""
        return set(self.run("squeue", "-h", "-a", "-t", "all", "-r", "-j", job, "-o", "%T").split())

    def until_ended(self, job: str) -> set[str]:
        """Wait for the end of a job, or of all tasks of an array."""
        waiting = {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED"}
        self._until(lambda: not self.state(job) & waiting, f"the end of job {job}", 900)
        return self.state(job)

    def _daemon(self, *words: str) -> None:
        with (self.folder / "daemons.log").open("ab") as out:
            self.daemons.append(
                subprocess.Popen(words, env=self.environment, stdout=out, stderr=out, preexec_fn=_end_with_parent)
            )

    def _until(self, reached: Callable[[], object], what: str, patience: float = PATIENCE) -> None:
        end = time.monotonic() + patience
        while not reached():
            assert time.monotonic() < end, f"waited in vain for {what}: {self.logs()}"
            time.sleep(0.2)

    def logs(self) -> str:
        """Last lines of what the daemons have written."""
        return "\n".join(
            f"{path.name}: {path.read_text(errors='replace')[-2000:]}" for path in self.folder.glob("*.log")
        )


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
