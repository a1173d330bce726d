"""Starting pre-training: in this process where one is enough, else one process per GPU (or share of the cores)."""

import os
import subprocess
import sys

from electra.config import Settings
from electra.errors import InfrastructureError
from electra.hardware import resolve_machine
from electra.paths import Paths


def launch_pretraining(settings: Settings, paths: Paths) -> None:
    """Run :func:`electra.pretrain.run.pretrain` on all processes of this machine and wait for them.

    Inside a launcher's process (``torchrun``, ``deepspeed``: they set RANK), this is one of them.

    Raises:
        ElectraError: what the training itself raises (alone) or reports with its exit code (several processes).
    """
    machine = resolve_machine(settings.cluster, settings.pretrain.batch_size)
    os.environ["OMP_NUM_THREADS"] = str(machine.num_threads)
    if machine.num_processes == 1 or "RANK" in os.environ:
        from electra.pretrain.run import pretrain

        return pretrain(settings, paths)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts=0"]
    command += [f"--nproc-per-node={machine.num_processes}", "-m", "electra", "pretrain"]
    code = subprocess.run(command, check=False).returncode
    if code:
        raise InfrastructureError(
            f"pre-training on {machine.num_processes} processes ended with exit code {code}",
            next_step="the first process to fail says why above; run the same command to resume",
        )
