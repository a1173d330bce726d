"""Jobs for workers in other processes, which import them from here (and import little, to start quickly)."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from electra.common.errors import DataError


def slow_square(number: int, log: Path) -> int:
    """The first jobs take longest, so that results come out of order."""
    with open(log, "a") as file:
        file.write(f"{number}\n")
    time.sleep(0.3 / (1 + number))
    return number * number


def refuse(log: Path) -> None:
    with open(log, "a") as file:
        file.write("called\n")
    raise DataError("the row is wrong", where="a.jsonl:3", next_step="repair it")


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def sleep_for_long(log: Path) -> None:
    log.write_text(str(os.getpid()))
    time.sleep(600)


def clean_or_die(part: Any, corpus: Any, evaluation_texts: Path, file: Path) -> Any:
    from electra.text.corpus.cleaned import write_cleaned

    _once(file.parent, "corpus")
    return write_cleaned(part, corpus, evaluation_texts, file)


def describe_or_die(corpus: Any, path: Path, *rest: Any) -> Any:
    from electra.checks.corpus_counts import count_file

    _once(path.parent, "validate_corpus", leave=False)
    return count_file(corpus, path, *rest)


def count_or_die(file: Any) -> Any:
    from electra.text.tokenizer.build import count_file

    _once(file.path.parent, "tokenizer", leave=False)
    return count_file(file)


def shard_or_die(corpus_file: Any, tokenizer_file: Path, rules: Any, folder: Path, unfinished: Path) -> Any:
    from electra.text.shards.build import shard_file

    _once(unfinished, "shards")
    return shard_file(corpus_file, tokenizer_file, rules, folder, unfinished)


def _once(folder: Path, stage: str, leave: bool = True) -> None:
    """Kill this worker at the first call for a stage, with a half-written file among those of the jobs."""
    data = next(parent for parent in folder.parents if parent.name == "data")
    try:
        (data.parent / f"killed-in-{stage}").touch(exist_ok=False)
    except FileExistsError:
        return
    if leave:
        (folder / ".half-written.npy").write_bytes(b"half")
    die()
