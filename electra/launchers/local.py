"""Processes on this machine, under torch's elastic agent; joined to those of other machines where there are several."""

import os
import shlex
import signal
import sys

from electra.errors import InfrastructureError
from electra.launchers.job import COMMAND, Job, error_of_code
from electra.processes import LAUNCHER_PID

# What makes a process write a checkpoint and end; Slurm and others announce the end of a job's time by USR1 or USR2.
_FORWARDED = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1,SIGUSR2"


class LocalLauncher:
    """``local``: all processes on this machine. ``torchrun``: the same, and those of other nodes at an endpoint."""

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
        node_rank: this node's number, where somebody has given one; else the agents agree on the order.

    Raises:
        ElectraError: of several processes, the first to fail decides the exit code.
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
