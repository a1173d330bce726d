"""Predict with a fine-tuned model: rows in, JSONL or CSV out, in the input's order.

Inputs and outputs of each kind of task are in its file in ``electra/finetune``.
"""

import csv
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, TextIO

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from electra.common.artifacts import writing_named
from electra.common.errors import ConfigError, DataError
from electra.common.lines import byte_lines, open_input
from electra.common.output import refuse_input
from electra.common.paths import Paths
from electra.common.printing import raw_stream
from electra.config import Cluster
from electra.finetune.base import Finetuning, Record
from electra.finetune.kinds import FINETUNING
from electra.finetune.model import TaskModel
from electra.finetune.run import decoded, prepare_machine
from electra.finetune.saved import SavedModel, load_model
from electra.predict.inputs import (
    InputFormatName,
    Rows,
    format_of,
    impatient_windows,
    sniffed,
    text_of,
    windows,
    words_of,
)
from electra.tasks.format import Row


def predict_records(saved: SavedModel, rows: list[Row], batch_size: int, bf16: bool) -> list[Record]:
    """Return one record per row.

    Args:
        rows: the fields of the kind of task (:meth:`electra.finetune.base.Finetuning.fields`), and an id.
    """
    kind, spec, options = FINETUNING[saved.spec.kind], saved.spec, saved.options
    unlabelled = [kind.row(spec, row) for row in rows]
    features = kind.features(spec, unlabelled, saved.vocabulary, options)
    outputs = decoded(options, saved.model, features, saved.vocabulary, bf16, batch_size)
    return kind.records(spec, unlabelled, features, outputs)


def value_of(kind: Finetuning[Any], value: Any) -> Any | None:
    """Return the value of a row's field from that of the input; None if it is invalid."""
    return words_of(value) if kind.takes_words else text_of(value)


OutputFormat = Literal["jsonl", "csv"]
Write = Callable[[list[dict[str, Any]]], None]


@contextmanager
def writing(path: Path | None, format: OutputFormat, inputs: Iterable[Path | int] = ()) -> Iterator[Write]:
    """Yield a function that writes records; they are flushed when it returns, unless they go to a file.

    Args:
        path: as in :func:`writing_named`; standard output if None.
        inputs: files that are read.

    Raises:
        ConfigError: the path is a folder or an input, is inside an artefact, or cannot be written to.
        DataError: the file's folder does not exist.
        InfrastructureError: the disk is full or read-only.
    """
    if path is None:
        refuse_input(1, inputs)
        yield _writer(sys.stdout if sys.stdout.isatty() else raw_stream(sys.stdout), format)
        return
    if not os.path.isdir(path.parent):
        raise DataError(f"there is no folder {path.parent}", next_step="make it, or correct --output")
    with writing_named(path, inputs) as file:
        yield _writer(file, format)


def _writer(file: TextIO, format: OutputFormat) -> Write:
    columns: list[str] = []  # of the CSV; the first record gives them

    def write_row(row: dict[str, Any]) -> None:
        # csv quotes only the line end that it writes itself, and readers end a row at a lone carriage return, too
        has_return = any("\r" in value for value in row.values() if isinstance(value, str))
        quoting: Literal[0, 1] = csv.QUOTE_ALL if has_return else csv.QUOTE_MINIMAL
        csv.DictWriter(file, columns, lineterminator="\n", quoting=quoting).writerow(row)

    def write(records: list[dict[str, Any]]) -> None:
        if format == "jsonl":
            file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        else:
            for row in map(_flat, records):
                if not columns:
                    columns.extend(row)
                    write_row(dict(zip(columns, columns, strict=True)))
                write_row(row)
        file.flush()

    return write


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """Give values of a dict a column each, ``probabilities.1``; a list, or an id that is a dict, is one JSON cell."""
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict) and name != "id":  # ids are the user's: their keys may differ from row to row
            flat |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            flat[name] = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
    return flat


