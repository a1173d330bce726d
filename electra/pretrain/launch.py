"""Starting pre-training: in this process where one is enough, else one process per GPU (or share of the cores)."""

import os
import signal
import sys

from electra.config import Settings
from electra.errors import ConfigError, DataError, ElectraError, InfrastructureError, TrainingError
from electra.hardware import resolve_machine
from electra.paths import Paths
from electra.processes import die_with_parent


def launch_pretraining(settings: Settings, paths: Paths) -> None:
    """Run :func:`electra.pretrain.run.pretrain` on all processes of this machine and wait for them.

    Inside a launcher's process (``torchrun``, ``deepspeed``: they set RANK), this is one of them.

    Raises:
        ElectraError: what the training raises; of several processes, the first to fail decides the exit code.
    """
    machine = resolve_machine(settings.cluster, settings.pretrain.batch_size)
    os.environ["OMP_NUM_THREADS"] = str(machine.num_threads)
    if machine.num_processes > 1 and "RANK" not in os.environ:
        return _launch(machine.num_processes)
    if machine.num_processes > 1:
        die_with_parent()
    from electra.pretrain.run import pretrain

    pretrain(settings, paths)


def _launch(num_processes: int) -> None:
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_processes,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        run_id="pretrain",
        max_restarts=0,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "electra", "pretrain")
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        raise _as_error(failure.exitcode)(
            f"process {rank} of {num_processes} ended with {_outcome(failure.exitcode)}",
            next_step="it says why above; run the same command to go on from the last checkpoint",
        ) from None
    except SignalException as error:
        raise InfrastructureError(
            f"ended by {signal.Signals(error.sigval).name}", next_step="run the same command to go on"
        ) from None


def _as_error(exit_code: int) -> type[ElectraError]:
    by_code = {error.exit_code: error for error in (ConfigError, DataError, TrainingError)}
    return by_code.get(exit_code, InfrastructureError)


def _outcome(exit_code: int) -> str:
    return signal.Signals(-exit_code).name if exit_code < 0 else f"exit code {exit_code}"
