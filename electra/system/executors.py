"""Executors of the text stages: this process, a pool of processes on this machine, or a Dask cluster.

A stage cuts its work into jobs, one per input file, and calls :meth:`Workers.map`. A job reads files of earlier stages,
writes files of its own into the stage's folder under names and with bytes that do not depend on who runs it, and
returns a few numbers. So the result is the same for any kind and number of workers.
"""

import multiprocessing
import os
import shutil
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
from electra.common.artifacts import disk_errors
from electra.common.errors import InfrastructureError
from electra.system.processes import die_with_parent, end_children, limit_threads

Result = TypeVar("Result")
WATCH_SECONDS = 10.0


class Backend(Protocol):
    """Back end that runs the calls of :class:`Workers` in other processes."""

    def submit(self, function: Callable[..., Result], /, *job: Any) -> Future[Result]:
        """Start ``function(*job)``."""
        ...

    def num_in_flight(self) -> int:
        """How many calls may be waiting or running at this moment."""
        ...

    def watch(self) -> None:
        """Called now and then while a result is waited for; raises when none can come any more."""
        ...

    def lost(self, error: BaseException) -> InfrastructureError | None:
        """Error for the user if processes have died; None for an error of the job itself."""
        ...


class Workers:
    """Runs a function over many jobs, in this process where no backend is given."""

    def __init__(self, backend: Backend | None):
        self._backend = backend

    @property
    def in_process(self) -> bool:
        """Return whether jobs are done by this process, each when its result is asked for."""
        return self._backend is None

    def map(self, function: Callable[..., Result], jobs: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
        """Results of ``function(*job)`` in the order of the jobs.

        Jobs are taken as there is room, and a result is dropped once it is yielded: neither the jobs nor the results
        of a long list are held together. A job that raises ends the map with its error; those that wait are cancelled.

        Args:
            function: of a module, so that another process can import it; may be called again for a job whose worker
                died, so a second call has to leave what the first would have.

        Raises:
            InfrastructureError: workers died and the job could not be given to others.
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
    """The workers that ``cluster.executor`` names, for as long as the block lasts.

    Args:
        cluster: ``executor``, ``num_workers`` and ``dask_scheduler`` count.
        num_jobs: no more processes are started than there are jobs, and none for a single one.
        folder: where jobs write; workers on other machines must see it under the same path.
        lower: the setting to lower when memory runs out, for the message.

    Raises:
        ConfigError: Dask is asked for and not installed, or has no address.
        InfrastructureError: the scheduler cannot be reached.
    """
    wanted = num_workers(cluster)
    if cluster.executor == "dask":
        from electra.system.dask_executor import dask_backend

        with dask_backend(cluster.dask_scheduler, folder, lower) as backend:
            yield Workers(backend)
    elif min(wanted, num_jobs) <= 1:
        yield Workers(None)
    else:
        with _pool(min(wanted, num_jobs), wanted, lower) as backend:
            yield Workers(backend)


def num_workers(cluster: config.Cluster) -> int:
    """``cluster.num_workers``; auto is one per core that this process may use."""
    return len(os.sched_getaffinity(0)) if cluster.num_workers == "auto" else cluster.num_workers


@contextmanager
def job_folder(folder: Path) -> Iterator[Path]:
    """A folder in a stage's own for files of its jobs that are no part of the artefact, or not yet.

    It is moved out of ``folder`` before it is removed: a worker given up for lost may still write to it, but not to the
    artefact.
    """
    inside = folder.absolute() / f".jobs-{uuid4().hex[:8]}"  # a worker may stand in another folder
    inside.mkdir()
    try:
        yield inside
    finally:
        outside = inside.parent.with_name(f"{folder.name}{inside.name}")
        os.rename(inside, outside)
        shutil.rmtree(outside, ignore_errors=True)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A new path to write to, which becomes ``path`` when the block ends well, and is removed when it does not.

    Two workers may do the same job when one of them was given up too early: each has a file of its own, and either may
    be the last to rename it.

    Args:
        path: the file to write.

    Raises:
        InfrastructureError: the disk is full.
    """
    unfinished = path.parent / f".{path.name}.{uuid4().hex[:8]}"
    with disk_errors(path):
        try:
            yield unfinished
            os.replace(unfinished, path)
        finally:
            unfinished.unlink(missing_ok=True)


@contextmanager
def _pool(processes: int, cores: int, lower: str) -> Iterator["_Pool"]:
    # Not fork: the tokenizer's threads of this process would not exist in the child, which then waits for them forever
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_start_worker, initargs=(max(1, cores // processes),))
    try:
        yield _Pool(pool, processes, lower)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        end_children()  # a job may take minutes, and its result is no longer needed


def _start_worker(num_threads: int) -> None:
    die_with_parent()
    limit_threads(num_threads)


class _Pool:
    """Processes of this machine. They die together: one that is lost ends the stage."""

    def __init__(self, pool: ProcessPoolExecutor, processes: int, lower: str):
        self._pool, self._processes, self._lower = pool, processes, lower

    def submit(self, function: Callable[..., Result], /, *job: Any) -> Future[Result]:
        return self._pool.submit(function, *job)

    def num_in_flight(self) -> int:
        return 2 * self._processes

    def watch(self) -> None:
        """The pool itself notices lost processes."""

    def lost(self, error: BaseException) -> InfrastructureError | None:
        if not isinstance(error, BrokenProcessPool):
            return None
        return InfrastructureError(
            "a worker process died: killed by somebody, or by the system when memory ran out",
            next_step=f"if memory ran out (dmesg says so), lower cluster.num_workers or {self._lower}; "
            "run the same command again",
        )
