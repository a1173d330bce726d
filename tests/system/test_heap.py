"""Freed memory is kept for the next step, or returned to the system at once."""

import subprocess
import sys

import pyarrow as pa
import pytest
import torch

from electra.cluster.memory import out_of_memory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the allocator is glibc's")

# page faults of making the same 40 MB ten times, and what the process holds above its start when they are freed
SCRIPT = """
import resource, psutil, torch
from electra.cluster import memory
getattr(memory, {name!r})()
def make(): return [torch.ones(1_000_000) for _ in range(10)]
before = psutil.Process().memory_info().rss
for _ in range(3): make()
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10): make()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults, psutil.Process().memory_info().rss - before)
"""


def faults_and_bytes(name: str) -> tuple[int, int]:
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(name=name)], capture_output=True, text=True, check=True)
    faults, held = map(int, done.stdout.split())
    return faults, held


def test_kept_memory_is_used_again_without_page_faults() -> None:
    faults, held = faults_and_bytes("keep_freed_memory")
    assert faults < 5_000 and held > 30e6


def test_given_back_memory_is_the_systems() -> None:
    faults, held = faults_and_bytes("give_back_freed_memory")
    assert faults > 50_000 and held < 20e6


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (MemoryError("Unable to allocate 8 GiB"), True),
        (pa.ArrowMemoryError("malloc of size 64 failed"), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), True),
        (pa.ArrowException("Unknown error: Failed to launch worker thread: Resource temporarily unavailable"), True),
        (RuntimeError("can't start new thread"), True),
        (RuntimeError("shapes cannot be multiplied"), False),
        (pa.ArrowInvalid("not a parquet file"), False),
    ],
)
def test_memory_that_ran_out_is_told_from_other_errors_with_what_to_lower(error: Exception, is_memory: bool) -> None:
    shown = out_of_memory(error, "pretrain")
    assert (shown is not None) == is_memory
    if shown is not None:
        assert shown.exit_code == 5 and "cluster.micro_batch_size" in str(shown) and str(error) in shown.what
