"""Executors of the text stages: this process, a pool of processes on this machine, or a Dask cluster.

A stage cuts its work into jobs, one per input file, and calls :meth:`Workers.map`. A job reads files of earlier stages,
writes new files into the stage's folder, and returns a few numbers. Names and bytes of the files do not depend on the
worker, so the result is the same for any kind and number of workers. Dask is in
:mod:`electra.cluster.dask_workers`.
"""

import multiprocessing
import os
import shutil
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from electra import config
from electra.cluster.dask_workers import dask_backend
from electra.cluster.processes import die_with_parent, end_children, limit_threads
from electra.common.errors import InfrastructureError
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
