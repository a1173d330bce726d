"""Pre-training's processes share the checking of their inputs, and end together when one finds damage."""

from pathlib import Path

import pytest

from electra.common.artifacts import ListedFile
from electra.pretrain.inputs import share_of
from tests.reliability.test_fault_matrix import flip
from tests.workspace import Workspace


@pytest.mark.parametrize("num_processes", [1, 2, 3, 7])
def test_every_file_is_checked_by_one_process_and_the_bytes_are_spread(num_processes: int) -> None:
    files = [ListedFile(Path(f"part-{number}"), 1000 if number < 6 else 7, "") for number in range(20)]
    shares = [share_of(files, rank, num_processes) for rank in range(num_processes)]
    assert sorted(file.path for share in shares for file in share) == sorted(file.path for file in files)
    sizes = [sum(file.num_bytes for file in share) for share in shares]
    assert max(sizes) - min(sizes) <= 1000


def test_two_processes_end_with_the_exit_code_of_damaged_data(workspace: Workspace) -> None:
    workspace.write({"cluster": {"num_processes": 2}})
    flip(workspace.paths.shards / "train-00000-00000.tokens.npy")
    process = workspace.start()
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 3, output
    assert "train-00000-00000.tokens.npy" in output
    assert not (workspace.root / "checkpoints").exists()
