"""A small workspace with real shards, made once; each test copies it and trains in a separate process."""

import multiprocessing
import os
import shutil
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import yaml

from electra.common.paths import Paths
from electra.config import Settings
from electra.config.loading import load_settings
from electra.text.corpus.build import build_corpus
from electra.text.shards.build import build_shards
from electra.text.tokenizer.build import build_tokenizer
from tests.fixtures import LABELLED, text_source

ROOT = Path(__file__).resolve().parents[1]
COMMON: dict[str, Any] = {
    "profile": "test",
    "fidelity": "corrected",
    "cells": {"tasks": ["CoLA"], "seeds": [1]},
    "cluster": {"device": "cpu", "num_threads": 1, "precision": "fp32", "num_workers": 1, "checkpoint_minutes": 60},
}
# Imported once by the process that others are forked from. Importing takes longer than a small run.
MODULES = [
    f"electra.{name}"
    for name in ("text.corpus.build", "text.corpus.files", "text.tokenizer.build", "text.shards.build", "pretrain.run",
                 "finetune.run", "embed.run", "results.evaluate", "cluster.memory")
]  # fmt: skip
PROFILE: dict[str, Any] = {
    "corpus": {"sources": [text_source()], "held_out_fraction": 0.1},
    "tokenizer": {"vocab_size": 600},
    "shards": {"max_length": 32},
    "model": {
        "num_layers": 2,
        "hidden_size": 32,
        "num_heads": 2,
        "intermediate_size": 64,
        "embedding_size": 16,
        "generator_width": 0.5,
        "max_positions": 128,
        "dropout": 0.0,
        "attention_dropout": 0.0,
    },
    "pretrain": {
        "num_steps": 24,
        "batch_size": 8,
        "learning_rate": 1e-3,
        "warmup_steps": 4,
        "eval_every": 12,
        "eval_examples": 32,
    },
    "tasks": {"source": LABELLED},
    "finetune": {"learning_rate": 1e-3, "max_length": 64, "span_max_length": 64},
    "embed": {"num_steps": 3, "batch_size": 4, "max_length": 32, "min_score": 0.5},
}
# `make soak` runs the tests of faults, resuming and numbers of processes again with this set to modern
if os.environ.get("ELECTRA_TEST_ARCHITECTURE", "electra") == "modern":
    PROFILE["model"] |= {
        "architecture": "modern", "intermediate_size": 48, "layer_norm_eps": 1e-5, "local_attention": 8,
        "global_every": 2,
    }  # fmt: skip


def forked(function: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Start a function of another module in a process forked from one that has imported all stages."""
    context: ForkServerContext = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [
            *MODULES,
            "deepspeed",
            "deepspeed.runtime.zero.muon.muon_optimizer",
            "torch.utils.tensorboard",
            "torch._dynamo",
            "dvc.cli.parser",
            "dvc.repo",
            "tests.reliability.faults",
        ]
    )
    process = context.Process(target=function, args=arguments)
    process.start()
    return process


class Command:
    """A forked command, handled like ``subprocess.Popen``."""

    def __init__(self, process: BaseProcess, log: Path):
        assert process.pid is not None
        self.pid, self._process, self._log = process.pid, process, log

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Wait for the end; returns what was printed, errors included."""
        self._process.join(timeout)
        output = self._log.read_text()
        assert self._process.exitcode is not None, f"still running after {timeout} s: {output}"
        return output, None


class Workspace:
    """A folder like the project's root."""

    def __init__(self, root: Path):
        self.root, self.paths = root, Paths(root)

    def write(self, common: dict[str, Any] | None = None, **sections: dict[str, Any]) -> "Workspace":
        """Write the settings, with changes to single keys: ``write({"cluster": {...}}, pretrain={...})``."""
        (self.root / "params").mkdir(exist_ok=True)
        for path, base, changes in (
            ("params.yaml", COMMON, common or {}),
            ("params/test.yaml", PROFILE, sections),
        ):
            merged = {
                key: {**value, **changes.get(key, {})} if isinstance(value, dict) else changes.get(key, value)
                for key, value in base.items()
            }
            (self.root / path).write_text(yaml.safe_dump(merged))
        return self

    def copy(self, name: str) -> "Workspace":
        """A second workspace beside this one."""
        shutil.copytree(self.root, self.root.parent / name)
        return Workspace(self.root.parent / name)

    def settings(self) -> Settings:
        return load_settings(self.root)

    def start(self, program: str | None = None) -> "Command":
        """Start ``electra pretrain``, or a Python program, in a new process group."""
        from tests.reliability import faults

        log = self.root.parent / f"{self.root.name}.log"
        log.unlink(missing_ok=True)
        return Command(forked(faults.in_a_group, program, self.root, log), log)

    def pretrain(self) -> str:
        """Run to the end; returns what was printed."""
        process = self.start()
        output = process.communicate(timeout=240)[0]
        assert process.returncode == 0, output
        return output

    def curve(self) -> list[dict[str, str]]:
        lines = (self.root / "results/pretrain.tsv").read_text().splitlines()
        header = lines[0].split("\t")
        return [dict(zip(header, line.split("\t"), strict=True)) for line in lines[1:]]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = Workspace(tmp_path_factory.mktemp("prepared")).write()
    settings = workspace.settings()
    for stage in (build_corpus, build_tokenizer, build_shards):
        stage(settings, workspace.paths)
    return workspace


@pytest.fixture
def workspace(prepared: Workspace, tmp_path: Path) -> Workspace:
    shutil.copytree(prepared.root, tmp_path / "workspace")
    return Workspace(tmp_path / "workspace")


@pytest.fixture(scope="session")
def uninterrupted(prepared: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The reference run: one process, fp32, start to end."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "workspace"
    shutil.copytree(prepared.root, folder)
    done = Workspace(folder)
    done.pretrain()
    return done
