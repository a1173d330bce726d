"""``electra pretrain``: start its processes with the launcher named by ``cluster.launcher``, or run one of them."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from electra.cluster.hardware import resolve_machine
from electra.cluster.launchers.job import IN_JOB, Job, Launcher, Place, find_place, first_failure_told
from electra.cluster.launchers.kubernetes import KubernetesLauncher
from electra.cluster.launchers.local import DeepSpeedLauncher, LocalLauncher, start_processes
from electra.cluster.launchers.slurm import FIRST_FAILURE, SlurmLauncher
from electra.cluster.processes import LAUNCHER_PID, die_with_parent
from electra.common.paths import Paths
from electra.config import Cluster, Settings

LAUNCHERS: dict[str, type[Launcher]] = {
    "local": LocalLauncher,
    "torchrun": LocalLauncher,
    "deepspeed": DeepSpeedLauncher,
    "slurm": SlurmLauncher,
    "kubernetes": KubernetesLauncher,
}


@contextmanager
def launched(settings: Settings, paths: Paths) -> Iterator[Settings | None]:
    """Start the processes of a pre-training and wait for them, or be one of them: it trains in the block.

    In a process that a launcher has started, train as one of them; in a pod, start the pod's processes.

    Yields:
        This process's settings; None where others have trained, and have ended well.

    Raises:
        ElectraError: training failed; of several processes, the first to fail decides the exit code.
    """
    if os.environ.get(IN_JOB) and settings.cluster.device == "auto":  # the job has requested GPUs
        cluster = settings.cluster.model_copy(update={"device": "cuda"})
        settings = settings.model_copy(update={"cluster": cluster})
    cluster, place = settings.cluster, find_place()
    if place:
        own, in_slurm = _joined(settings, place), os.environ.get(IN_JOB) == "slurm"
        with first_failure_told(paths.logs / "pretrain/job" / FIRST_FAILURE) if in_slurm else nullcontext():
            yield own
    elif os.environ.get(IN_JOB) == "kubernetes":
        job, node_rank = describe_job(settings, paths, cluster), int(os.environ["NODE_RANK"])
        start_processes(job, endpoint=os.environ["RENDEZVOUS"], node_rank=node_rank)
        yield None
    elif cluster.launcher in ("slurm", "kubernetes"):
        LAUNCHERS[cluster.launcher]().run(describe_job(settings, paths, cluster))
        yield None
    else:
        machine = resolve_machine(cluster, settings.pretrain.batch_size)
        os.environ["OMP_NUM_THREADS"] = str(max(1, machine.num_threads))
        if machine.num_processes == 1 and cluster.launcher == "local":
            yield settings
        else:
            LAUNCHERS[cluster.launcher]().run(describe_job(settings, paths, cluster, machine.num_processes))
            yield None


def render_pretraining(settings: Settings, paths: Paths) -> str:
    """Return what :func:`launched` would start or submit, as text."""
    cluster = settings.cluster
    processes = None
    if cluster.num_processes == "auto":
        processes = resolve_machine(cluster, settings.pretrain.batch_size).num_processes
    return LAUNCHERS[cluster.launcher]().render(describe_job(settings, paths, cluster, processes))


def describe_job(settings: Settings, paths: Paths, cluster: Cluster, num_processes: int | None = None) -> Job:
    """Return the job of these settings.

    Raises:
        ConfigError: the global batch does not split evenly.
    """
    from electra.pretrain.checkpoint import fingerprint

    processes = num_processes if num_processes is not None else cluster.num_processes
    assert processes != "auto", "the schema requires a number if a queue is used"
    cluster.micro_batch(settings.pretrain.batch_size, processes)
    root = Path(os.path.abspath(paths.root))
    return Job(fingerprint(settings, paths), root, cluster, processes)


def _joined(settings: Settings, place: Place) -> Settings:
    """Prepare this process as one of several; return its settings."""
    settings = place.settings(settings)
    os.environ["OMP_NUM_THREADS"] = str(settings.cluster.num_threads)
    if place.world_size > 1:
        die_with_parent()
    if LAUNCHER_PID in os.environ:
        # While a process waits for others to join, Python's signal handlers do not run, and the launcher would wait for
        # it until grace_seconds are over. The training loop installs its handler; until then there is nothing to save.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return settings
