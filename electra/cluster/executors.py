"""Executors of the text stages: this process, a pool of processes on this machine, or a Dask cluster.

A stage cuts its work into jobs, one per input file, and calls :meth:`Workers.map`. A job reads files of earlier stages,
writes new files into the stage's folder, and returns a few numbers. Names and bytes of the files do not depend on the
worker, so the result is the same for any kind and number of workers.

Dask (``cluster.executor: dask``) assigns jobs to workers, and reassigns the jobs of a worker that died. This module
adds a check that each worker runs the same software as this process and sees the same folder; otherwise its files
would differ or be lost.
"""

import importlib.metadata
import importlib.resources
import multiprocessing
import os
import platform
import shutil
import signal
import socket
import time
import unicodedata
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from electra import config
from electra.cluster.processes import die_with_parent, end_children, limit_threads
from electra.common.errors import ConfigError, InfrastructureError
from electra.common.output import beside, disk_errors

Result = TypeVar("Result")
WATCH_SECONDS = 10.0


class Backend(Protocol):
    """Back end that runs the calls of :class:`Workers` in other processes."""

    def submit(self, function: Callable[..., Result], /, *job: Any) -> Future[Result]:
        """Start ``function(*job)``."""
        ...

    def num_in_flight(self) -> int:
        """Return how many calls may be waiting or running now."""
        ...

    def watch(self) -> None:
        """Raise an error if no result can arrive any more; called periodically while waiting for a result."""
        ...

    def lost(self, error: BaseException) -> InfrastructureError | None:
        """Return the error to show if processes have died; None for an error of the job itself."""
        ...


class Workers:
    """Runner of one function over many jobs; runs them in this process if no backend is given."""

    def __init__(self, backend: Backend | None):
        self._backend = backend

    @property
    def in_process(self) -> bool:
        """Return whether this process runs the jobs, each when its result is requested."""
        return self._backend is None

    def map(self, function: Callable[..., Result], jobs: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
        """Yield the results of ``function(*job)`` in the order of the jobs.

        Jobs are read when a worker can take them, and a result is dropped once it is yielded, so a long list of jobs or
        results is never held in memory. A job that raises ends the map with its error; waiting jobs are cancelled.

        Args:
            function: module-level function, so that another process can import it. It must be idempotent: it is called
                again for a job whose worker died.

        Raises:
            InfrastructureError: workers died and the job could not be reassigned.
        """
        if self._backend is None:
            yield from (function(*job) for job in jobs)
            return
        waiting = iter(jobs)
        running: deque[Future[Result]] = deque()
        try:
            while True:
                for job in islice(waiting, max(0, self._backend.num_in_flight() - len(running))):
                    running.append(self._submit(self._backend, function, job))
                if not running:
                    return
                yield self._result(self._backend, running[0])
                running.popleft()
        finally:
            for future in running:
                future.cancel()

    @staticmethod
    def _submit(backend: Backend, function: Callable[..., Result], job: tuple[Any, ...]) -> Future[Result]:
        try:
            return backend.submit(function, *job)
        except Exception as error:
            raise backend.lost(error) or error from None

    @staticmethod
    def _result(backend: Backend, future: Future[Result]) -> Result:
        while not wait([future], timeout=WATCH_SECONDS).done:
            backend.watch()
        try:
            return future.result()
        except Exception as error:
            raise backend.lost(error) or error from None


@contextmanager
def open_workers(cluster: config.Cluster, num_jobs: int, folder: Path, lower: str) -> Iterator[Workers]:
    """Yield the workers that ``cluster.executor`` names; they end with the block.

    Args:
        cluster: only ``executor``, ``num_workers`` and ``dask_scheduler`` are used.
        num_jobs: upper bound of the number of processes; a single job runs in this process.
        folder: where jobs write; workers on other machines must see it under the same path.
        lower: the setting to lower when memory runs out, for the message.

    Raises:
        ConfigError: Dask is requested but not installed, or its address is missing.
        InfrastructureError: the scheduler cannot be reached.
    """
    wanted = num_workers(cluster)
    if cluster.executor == "dask":
        with dask_backend(cluster.dask_scheduler, folder, lower) as backend:
            yield Workers(backend)
    elif min(wanted, num_jobs) <= 1:
        yield Workers(None)
    else:
        with _pool(min(wanted, num_jobs), wanted, lower) as backend:
            yield Workers(backend)


def num_workers(cluster: config.Cluster) -> int:
    """Return ``cluster.num_workers``; ``auto`` is one per core that this process may use."""
    return len(os.sched_getaffinity(0)) if cluster.num_workers == "auto" else cluster.num_workers


@contextmanager
def job_folder(folder: Path) -> Iterator[Path]:
    """Create a temporary folder inside a stage's folder, for files of its jobs that are not yet part of the artefact.

    It is moved out of ``folder`` before it is removed: a worker that was taken for dead may still write to it, but not
    to the artefact.
    """
    inside = folder.absolute() / f".jobs-{uuid4().hex[:8]}"  # absolute: a worker may have another current folder
    inside.mkdir()
    try:
        yield inside
    finally:
        outside = inside.parent.with_name(f"{folder.name}{inside.name}")
        os.rename(inside, outside)
        shutil.rmtree(outside, ignore_errors=True)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path that is renamed to ``path`` when the block succeeds, and removed when it fails.

    Two workers may run the same job if one of them was taken for dead too early: each writes a separate temporary file,
    and either may be the last to rename it.

    Args:
        path: the file to write.

    Raises:
        InfrastructureError: the disk is full.
    """
    unfinished = beside(path, f".{uuid4().hex[:8]}")
    with disk_errors(path):
        try:
            yield unfinished
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)


@contextmanager
def _pool(processes: int, cores: int, lower: str) -> Iterator["_Pool"]:
    # Not fork: the tokenizer's threads would not exist in the child, which would then wait for them forever
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_start_worker, initargs=(max(1, cores // processes),))
    try:
        yield _Pool(pool, processes, lower)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        end_children()  # a job may take minutes, and its result is no longer needed


def _start_worker(num_threads: int) -> None:
    die_with_parent()
    parent = multiprocessing.parent_process()
    if parent and not parent.is_alive():  # killed while this process was starting: nothing would ever end it
        os.kill(os.getpid(), signal.SIGKILL)
    limit_threads(num_threads)


class _Pool:
    """Pool of processes on this machine. A process that dies ends the pool, and with it the stage."""

    def __init__(self, pool: ProcessPoolExecutor, processes: int, lower: str):
        self._pool, self._processes, self._lower = pool, processes, lower

    def submit(self, function: Callable[..., Result], /, *job: Any) -> Future[Result]:
        return self._pool.submit(function, *job)

    def num_in_flight(self) -> int:
        return 2 * self._processes

    def watch(self) -> None:
        """Do nothing: the pool itself notices lost processes."""

    def lost(self, error: BaseException) -> InfrastructureError | None:
        if not isinstance(error, BrokenProcessPool):
            return None
        return InfrastructureError(
            "a worker process died: killed by somebody, or by the system when memory ran out",
            next_step=f"if memory ran out (dmesg says so), lower cluster.num_workers or {self._lower}; "
            "run the same command again",
        )


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
