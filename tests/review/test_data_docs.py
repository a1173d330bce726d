"""Data docs: one page with the results of the validations."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from electra.checks.judge import CRITICAL, WARNING, Table, between, conclude, expect, judge
from electra.cli import app, review
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.results.review.data_docs import render_data_docs

HOSTILE = "<script>alert(1)</script>"


def validate(paths: Paths, lengths: list[int], words: int) -> None:
    """Validate a small table as validate_corpus does, and write its report."""
    frame = pd.DataFrame({"name": [f"{HOSTILE}{i}" for i in range(len(lengths))], "chars": lengths})
    suite: Any = {
        "documents": [
            expect("chars", between(20, 100), CRITICAL, "length is within corpus.min_chars", "raise corpus.min_chars"),
            expect("chars", between(30, 100), WARNING, "documents are not short", "look at short ones"),
        ]
    }
    statistics = {"words": words, "held_out_share": 0.02}
    conclude("corpus", judge({"documents": Table(frame, ["name"])}, suite), statistics, paths)


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.chdir(tmp_path)
    return Paths(tmp_path)


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.partition("</style>")[2]))


def test_each_expectation_has_its_column_observed_value_verdict_and_next_step(paths: Paths) -> None:
    with pytest.raises(DataError):
        validate(paths, [50, 25, 7], words=100)
    page = render_data_docs(paths)
    told = text_of(page)
    assert re.search(
        r"length is within corpus.min_chars .*2 -&gt; chars=7 documents.chars 1 of 3 rows break it critical "
        r"raise corpus.min_chars",
        told,
    )
    assert "documents are not short" in told and "2 of 3 rows break it warning look at short ones" in told
    assert "corpus: failed" in told and "shards not validated yet" in told
    validate(paths, [50, 60], words=100)
    assert "documents.chars 0 of 2 rows break it holds" in text_of(render_data_docs(paths))


def test_the_page_is_made_of_the_results_alone_and_asks_no_network(paths: Paths) -> None:
    with pytest.raises(DataError):
        validate(paths, [7], words=100)
    page = render_data_docs(paths)
    assert page == render_data_docs(paths)
    assert "<script" not in page and "&lt;script&gt;alert" in page
    assert not re.search(r"https?://|\bsrc=|@import|url\(|\b20\d\d-\d\d", page)
    assert 'name="viewport"' in page and "max-width: 640px" in page


def test_statistics_that_moved_since_the_last_commit_are_marked(paths: Paths) -> None:
    validate(paths, [50], words=100)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *command], cwd=paths.root, check=True)
    assert "words 100 100 held_out_share" in text_of(render_data_docs(paths))
    validate(paths, [50], words=150)
    assert "words 100 150 moved held_out_share 0.02 0.02" in text_of(render_data_docs(paths))


def test_the_command_writes_the_page_and_tells_what_is_missing_or_broken(paths: Paths) -> None:
    with pytest.raises(DataError, match="no data has been validated yet"):
        render_data_docs(paths)
    validate(paths, [50], words=100)
    assert review  # registers the command
    result = CliRunner().invoke(app, ["data-docs", "docs.html"])
    assert result.exit_code == 0 and "written: docs.html" in result.output
    assert Path("docs.html").read_text() == render_data_docs(paths)
    for broken in ({"suite": "corpus"}, [], {"failed_critical": "x"}):
        (paths.results / "validation/corpus.json").write_text(json.dumps(broken))
        with pytest.raises(DataError):
            render_data_docs(paths)