def predict_file(
    cluster: Cluster,
    paths: Paths,
    model: str,
    source: Path | None,
    output: Path | None = None,
    *,
    format: OutputFormat = "jsonl",
    input_format: InputFormatName | None = None,
    text_columns: tuple[str, ...] | None = None,
    batch_size: int | None = None,
) -> int:
    """Write one record per row: label and probabilities, score, tags, choice or answer (docs/encoders.md).

    Memory does not grow with the input: rows are read, sorted by length and written in windows. Rows of a pipe are
    passed on after a short wait, so their batches, and with them the last digits, depend on their timing.

    Args:
        model: name of a fine-tuning run made with ``--keep``, or its folder.
        source: the input; standard input if None.
        output: the file to write, complete or not at all; standard output if None.
        text_columns: names of the texts in the input, if they differ from the project's.
        batch_size: examples per batch; twice the batch size of fine-tuning if None.

    Returns:
        The number of rows.

    Raises:
        ConfigError: no such model, or columns that do not fit the task.
        DataError: no such input, a malformed or overlong line (with its number), or a damaged model.
    """
    folder = find_model(paths, model)
    with ExitStack() as stack:
        # open files before loading the model, which takes a while
        file = sys.stdin.buffer if source is None else stack.enter_context(open_input(source))
        write = stack.enter_context(
            writing(output, format, [0 if source is None else source, paths.root / "params.yaml"])
        )
        device, bf16 = prepare_machine(cluster)
        saved = load_model(folder)
        saved.model.to(device)
        if bf16:
            round_weights(saved.model)
        kind = FINETUNING[saved.spec.kind]
        fields = kind.fields(saved.spec)
        columns = text_columns or fields
        if len(columns) != len(fields):
            raise ConfigError(
                f"{saved.spec.name} has {len(fields)} texts ({', '.join(fields)}), {len(columns)} columns are named",
                next_step=f"give --text-columns {','.join(f'<{field}>' for field in fields)}",
            )
        start, number = time.perf_counter(), 0
        size = _regular_size(file)
        bar = stack.enter_context(_bar())
        task = bar.add_task("0 rows", total=size)
        where = "standard input" if source is None else str(source)
        lines: Iterable[bytes] = _counted(byte_lines(file, where), bar, task)
        if input_format is None:
            input_format, lines = sniffed(lines, format_of(source, len(fields)))
        rows = Rows(lines, input_format, fields, columns, where, partial(value_of, kind))
        for window in (impatient_windows if size is None else windows)(rows, kind.window):
            write(predict_records(saved, window, batch_size or 2 * saved.options.batch_size, bf16))
            number += len(window)
            bar.update(task, description=f"{number:,} rows")
    seconds = time.perf_counter() - start
    print(f"predict: {number:,} rows in {seconds:.1f} s, {number / seconds:,.0f} a second", file=sys.stderr)
    return number


def round_weights(model: TaskModel) -> None:
    """Convert weights of linear layers to bf16 once: autocast would round them to the same values for every batch.

    An encoder that computes in fp32 alone, such as DeBERTa, keeps its weights.
    """
    in_fp32 = set(model.encoder.modules()) if getattr(model.encoder, "fp32_only", False) else set()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear) and module not in in_fp32:
            module.weight.data = module.weight.data.to(torch.bfloat16)


def find_model(paths: Paths, model: str) -> Path:
    """Return the folder of a fine-tuning run by its name, or the folder at the path ``model``.

    Raises:
        ConfigError: neither exists.
    """
    folders = (paths.kept(model), paths.finetuned(model), paths.set_aside(model), Path(model))
    found = [folder for folder in folders if folder.is_dir()]
    if found:
        return next((folder for folder in found if (folder / "model.safetensors").is_file()), found[0])
    names = {path.parent.name for folder in folders[:3] for path in folder.parent.glob("*/model.safetensors")}
    kept = ", ".join(sorted(names)) or "none"
    raise ConfigError(
        f"there is no fine-tuning run and no folder {model!r}",
        next_step=f"fine-tune with --keep; runs with a model are: {kept}",
    )


def _regular_size(file: BinaryIO) -> int | None:
    """Return the size of a file in bytes; None for a pipe or a terminal."""
    facts = os.fstat(file.fileno())
    return facts.st_size if stat.S_ISREG(facts.st_mode) else None


def _bar() -> Progress:
    """Return a progress bar on standard error, shown only on a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    return Progress(
        *columns, console=Console(file=raw_stream(sys.stderr)), disable=not sys.stderr.isatty(), transient=True
    )


def _counted(lines: Iterable[bytes], bar: Progress, task: object) -> Iterator[bytes]:
    for line in lines:
        bar.advance(task, len(line))  # type: ignore[arg-type]
        yield line
