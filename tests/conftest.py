"""Fixtures shared by several folders of tests."""

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.workspace import prepared, uninterrupted, workspace

__all__ = ["prepared", "uninterrupted", "workspace"]

# Files that take more than ten seconds, slowest first: they begin first, so that no core waits for the last of them.
SLOW = (
    "test_typed_commands.py", "system/test_babylm.py", "pipeline/test_workspace.py", "init/test_new.py",
    "predict/test_babylm.py", "model/test_fast_paths.py", "pipeline/test_flow.py", "provenance/test_texts_seen.py",
    "reliability/test_two_starts.py", "predict/test_onnx.py", "system/test_own_language.py",
    "pipeline/test_flow_command.py", "benchmarks/test_benchmarks_run.py", "predict/test_predict.py",
    "pipeline/test_dvc_commands.py", "publish/test_encoder_onnx.py", "test_house.py", "benchmarks/test_accept_gpu.py",
    "predict/test_milestone_branches.py", "pretrain/test_methods.py", "remotes/test_s3.py",
    "checks/test_gx_project.py", "benchmarks/test_pretrain_step_benchmark.py", "system/test_peers.py",
    "tasks/test_starts.py", "pretrain/test_deepspeed.py", "pipeline/test_cli.py", "predict/test_graphs_on_hub.py",
    "pipeline/test_repro.py", "hostile/test_corpus_paths.py", "probe/test_scores.py", "hostile/test_messages.py",
    "experiments/test_harness.py", "probe/test_learned.py", "pretrain/test_resume.py",
    "checks/test_corpus_oddities.py", "pretrain/test_milestones.py", "checks/test_checks.py", "model/test_parity.py",
    "system/test_dask.py", "pretrain/test_modern.py", "pretrain/test_alarms.py", "review/test_compare.py",
    "objectives/test_objectives.py", "pretrain/test_long_sequences.py", "pretrain/test_start.py",
    "loader/test_static.py", "pipeline/test_dvc_yaml.py", "finetune/test_task_training.py",
    "reliability/test_fault_matrix.py", "pipeline/test_guard.py", "system/test_executors.py", "system/test_heap.py",
    "pretrain/test_run.py", "pipeline/test_evaluate_inputs.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {Path(__file__).parent / name: n for n, name in enumerate(SLOW)}
    assert all(file.is_file() for file in rank), "SLOW names a file that is not there"
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


# Modules and tests of the whole suite stay until the end: collections need not look for garbage among them, neither
# while they are made nor later. That is a sixth of the processor time of tests that run in this process.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def denormals_after_each_test() -> Iterator[None]:
    """Undo what fine-tuning in this process changes: hypothesis refuses to draw floats without denormals."""
    yield
    if torch := sys.modules.get("torch"):
        torch.set_flush_denormal(False)


# No test is timed: on a busy machine an example may take any time.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
