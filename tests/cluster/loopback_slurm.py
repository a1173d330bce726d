"""A Slurm of one node on loopback, with keys, state and configuration in a temporary folder."""

import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from electra.cluster.processes import free_port

DAEMONS = ("slurmctld", "slurmd", "munged")
CONFIGURATION = """\
ClusterName=loopback
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
# no cgroups: a container's are often read-only
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2
ReturnToService=2
MinJobAge=300
NodeName=localhost NodeHostname={host} NodeAddr=127.0.0.1 Port={node_port} CPUs={cpus} State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=NO State=UP
"""


class CannotStart(Exception):
    """Why there is no Slurm."""


class LoopbackSlurm:
    """Context in which ``sbatch`` and ``srun`` reach a Slurm of this machine, given ``environment``."""

    def __init__(self, folder: Path):
        self.folder, self.processes = folder, []
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}

    def __enter__(self) -> "LoopbackSlurm":
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if len(self.processes) == len(DAEMONS):
            self._empty_queue()
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self) -> None:
        programs = {name: shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") for name in (*DAEMONS, "mungekey")}
        missing = [name for name, path in programs.items() if path is None]
        if missing:
            raise CannotStart(f"not installed: {', '.join(missing)} (Debian: slurmctld slurmd munge)")
        for name in ("munge", "state", "spool", "log"):
            (self.folder / name).mkdir(parents=True)
        munge = self.folder / "munge"
        munge.chmod(0o711)
        subprocess.run([programs["mungekey"], "--create", "--keyfile", munge / "key"], check=True)
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                host=socket.gethostname().split(".")[0],
                user=getpass.getuser(),
                controller_port=free_port(),
                node_port=free_port(),
                cpus=os.cpu_count(),
                folder=self.folder,
            )
        )
        files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        options = [f"--{option}={munge / name}" for option, name in files.items()]
        self._daemon("munged", [programs["munged"], "--foreground", "--force", *options])
        self._until("munged", (munge / "socket").exists)
        self._daemon("slurmctld", [programs["slurmctld"], "-D", "-i"])
        self._daemon("slurmd", [programs["slurmd"], "-D", "-N", "localhost"])
        self._until("slurmd", lambda: "idle" in self.run("sinfo", "--noheader", "--format", "%T").stdout)

    def _empty_queue(self) -> None:
        """A job that a failed test leaves behind would outlive the daemons."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and (
            jobs := self.run("squeue", "--noheader", "--format", "%i").stdout.split()
        ):
            self.run("scancel", *jobs)
            time.sleep(0.5)

    def _daemon(self, name: str, command: list[str]) -> None:
        environment = {**os.environ, **self.environment}
        with open(self.folder / "log" / name, "w") as log:
            self.processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))

    def _until(self, name: str, condition) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            if time.monotonic() > deadline or any(process.poll() is not None for process in self.processes):
                log = (self.folder / "log" / name).read_text()[-1000:]
                raise CannotStart(f"{name} does not come up: {log}")
            time.sleep(0.2)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, **self.environment}, timeout=60
        )
