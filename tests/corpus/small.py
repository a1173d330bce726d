"""Outputs of a corpus build, and small inputs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from electra.common.artifacts import read_manifest
from electra.common.paths import Paths

REPO = Path(__file__).resolve().parents[2]
Build = Callable[..., "Built"]


class Built:
    """Outputs of a corpus build."""

    def __init__(self, root: Path):
        self.folder = Paths(root).corpus

    @property
    def manifest(self) -> dict[str, Any]:
        return read_manifest(self.folder)

    def rows(self, split: str = "*") -> list[dict[str, str]]:
        return [
            row for path in sorted(self.folder.glob(f"{split}-*.parquet")) for row in pq.read_table(path).to_pylist()
        ]

    def texts(self, split: str = "*") -> list[str]:
        return [row["text"] for row in self.rows(split)]

    def bytes(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.folder.iterdir())}


def sentences(num: int, start: int = 0) -> list[str]:
    """Different one-line documents."""
    return [f"Sentence {i} is about the number {i * i}." for i in range(start, start + num)]


def jsonl(texts: list[str], field: str = "text") -> str:
    return "".join(json.dumps({field: text}) + "\n" for text in texts)
