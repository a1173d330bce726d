"""Dask as the executor of text work (``cluster.executor: dask``).

Dask assigns jobs to workers, and reassigns the jobs of a worker that died. This module adds a check that each worker
runs the same software as this process and sees the same folder; otherwise its files would differ or be lost.
"""

import importlib.metadata
import importlib.resources
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

from electra.cluster.processes import limit_threads
from electra.common.errors import ConfigError, InfrastructureError

CONNECT_SECONDS = 30
NO_WORKER_SECONDS = 300  # a cluster that grows on demand needs some time to start its first worker
# libraries that the bytes written depend on
LIBRARIES = (
    "datasets", "fsspec", "ftfy", "huggingface_hub", "numpy", "py3langid", "pyarrow", "rensa", "tokenizers", "zstandard"
)  # fmt: skip


@contextmanager
def dask_backend(address: str | None, folder: Path, lower: str) -> Iterator["DaskBackend"]:
    """Yield a connection to the Dask cluster; it is closed at the end of the block.

    Args:
        address: address of the scheduler.
        folder: where the jobs write.
        lower: the setting to lower when memory runs out, for the message.

    Raises:
        ConfigError: the address is missing, or Dask is not installed.
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
    """Back end that runs jobs as tasks of a Dask cluster, through its ``concurrent.futures`` executor.

    Args:
        client: a connected ``distributed.Client``.
        address: address of the scheduler, for messages.
        folder: absolute path of a folder that workers must see.
        lower: see :func:`dask_backend`.
    """

    def __init__(self, client: Any, address: str, folder: Path, lower: str):
        self._client, self._address, self._folder, self._lower = client, address, folder, lower
        # pure=False: a job writes files, so Dask must not reuse the result of an equal call. retries=0: retries are for
        # errors of the job itself; Dask reassigns the jobs of a dead worker anyway.
        self._executor = client.get_executor(pure=False, retries=0)
        self._seen_worker_at = time.monotonic()

    def submit(self, function: Callable[..., Any], /, *job: Any) -> Future[Any]:
        return self._executor.submit(run_job, partial(function, *job), self._folder, software())

    def num_in_flight(self) -> int:
        """Return twice the cluster's current number of threads, which may grow and shrink."""
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
        ConfigError: this worker's software differs from that of the process that submitted the job.
        InfrastructureError: the folder does not exist here.
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
    """Return the versions of everything that the bytes written by text stages depend on, including this project."""
    return {
        "electra": hash_of_code(Path(str(importlib.resources.files("electra")))),
        "python": platform.python_version(),
        "unicode": unicodedata.unidata_version,
        **{name: importlib.metadata.version(name) for name in LIBRARIES},
    }


def hash_of_code(package: Path) -> str:
    """Return a hash (12 hex digits) of the names and bytes of all files in a package, C++ sources and YAML included.

    Compiled modules and hidden files (of editors and file systems) are left out: they differ between machines.
    """
    digest = sha256()
    for path in sorted(package.rglob("*")):
        name = path.relative_to(package)
        if path.is_file() and not any(part == "__pycache__" or part.startswith(".") for part in name.parts):
            digest.update(f"{name.as_posix()}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
