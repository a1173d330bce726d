"""A workspace in a temporary folder, and a short way to build a corpus in it."""

from pathlib import Path
from typing import Any

import pytest

from electra.common.paths import Paths
from electra.text.corpus.build import build_corpus
from tests.corpus.small import Build, Built
from tests.text_stages import text_settings


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, current while the test runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def build(workspace: Path) -> Build:
    """Builds ``data/corpus`` from the given sources (files sources by default) and other ``corpus`` settings."""

    def run(*sources: dict[str, Any], root: str = ".", **corpus: Any) -> Built:
        entries = [{"kind": "files", "name": f"source {i}", **source} for i, source in enumerate(sources)]
        build_corpus(text_settings(corpus={"sources": entries, "min_chars": 1, **corpus}), Paths(Path(root)))
        return Built(Path(root))

    return run
