"""Settings and small inputs of the text stages."""

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from electra.common.artifacts import write_manifest
from electra.config import Corpus, Settings, Shards, Tokenizer
from electra.config.loading import load_settings

REPO = Path(__file__).resolve().parents[1]
SECTIONS = {"corpus": Corpus, "tokenizer": Tokenizer, "shards": Shards}


def text_settings(cluster: dict[str, Any] | None = None, **sections: dict[str, Any]) -> Settings:
    """Return the default settings for one worker, with other sections ``corpus``, ``tokenizer`` or ``shards``."""
    settings = load_settings(REPO)
    changed: dict[str, Any] = {name: SECTIONS[name].model_validate(values) for name, values in sections.items()}
    changed["cluster"] = settings.cluster.model_copy(update={"num_workers": 1, **(cluster or {})})
    return settings.model_copy(update=changed)


def write_corpus(folder: Path, name: str, texts: list[str]) -> None:
    """Write documents to ``<name>.parquet`` as the corpus stage does, and the manifest of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts]
    table = pa.table({"doc_id": ids, "source": ["made up"] * len(texts), "text": texts})
    pq.write_table(table, folder / f"{name}.parquet", compression="zstd")
    write_manifest(folder)
