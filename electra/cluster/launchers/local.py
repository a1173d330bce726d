"""Launchers that start processes on this machine by torch's elastic agent, or by DeepSpeed's launcher."""

import base64
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil

from electra.cluster.launchers.job import COMMAND, Job, error_of_code
from electra.cluster.processes import LAUNCHER_PID, EndRequest, die_with_parent, free_port
from electra.common.errors import ConfigError, InfrastructureError

# Signals on which a process writes a checkpoint and ends; Slurm and others announce a job's time limit by USR1 or USR2.
_FORWARDED = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2"


class LocalLauncher:
    """Launcher by torch's elastic agent: ``local`` for one machine; ``torchrun`` for nodes that meet at an endpoint."""

    def render(self, job: Job) -> str:
        words = ["torchrun", f"--nproc-per-node={job.processes_per_node}", "--max-restarts=0"]
        if job.cluster.launcher == "torchrun":
            words += [
                f"--nnodes={job.cluster.num_nodes}",
                "--rdzv-backend=c10d",
                f"--rdzv-endpoint={job.cluster.torchrun.endpoint}",
                f"--rdzv-id={job.fingerprint}",
            ]
        else:
            words.append("--standalone")
        return shlex.join([*words, *COMMAND]) + "\n"

    def run(self, job: Job) -> None:
        start_processes(job, endpoint=job.cluster.torchrun.endpoint)


def start_processes(job: Job, endpoint: str, node_rank: int | None = None) -> None:
    """Start this node's processes and wait for them.

    Args:
        endpoint: host:port where the nodes meet.
        node_rank: this node's number; None if the agents agree on the order.

    Raises:
        ElectraError: training failed; the first process to fail decides the exit code.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous.api import RendezvousError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    timeout = round(60 * job.cluster.timeout_minutes)
    config = LaunchConfig(
        min_nodes=job.cluster.num_nodes,
        max_nodes=job.cluster.num_nodes,
        nproc_per_node=job.processes_per_node,
        rdzv_backend="c10d" if node_rank is None else "static",
        rdzv_endpoint=endpoint,
        rdzv_configs={
            "timeout": timeout,
            "join_timeout": timeout,
            **({} if node_rank is None else {"rank": node_rank}),
        },
        run_id=job.fingerprint,
        max_restarts=0,
        signals_to_handle=_FORWARDED,
        shutdown_timeout=job.cluster.grace_seconds,
    )
    os.environ[LAUNCHER_PID] = str(os.getpid())
    try:
        elastic_launch(config, sys.executable)(*COMMAND)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        raise error_of_code(failure.exitcode)(
            f"process {rank} of {job.num_processes} ended with {_outcome(failure.exitcode)}",
            next_step="it says why above; run the same command to go on from the last checkpoint",
        ) from None
    except SignalException as error:
        raise InfrastructureError(
            f"ended by {signal.Signals(error.sigval).name}", next_step="run the same command to go on"
        ) from None
    except RendezvousError as error:
        raise InfrastructureError(
            f"not all of {job.cluster.num_nodes} nodes met within {job.cluster.timeout_minutes:g} minutes: {error}",
            where=endpoint,
            next_step="start the same command on every node; the endpoint must be one of them",
        ) from None


def _outcome(exit_code: int) -> str:
    return signal.Signals(-exit_code).name if exit_code < 0 else f"exit code {exit_code}"


_MODULE = ("--module", "--no_local_rank", *COMMAND[1:])


class DeepSpeedLauncher:
    """Launcher ``deepspeed``: DeepSpeed's per-node launcher for one node, its runner and pdsh for several."""

    def render(self, job: Job) -> str:
        return shlex.join(self._command(job, port=29500)) + "\n"

    def run(self, job: Job) -> None:
        """Start DeepSpeed's launcher, wait for it, and forward signals to the training processes.

        Raises:
            ElectraError: training failed; DeepSpeed's launcher ends with the exit code of the first process to fail.
        """
        with EndRequest() as end:
            environment = {**os.environ, LAUNCHER_PID: str(os.getpid())}
            launched = subprocess.Popen(
                self._command(job, free_port()), cwd=job.root, env=environment, preexec_fn=die_with_parent
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
            # The program that the `deepspeed` command runs on each node. If that command were killed, it would go on.
            slots = json.dumps({"localhost": _visible_devices(job.processes_per_node)})
            world = base64.urlsafe_b64encode(slots.encode()).decode()
            where = ["-m", "deepspeed.launcher.launch", f"--world_info={world}", "--master_addr=127.0.0.1"]
            return [sys.executable, *where, f"--master_port={port}", *_MODULE]
        nodes = [f"--hostfile={job.cluster.deepspeed.hostfile}", f"--num_nodes={job.cluster.num_nodes}"]
        nodes += [f"--num_gpus={job.processes_per_node}", f"--master_port={port}"]
        return [sys.executable, "-m", "deepspeed.launcher.runner", *nodes, *_MODULE]


def _visible_devices(number: int) -> list[int | str]:
    """Return the first devices that this process may use, from which the launcher sets CUDA_VISIBLE_DEVICES again."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not visible:  # on a CPU they only number the processes
        return list(range(number))
    names = [name.strip() for name in visible.split(",")]
    if len(names) < number:
        raise ConfigError(
            f"{number} processes are requested, CUDA_VISIBLE_DEVICES={visible} has {len(names)} devices",
            where="cluster.num_processes",
            next_step=f"request at most {len(names)}",
        )
    return [int(name) if name.isdigit() else name for name in names[:number]]


def _end(launched: subprocess.Popen, num_nodes: int, grace_seconds: int) -> None:
    """Terminate the training processes directly: the launcher would kill them after 30 seconds, even while writing."""
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
        launched.kill()  # its processes die with it: electra/cluster/launchers/local.py
