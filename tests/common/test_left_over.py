"""Temporary files beside a file that is written: those of a killed process are removed, those of a running one stay."""

import subprocess
import sys
from pathlib import Path

from electra.common.artifacts import write_text

WRITER = """
import sys
from pathlib import Path
from electra.common.output import writing

with writing(Path(sys.argv[1])) as file:
    file.write(sys.argv[2])
    file.flush()
    print("begun", flush=True)
    sys.stdin.readline()
"""


def writer(path: Path, text: str) -> subprocess.Popen[str]:
    """A process in the middle of writing the file."""
    command = [sys.executable, "-c", WRITER, str(path), text]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    return process


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    killed, living = writer(path, "killed"), writer(path, "living")
    killed.kill()
    killed.communicate()
    assert len(list(tmp_path.iterdir())) == 2, "both have begun a file of their own"
    write_text(path, "third")
    left = [file for file in tmp_path.iterdir() if file != path]
    assert path.read_text() == "third" and [file.read_text() for file in left] == ["living"]
    living.communicate("\n")
    assert living.returncode == 0 and path.read_text() == "living"
    assert list(tmp_path.iterdir()) == [path]
