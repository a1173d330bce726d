"""Rate of one worker at each job of the text stages, and of the serial work after the jobs.

    python -m benchmarks.text_rates TEXT [--megabytes 32]
    python -m benchmarks.text_rates TEXT --steps [NAME ...] [--megabytes 4] [--factors 1 4 16] [--write FILE]
    python -m benchmarks.text_rates TEXT --characters 300 --steps "corpus stage as init has it"

TEXT has one paragraph a line. It is cut into documents of about 3,000 characters, the length of a web page, in
four files; with --characters of at most this many.
Every job runs alone on one core, as one of many workers would run it. docs/scaling.md has the figures.

With --steps the corpus stage is measured step by step at several sizes of the text, each in a separate process: MB of
text per second of processor time (nearly independent of other programs) after loading models and tables, and the memory
beyond imports. The time of a single step is the difference of the lines with and without the step. With NAMEs, only
these lines of the table are measured; their figures replace those of the same size in FILE.
"""

import argparse
import multiprocessing
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from electra.checks.corpus import corpus_tables
from electra.checks.shards import shards_tables
from electra.cluster.executors import limit_threads
from electra.common.artifacts import building, listed_files, read_json, sha256, write_json, write_manifest
from electra.common.paths import Paths
from electra.config import Corpus, FilesCorpus, Shards, Tokenizer
from electra.config.loading import load_settings
from electra.text.corpus.build import build_corpus
from electra.text.corpus.cleaned import clean_documents, read_cleaned, write_cleaned
from electra.text.corpus.decontamination import EXAMPLES
from electra.text.corpus.files import FilesSource
from electra.text.corpus.leaks import EvaluationTexts
from electra.text.corpus.near_duplicates import SeenIds
from electra.text.corpus.selection import kept_documents
from electra.text.corpus.writer import split_files
from electra.text.shards.build import build_shards, shard_file
from electra.text.tokenizer.build import build_tokenizer, count_file
from electra.text.tokenizer.sample import write_sample

