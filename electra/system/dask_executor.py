"""Text work on a Dask cluster: ``cluster.executor: dask``.

Dask finds workers for jobs, and gives the jobs of a worker that died to others. What is added here: a worker has to run
the same software as this process and to see the same folder, since otherwise its files would differ or be lost.
"""

import importlib.metadata
import os
import platform
import socket
import time
import unicodedata
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from electra.common.errors import ConfigError, InfrastructureError
from electra.system.processes import limit_threads

CONNECT_SECONDS = 30
NO_WORKER_SECONDS = 300  # a cluster that grows on demand needs some time to start its first worker
LIBRARIES = ("ftfy", "numpy", "pyarrow", "rensa", "tokenizers", "zstandard")  # those that the bytes written depend on


@contextmanager
def dask_backend(address: str | None, folder: Path, lower: str) -> Iterator["DaskBackend"]:
    """A connection to the cluster that ends with the block.

    Args:
        address: of the scheduler.
        folder: where the jobs write.
        lower: the setting to lower when memory runs out, for the message.

    Raises:
        ConfigError: there is no address, or Dask is not installed.
        InfrastructureError: the scheduler cannot be reached.
    """
    if address is None:
        raise ConfigError(
            "the address of the Dask scheduler is missing",
            where="cluster.dask_scheduler",
            next_step="start one (docs/scaling.md) and give its address, such as tcp://127.0.0.1:8786",
        )
    try:
        from distributed import Client
    except ImportError:
        raise ConfigError(
            "Dask is not installed", where="cluster.executor: dask", next_step="pip install 'electra-pipeline[dask]'"
        ) from None
    with ExitStack() as stack:
        try:
            client = stack.enter_context(Client(address, timeout=CONNECT_SECONDS, set_as_default=False))
        except (OSError, ValueError) as error:
            raise InfrastructureError(
                f"the Dask scheduler cannot be reached: {error}",
                where=f"cluster.dask_scheduler: {address}",
                next_step="start it (docs/scaling.md), or correct the address, and run the same command again",
            ) from None
        yield DaskBackend(client, address, folder.resolve(), lower)


class DaskBackend:
    """Jobs as tasks of a Dask cluster, through its ``concurrent.futures`` executor.

    Args:
        client: a connected ``distributed.Client``.
        address: of the scheduler, for messages.
        folder: absolute path of a folder that workers must see.
        lower: see :func:`dask_backend`.
    """

    def __init__(self, client: Any, address: str, folder: Path, lower: str):
        self._client, self._address, self._folder, self._lower = client, address, folder, lower
        # pure: a job writes files, so the result of an equal one must not stand for it. No retries: they are for errors
        # of the job itself; for a worker that died, Dask runs its jobs elsewhere anyway.
        self._executor = client.get_executor(pure=False, retries=0)
        self._seen_worker_at = time.monotonic()

    def submit(self, function: Callable[..., Any], /, *job: Any) -> Future[Any]:
        return self._executor.submit(run_job, partial(function, *job), self._folder, software())

    def num_in_flight(self) -> int:
        """Twice as many as the cluster has threads now: it may grow and shrink."""
        return max(2, 2 * sum(self._client.nthreads().values()))

    def watch(self) -> None:
        now = time.monotonic()
        if self._client.nthreads():
            self._seen_worker_at = now
        elif now - self._seen_worker_at > NO_WORKER_SECONDS:
            raise InfrastructureError(
                f"the Dask cluster has had no worker for {NO_WORKER_SECONDS} seconds",
                where=f"cluster.dask_scheduler: {self._address}",
                next_step=f"start one: dask worker {self._address} --nthreads 1; run the same command again",
            )

    def lost(self, error: BaseException) -> InfrastructureError | None:
        from distributed import KilledWorker

        if isinstance(error, KilledWorker):
            return InfrastructureError(
                f"{error.allowed_failures + 1} Dask workers died at the same job: memory ran out, or they were killed",
                where=f"last at {error.last_worker.address}",
                next_step=f"give workers more memory, or lower {self._lower}; run the same command again",
            )
        if isinstance(error, CancelledError | OSError) and self._client.status != "running":
            return InfrastructureError(
                f"the connection to the Dask scheduler is lost: {error}",
                where=f"cluster.dask_scheduler: {self._address}",
                next_step="see whether it runs, and run the same command again",
            )
        return None


def run_job(call: Callable[[], Any], folder: Path, expected: dict[str, str]) -> Any:
    """Check the worker's machine, then run the job.

    Raises:
        ConfigError: this worker's software is not that of the process that asks.
        InfrastructureError: the folder is not there.
    """
    differences = [f"{name} {ours} here, {expected[name]} there" for name, ours in software().items()
                   if ours != expected[name]]  # fmt: skip
    where = f"Dask worker process {os.getpid()} on {socket.gethostname()}"
    if differences:
        raise ConfigError(
            f"a worker has other software than the command: {'; '.join(differences)}",
            where=where,
            next_step="install the same version of the project and of constraints.txt on all workers",
        )
    if not folder.is_dir():
        raise InfrastructureError(
            f"a worker does not see the folder {folder}",
            where=where,
            next_step="mount the workspace's file system there under the same path",
        )
    if "RAYON_NUM_THREADS" not in os.environ:
        limit_threads(1)  # Dask counts a job as one thread
    return call()


@cache
def software() -> dict[str, str]:
    """Versions of everything that the bytes written by text stages depend on, this project's code included."""
    code = sha256()
    package = Path(__file__).parent
    for path in sorted(package.rglob("*.py")):
        code.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return {
        "electra": code.hexdigest()[:12],
        "python": platform.python_version(),
        "unicode": unicodedata.unidata_version,
        **{name: importlib.metadata.version(name) for name in LIBRARIES},
    }
