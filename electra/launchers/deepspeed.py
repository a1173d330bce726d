"""DeepSpeed's own launcher: processes on this machine, or by ssh on those of a hostfile."""

import base64
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress

import psutil

from electra.errors import ConfigError
from electra.launchers.job import COMMAND, Job, error_of_code
from electra.launchers.signals import EndRequest
from electra.processes import LAUNCHER_PID, die_with_parent

_MODULE = ("--module", "--no_local_rank", *COMMAND[1:])


class DeepSpeedLauncher:
    """``deepspeed``: one node through DeepSpeed's per-node launcher, several through its runner and pdsh."""

    def render(self, job: Job) -> str:
        return shlex.join(self._command(job, port=29500)) + "\n"

    def run(self, job: Job) -> None:
        """Start, wait, pass signals on.

        Raises:
            ElectraError: with the exit code that DeepSpeed's launcher ended with, that of the first process to fail.
        """
        with EndRequest() as end:
            environment = {**os.environ, LAUNCHER_PID: str(os.getpid())}
            launched = subprocess.Popen(
                self._command(job, _free_port()), cwd=job.root, env=environment, preexec_fn=die_with_parent
            )
            while launched.poll() is None and not end.wait(0.5):
                pass
            if launched.poll() is None:
                _end(launched, num_nodes=job.cluster.num_nodes, grace_seconds=job.cluster.grace_seconds)
        code = launched.wait()
        if code:
            raise error_of_code(code)(
                f"DeepSpeed's launcher ended with {code}" + (f" after {end.name}" if end.name else ""),
                next_step="it says why above; run the same command to go on from the last checkpoint",
            )

    def _command(self, job: Job, port: int) -> list[str]:
        if job.cluster.num_nodes == 1:
            # What the `deepspeed` command runs on each node. That command itself, killed, would leave this one behind.
            slots = json.dumps({"localhost": list(range(job.processes_per_node))})
            world = base64.urlsafe_b64encode(slots.encode()).decode()
            where = ["-m", "deepspeed.launcher.launch", f"--world_info={world}", "--master_addr=127.0.0.1"]
            return [sys.executable, *where, f"--master_port={port}", *_MODULE]
        hostfile = job.cluster.deepspeed.hostfile
        if hostfile is None:
            raise ConfigError("several nodes need a hostfile", where="cluster.deepspeed.hostfile")
        nodes = [f"--hostfile={hostfile}", f"--num_nodes={job.cluster.num_nodes}"]
        nodes += [f"--num_gpus={job.processes_per_node}", f"--master_port={port}"]
        return [sys.executable, "-m", "deepspeed.launcher.runner", *nodes, *_MODULE]


def _end(launched: subprocess.Popen, num_nodes: int, grace_seconds: int) -> None:
    """Tell the training processes first: the launcher would give them 30 seconds, whatever they have to write."""
    if num_nodes > 1:
        launched.send_signal(signal.SIGTERM)
    else:
        with suppress(psutil.NoSuchProcess):
            for process in psutil.Process(launched.pid).children():
                process.terminate()
    deadline = time.monotonic() + grace_seconds
    while launched.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    if launched.poll() is None:
        launched.kill()  # its processes die with it: electra/launchers/local.py


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]
