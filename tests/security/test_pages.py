"""Text from outside on pages and terminals, and YAML that would run code."""

import io
import re
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from electra.common.artifacts import write_json, write_manifest
from electra.common.errors import ConfigError
from electra.common.paths import Paths
from electra.config.loading import load_settings
from electra.readers.custom_schema import read_custom_task
from electra.text.corpus.cleaning.notes import CLEANING, show_corpus

ELECTRA = Path(__file__).resolve().parents[2] / "electra"
HOSTILE = "\x1b]0;title\x07\x1b[2J[bold red]<script>alert(1)</script>\u202e"


def test_shown_texts_cannot_control_the_terminal(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    paths.corpus.mkdir(parents=True)
    rule = {"documents": 1, "lines": 0, "characters": 9, "examples": [{"before": HOSTILE, "after": ""}]}
    write_json(paths.corpus / CLEANING, {"gopher.symbols": rule})
    write_manifest(paths.corpus)
    screen = io.StringIO()
    show_corpus(paths, 1, Console(file=screen, width=150, force_terminal=False))
    shown = screen.getvalue()
    assert "[bold red]<script>" in shown  # as text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", shown)


@pytest.mark.parametrize("text", ["!!python/object/apply:os.system [echo]", "profile: !!python/name:os.system"])
def test_yaml_cannot_name_code(text: str, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(ConfigError, match="not valid YAML"):
        load_settings(tmp_path)
    (tmp_path / "T.yaml").write_text(text)
    with pytest.raises(ConfigError, match="not valid YAML"):
        read_custom_task(tmp_path / "T.yaml")


def test_nothing_reads_pickles_or_unsafe_yaml_or_starts_a_shell() -> None:
    forbidden = re.compile(
        r"\bpickle\.loads?\b|yaml\.(load|unsafe_load|full_load)\(|shell=True|os\.system\(|allow_pickle=True"
        r"|weights_only=False|verify=False|trust_remote_code=True"
    )
    for path in sorted(ELECTRA.rglob("*.py")):
        assert not forbidden.search(path.read_text(encoding="utf-8")), path
    assert yaml.safe_load("a: 1") == {"a": 1}
