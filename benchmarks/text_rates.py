"""Rate of one worker at each job of the text stages, and of what one process does after them.

    python -m benchmarks.text_rates TEXT [--megabytes 32]

TEXT has one paragraph a line. It is cut into documents of about 3,000 characters, as web pages have, in four files.
Every job runs alone on one core, as one of many workers would run it. docs/scaling.md has the figures.
"""

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from electra.checks.corpus import corpus_tables
from electra.checks.shards import shards_tables
from electra.common.artifacts import listed_files, sha256
from electra.common.paths import Paths
from electra.config import Corpus, FilesCorpus, Shards, Tokenizer
from electra.config.loading import load_settings
from electra.corpus.build import build_corpus
from electra.corpus.cleaned import read_cleaned, write_cleaned
from electra.corpus.document import SeenIds, kept_documents
from electra.corpus.files import FilesSource
from electra.corpus.writer import split_files
from electra.shards.build import build_shards, shard_file
from electra.system.executors import limit_threads
from electra.tokenizer.build import build_tokenizer, count_file, write_sample

DOCUMENT_CHARACTERS = 3000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--megabytes", type=int, default=32)
    options = parser.parse_args()
    limit_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        size = write_documents(options.text, root, options.megabytes * 10**6)
        measure(root, size / 1e6)


def write_documents(text: Path, root: Path, num_bytes: int) -> int:
    """Four files of documents, with a blank line between them; the bytes written."""
    written = documents = characters = 0
    with ExitStack() as stack, open(text, encoding="utf-8") as lines:
        files = [stack.enter_context(open(root / f"{number}.txt", "w", encoding="utf-8")) for number in range(4)]
        for line in filter(str.strip, lines):
            if written >= num_bytes:
                break
            written += files[documents % 4].write(line)
            characters += len(line)
            if characters >= DOCUMENT_CHARACTERS:
                files[documents % 4].write("\n")
                documents, characters = documents + 1, 0
    return sum(path.stat().st_size for path in root.glob("*.txt"))


def measure(root: Path, megabytes: float) -> None:
    source = FilesCorpus(kind="files", name="text", paths=[str(root / "*.txt")])
    corpus = Corpus(sources=[source], documents_per_file=10**9)
    parts = FilesSource(source).parts()
    report("corpus job: read, clean, hash", megabytes, lambda: [
        write_cleaned(part, corpus, root / f"{number}.arrow") for number, part in enumerate(parts)
    ])  # fmt: skip
    report("corpus, one process: de-duplicate, split, write", megabytes, lambda: merge(root, corpus))

    settings = load_settings(Path(__file__).resolve().parents[1])
    cluster = settings.cluster.model_copy(update={"num_workers": 1})
    settings = settings.model_copy(
        update={"corpus": corpus, "tokenizer": Tokenizer(vocab_size=30522), "shards": Shards(), "cluster": cluster}
    )
    paths = Paths(root)
    build_corpus(settings, paths)
    (train,) = listed_files(paths.corpus, "train-*")
    report("checksum of a file", megabytes, lambda: sha256(train.path), of=train.num_bytes / 1e6)
    report("tokenizer job: count characters", megabytes, lambda: count_file(train))
    report("tokenizer job: take a sample of a tenth", megabytes, lambda: write_sample(train.path, 0.1, root / "sample"))
    report("tokenizer stage on all of it, in one process", megabytes, lambda: build_tokenizer(settings, paths))
    out = root / "shards"
    out.mkdir()
    tokenizer = paths.tokenizer / "tokenizer.json"
    report("shards job: tokenize, cut, write", megabytes, lambda: shard_file(train, tokenizer, Shards(), out, out))
    tokens = sum(path.stat().st_size for path in out.iterdir()) / 1e6
    print(f"{'shards: MB written per MB of text':48} {tokens / megabytes:8.2f}")
    report("checksum of the shards", megabytes, lambda: [sha256(path) for path in out.iterdir()], of=tokens)
    report("validate_corpus, one process", megabytes, lambda: corpus_tables(corpus, paths.corpus, cluster))
    build_shards(settings, paths)
    report("validate_shards, one process", megabytes, lambda: shards_tables(paths))


def merge(root: Path, corpus: Corpus) -> None:
    out = root / "merged"
    out.mkdir()
    with SeenIds(out / "seen") as seen, split_files(out, 50_000, corpus.held_out_fraction) as files:
        for part in sorted(root.glob("*.arrow")):
            for document in kept_documents("text", read_cleaned(part), seen, Counter()):
                files.add(document)


def report(what: str, megabytes: float, job: Callable[[], Any], of: float | None = None) -> None:
    """Print the rate in megabytes of raw text (or ``of`` the file itself) a second."""
    began = time.perf_counter()
    job()
    seconds = time.perf_counter() - began
    print(f"{what:48} {(of or megabytes) / seconds:8.1f} MB/s   {seconds:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
