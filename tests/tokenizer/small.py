"""Settings and small corpora for the tokenizer stage."""

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from electra.common.artifacts import write_manifest
from electra.config import Settings
from electra.config import Tokenizer as TokenizerSettings
from electra.config.loading import load_settings

REPO = Path(__file__).resolve().parents[2]


def settings(**tokenizer: object) -> Settings:
    return load_settings(REPO).model_copy(update={"tokenizer": TokenizerSettings.model_validate(tokenizer)})


def write_corpus(folder: Path, split: str, texts: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    ids = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts]
    table = pa.table({"doc_id": ids, "source": ["made up"] * len(texts), "text": texts})
    pq.write_table(table, folder / f"{split}-00000.parquet", compression="zstd")
    write_manifest(folder)
