"""A workspace in which every stage has run, and a quick way to run commands in processes of their own."""

import multiprocessing
import shutil
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from electra.evaluation.evaluate import evaluate_cells
from electra.finetune.run import finetune_cell
from electra.model.objective import build_objective
from electra.model.pretrained import save_pretrained, special_token_ids
from electra.readers.build import prepare_tasks
from tests.workspace import Workspace

Start = Callable[..., BaseProcess]
MODULES = ["corpus.build", "corpus.files", "tokenizer.build", "shards.build", "pretrain.run", "finetune.run",
           "finetune.evaluate", "memory"]  # fmt: skip


@pytest.fixture(scope="session")
def start() -> Start:
    """Start a function of another module in a process forked from one that has imported all stages."""
    context: ForkServerContext = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([f"electra.{name}" for name in MODULES] + ["deepspeed", "tests.reliability.faults"])

    def begin(function: Callable[..., None], *arguments: Any) -> BaseProcess:
        process = context.Process(target=function, args=arguments)
        process.start()
        return process

    return begin


@pytest.fixture(scope="session")
def finished(prepared: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Corpus, tokenizer, shards, tasks, random weights in place of pre-trained ones, two cells and their scores."""
    root = tmp_path_factory.mktemp("finished") / "workspace"
    shutil.copytree(prepared.root, root)
    workspace = Workspace(root)
    settings, paths = workspace.settings(), workspace.paths
    prepare_tasks(settings, paths)
    vocab_size = settings.tokenizer.vocab_size
    model = build_objective(settings.model, vocab_size, special_token_ids(paths.tokenizer)[-1], settings.pretrain)
    model.initialize(0.02, 1)
    weights = dict(model.named_parameters())
    save_pretrained(paths.pretrained, weights, settings.model, vocab_size, paths.tokenizer, settings.pretrain)
    for scratch in (False, True):
        finetune_cell(settings, paths, task="CoLA", seed=1, scratch=scratch)
    evaluate_cells(settings, paths)
    return workspace


@pytest.fixture
def copy(finished: Workspace, tmp_path: Path) -> Workspace:
    """A copy of the finished workspace for one test to spoil."""
    shutil.copytree(finished.root, tmp_path / "workspace")
    return Workspace(tmp_path / "workspace")
