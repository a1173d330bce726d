"""A process of the run that dies or hangs: the others end soon, with exit code 5, and name it."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from electra.cluster.processes import free_port
from tests.workspace import ROOT


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("stops", r"no sign of life from process 1"),
        ("dies", r"no sign of life from process 1"),
        ("hangs", r"still behind: process 1"),
        ("is silent", r"no sign of life from process 1"),  # long before the time-out
    ],
)
def test_process_that_is_waited_for_in_vain_is_named(way: str, said: str) -> None:
    first, second = start_two(way)
    try:
        _, complaint = first.communicate(timeout=60)
    finally:
        second.kill()
        second.communicate()
        first.kill()
    assert first.returncode == 5, complaint
    assert f"{said} ({socket.gethostname()}, last seen at step 2" in complaint, complaint
    assert "next:" in complaint and "Traceback" not in complaint


def test_signal_to_end_is_heard_in_a_wait_for_another_process() -> None:
    """Python runs no handler while the main thread waits in an operation of gloo or NCCL."""
    first, second = start_two("keeps one waiting")
    try:
        assert second.stderr is not None
        assert second.stderr.readline() == "hanging\n"  # the first one waits now, or does in a moment
        first.send_signal(signal.SIGTERM)
        _, complaint = first.communicate(timeout=30)
    finally:
        second.kill()
        second.communicate()
        first.kill()
    assert first.returncode == 5, complaint
    assert "SIGTERM came while the process waits for others, at" in complaint, complaint


def start_two(way: str) -> list[subprocess.Popen[str]]:
    port = free_port()
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "PYTHONPATH": str(ROOT)}
    return [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "two_peers.py"), way],
            env={**os.environ, **place, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
