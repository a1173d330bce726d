"""The file of a run's machine: figures of the last run, not rewritten if nothing has changed."""

from pathlib import Path

from electra.cluster.run_facts import machine_file, note_machine
from electra.common.artifacts import read_json
from electra.common.paths import Paths


def test_the_machine_record_has_the_minutes_of_the_last_pre_training(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    for seconds in (600.0, 60.0):  # the same run on the same machine, the second time with the cores to itself
        note_machine(paths, "pretrain", "cpu", seconds, tokens=1000, flops=1.23456e12)
    found = read_json(machine_file(paths))["pretrain"]
    assert (found["minutes"], found["tokens"], found["flops"]) == (1.0, 1000, 1.235e12)


def test_cells_on_the_same_machine_leave_its_record_as_it_is(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    note_machine(paths, "pretrain", "cpu", 60.0)
    note_machine(paths, "finetune", "cpu", 5.0)
    before = machine_file(paths).stat()
    note_machine(paths, "finetune", "cpu", 500.0)
    assert machine_file(paths).stat().st_ino == before.st_ino, "not written again"
    assert set(read_json(machine_file(paths))) == {"pretrain", "finetune"}