DOCUMENT_CHARACTERS = 3000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--megabytes", type=int, help="32, with --steps 4")
    parser.add_argument("--characters", type=int, help="maximum length of a document")
    parser.add_argument("--steps", nargs="*", choices=[*STEPS, *STAGES], metavar="NAME")
    parser.add_argument("--factors", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--repeats", type=int, default=3, help="repeats of a step; the fastest counts")
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    limit_threads(1)
    if options.steps is not None:
        sizes = [factor * (options.megabytes or 4) * 10**6 for factor in options.factors]
        result = measure_steps(options.text, sizes, options.steps, options.repeats, options.characters)
        if options.write:
            from benchmarks.measure import machine  # imports torch, whose memory must not count for the steps

            before = read_json(options.write) if options.steps and options.write.exists() else {"steps": {}}
            result["steps"] = before["steps"] | {
                name: before["steps"].get(name, {}) | row for name, row in result["steps"].items()
            }
            write_json(options.write, {"machine": machine(), **result})
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        size = write_documents(options.text, root, (options.megabytes or 32) * 10**6, options.characters)
        measure(root, size / 1e6)


def write_documents(text: Path, root: Path, num_bytes: int, most: int | None = None) -> int:
    """Write four files of documents separated by blank lines; return the bytes written.

    Args:
        most: characters per document, which may then begin and end inside a paragraph; None for whole paragraphs up
            to ``DOCUMENT_CHARACTERS``.
    """
    written = documents = characters = 0
    with ExitStack() as stack, open(text, encoding="utf-8") as lines:
        files = [stack.enter_context(open(root / f"{number}.txt", "w", encoding="utf-8")) for number in range(4)]
        for line in _pieces(lines, most) if most else filter(str.strip, lines):
            if written >= num_bytes:
                break
            written += files[documents % 4].write(line)
            characters += len(line)
            if most or characters >= DOCUMENT_CHARACTERS:
                files[documents % 4].write("\n")
                documents, characters = documents + 1, 0
    return sum(path.stat().st_size for path in root.glob("*.txt"))


def _pieces(lines: Iterable[str], characters: int) -> Iterator[str]:
    """Yield the words of a text in lines of at most ``characters``."""
    piece = ""
    for word in (word for line in lines for word in line.split()):
        if piece and len(piece) + len(word) >= characters:
            yield f"{piece}\n"
            piece = ""
        piece += f" {word}" if piece else word
    if piece:
        yield f"{piece}\n"


def measure(root: Path, megabytes: float) -> None:
    source = FilesCorpus(kind="files", name="text", paths=[str(root / "*.txt")])
    corpus = Corpus(sources=[source], documents_per_file=10**9)
    parts = FilesSource(source).parts()
    report("corpus job: read, clean, hash", megabytes, lambda: [
        write_cleaned(part, corpus, root, root / f"{number}.arrow") for number, part in enumerate(parts)
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


KINDS = "unwrap boilerplate markup personal_data repeated_lines gopher repetition fineweb language".split()
STEPS: dict[str, dict[str, Any]] = {
    "read, clean, hash": {},
    **{
        kind: {"cleaning": [{"kind": kind, **({"languages": ["en"]} if kind == "language" else {})}]}
        for kind in KINDS
    },
    "near-duplicates: sign": {"near_duplicates": {}},
    "decontamination": {"decontamination": {}},
}  # fmt: skip
STAGES: dict[str, dict[str, Any]] = {
    "corpus stage": {},
    "corpus stage, repeated_lines of the corpus": {"cleaning": [{"kind": "repeated_lines", "scope": "corpus"}]},
    "corpus stage, near-duplicates": {"near_duplicates": {}},
    "corpus stage, decontamination": {"decontamination": {}},
    "corpus stage as init has it": {  # without a table of labels
        "cleaning": [{"kind": "boilerplate"}, {"kind": "markup"}], "near_duplicates": {}, "documents_per_file": 5000,
        "max_chars": 20_000_000, "split_longer_than": 100_000,
    },
    "corpus stage as `tiny` has it": {
        "cleaning": [{"kind": "boilerplate"}, {"kind": "markup"}], "near_duplicates": {}, "decontamination": {},
    },
}  # fmt: skip
EVALUATION_TEXTS = 20_000


def measure_steps(
    text: Path, sizes: list[int], only: list[str], repeats: int, characters: int | None = None
) -> dict[str, Any]:
    """Return rates and memory of every step at every size; with ``only``, of these and of the first step."""
    names = [name for name in (*STEPS, *STAGES) if not only or name in (next(iter(STEPS)), *only)]
    rows: dict[str, dict[str, Any]] = {name: {} for name in names}
    for size in sizes:
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            megabytes = apart(write_documents, text, root, size, characters) / 1e6
            apart(write_evaluation_texts, text, Paths(root).evaluation_texts)
            alone = 0.0  # seconds of the first row
            for step in rows:
                seconds, peak = apart(run_step, step, root, repeats)
                alone = alone or seconds
                row = {"mb_per_second": round(megabytes / seconds, 2), "memory_mib": peak}
                if step in list(STEPS)[1:]:
                    row["step_mb_per_second"] = round(megabytes / max(seconds - alone, 0.01), 2)
                rows[step][f"{size // 10**6} MB"] = row
                print(f"{step:48} {size / 1e6:4.0f} MB {row}", flush=True)
    more = {"document_characters": characters} if characters else {}
    return {"steps": rows, "evaluation_texts": EVALUATION_TEXTS, **more}


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a new process and return its result, so that memory is not shared between measurements."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(function, arguments)


def run_step(name: str, root: Path, repeats: int) -> tuple[float, int]:
    """Return processor seconds (for steps the minimum of ``repeats``) and peak memory beyond imports in MiB."""
    limit_threads(1)
    source = {"kind": "files", "name": "text", "paths": [str(root / "?.txt")]}
    corpus = Corpus.model_validate({"sources": [source], **STEPS.get(name, STAGES.get(name, {}))})
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = _memory("VmRSS")
    list(clean_documents(iter(["Models and tables are loaded once."]), corpus, Paths(root).evaluation_texts))
    seconds = []
    for _ in range(repeats if name in STEPS else 1):
        begin = time.process_time()
        if name in STEPS:
            for number, part in enumerate(FilesSource(corpus.sources[0]).parts()):  # type: ignore[arg-type]
                write_cleaned(part, corpus, Paths(root).evaluation_texts, root / f"{number}.arrow")
        else:
            settings = load_settings(Path(__file__).resolve().parents[1])
            cluster = settings.cluster.model_copy(update={"num_workers": 1})
            build_corpus(settings.model_copy(update={"corpus": corpus, "cluster": cluster}), Paths(root))
        seconds.append(time.process_time() - begin)
    return min(seconds), _memory("VmHWM") - before


def _memory(field: str) -> int:
    """Return a field of this process' memory in MiB."""
    return int(Path("/proc/self/status").read_text().split(f"{field}:")[1].split()[0]) // 1024


def write_evaluation_texts(text: Path, folder: Path) -> None:
    """Write a table of evaluation texts: paragraphs from the end of the text, about as many as in GLUE's dev sets."""
    with open(text, encoding="utf-8") as lines:
        last = deque((line for line in lines if 8 <= len(line.split()) <= 60), EVALUATION_TEXTS)
    with building(folder) as scratch:
        EvaluationTexts.of(list(last)).save(scratch)
        np.save(scratch / EXAMPLES, np.arange(len(last)), allow_pickle=False)
        facts = {"task": "GLUE", "split": "dev", "examples": len(last), "compared": len(last)}
        write_manifest(scratch, sets=[facts])


def report(what: str, megabytes: float, job: Callable[[], Any], of: float | None = None) -> None:
    """Print the rate in megabytes per second of raw text, or of the file with ``of`` megabytes."""
    began = time.perf_counter()
    job()
    seconds = time.perf_counter() - began
    print(f"{what:48} {(of or megabytes) / seconds:8.1f} MB/s   {seconds:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
