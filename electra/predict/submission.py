"""Files for leaderboards and official scripts, from the predictions of one seed's fine-tuning runs.

GLUE (gluebenchmark.com): a zip of eleven TSV files, ``index`` and ``prediction``. SQuAD: JSON by question id; test sets
are not public, so the files are of the development sets, for evaluate-v1.1.py and evaluate-v2.0.py.
"""

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra.common.artifacts import building, write_json, write_manifest
from electra.common.errors import DataError
from electra.common.lines import open_input, text_lines
from electra.common.parsing import parse_json
from electra.common.paths import Paths
from electra.kinds import KINDS
from electra.tasks.catalogue import TASKS
from electra.tasks.matrix import PRETRAINED, Start, finetuned_name, read_rows

_EPOCH = (1980, 1, 1, 0, 0, 0)  # fixed timestamp: the same predictions give the same zip


@dataclass(frozen=True)
class Handed:
    """One file of GLUE's zip (:class:`electra.tasks.format.GlueFile`), with the task and split it predicts."""

    name: str
    task: str
    rows: int
    fill: str
    split: str


GLUE_FILES = tuple(
    sorted(
        (
            Handed(file.name, spec.name, file.rows, file.fill, split)
            for spec in TASKS.values()
            for split, file in spec.glue_files.items()
        ),
        key=lambda file: file.split == "test_diagnostic",  # AX is last
    )
)
SQUAD_TASKS = tuple(name for name, spec in TASKS.items() if spec.source == "squad")


def write_submission(
    paths: Paths, *, seed: int, fill_missing: bool = False, null_threshold: float = 0.0, start_from: str | None = None
) -> None:
    """Write ``models/submission/<seed>/`` from the fine-tuning runs of this seed.

    Args:
        fill_missing: fill GLUE files without predictions with the majority class; they are listed.
        null_threshold: SQuAD 2.0 questions with a higher no-answer score get no answer.
        start_from: submit tasks that were also fine-tuned from this task's encoder from there; they are listed.

    Raises:
        DataError: there is nothing to submit, GLUE files are missing, predictions are of other data, or no task was
            fine-tuned from ``start_from``.
    """
    predicted = {
        file: lines
        for file in GLUE_FILES
        if (lines := list(_predictions(_run_folder(paths, file.task, seed, start_from), file.split)))
    }
    missing = [file for file in GLUE_FILES if file not in predicted]
    questions = {task: lines for task in SQUAD_TASKS if (lines := _dev_answers(paths, task, seed, start_from))}
    if not predicted and not questions:
        raise DataError(
            f"seed {seed} has predictions neither of a GLUE test set nor of SQuAD",
            where=str(paths.finetuned(finetuned_name("<task>", seed, PRETRAINED))),
            next_step="put the test files beside the others, then run: dvc repro evaluate",
        )
    if predicted and missing and not fill_missing:
        raise DataError(
            f"the leaderboard takes eleven files; without predictions are {', '.join(f.name for f in missing)}",
            where=str(paths.tasks),
            next_step="add their test files and fine-tune them with this seed, or fill them with the majority class: "
            "--fill-missing",
        )
    tasks = {file.name: file.task for file in predicted} | {task: task for task in questions}
    later = [name for name, task in tasks.items()
             if _run_folder(paths, task, seed, start_from) != _run_folder(paths, task, seed, None)]  # fmt: skip
    if start_from and not later:
        raise DataError(
            f"no task was fine-tuned from {start_from}'s encoder with seed {seed}",
            where="--start-from",
            next_step="correct the task's name, or fine-tune from it: cells.from_intermediate",
        )
    with building(paths.submission(seed)) as folder:
        if predicted:
            _write_glue(paths, folder / "glue.zip", predicted)
        for task, lines in questions.items():
            _write_squad(folder, task, lines, null_threshold)
        filled = [file.name for file in missing] if predicted else []
        odd = [file.name for file, lines in predicted.items() if len(lines) != file.rows]
        write_manifest(
            folder,
            seed=seed,
            filled_with_majority_class=filled,
            not_the_official_rows=odd,
            **({"started_from": {start_from: later}} if start_from else {}),
        )
    print(f"submission: {paths.submission(seed)}: {', '.join(_made(predicted, questions))}")
    if filled:
        print(f"filled with the majority class, not predicted: {', '.join(filled)}")
    if odd:
        print(f"not the rows of the official test set, the leaderboard will refuse them: {', '.join(odd)}")


def _made(predicted: dict[Handed, Any], questions: dict[str, Any]) -> list[str]:
    return (["glue.zip"] if predicted else ["no glue.zip, since no test set is predicted"]) + list(questions)


def _run_folder(paths: Paths, task: str, seed: int, start_from: str | None) -> Path:
    """Return the folder of the fine-tuning run to submit."""
    later = start_from and _found(paths, finetuned_name(task, seed, Start("task", start_from)))
    return later if later and later.is_dir() else _found(paths, finetuned_name(task, seed, PRETRAINED))


def _found(paths: Paths, key: str) -> Path:
    """Return a fine-tuning run's folder; runs the score card does not request may have been moved to ``set-aside``."""
    folders = (paths.finetuned(key), paths.set_aside(key))
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def _predictions(folder: Path, split: str) -> Iterator[dict[str, Any]]:
    """Yield a run's predictions of one split; none if the run or the split does not exist."""
    path = folder / "predictions.jsonl"
    if not path.is_file():
        return
    with open_input(path) as file:
        for number, line in text_lines(file, str(path)):
            found = parse_json(line, where=f"{path}:{number}", next_step="dvc repro")
            if found["split"] == split:
                yield found


def _dev_answers(paths: Paths, task: str, seed: int, start_from: str | None) -> list[dict[str, Any]]:
    lines = list(_predictions(_run_folder(paths, task, seed, start_from), "dev"))
    if lines:
        _check_rows(paths, task, "dev", lines)
    return lines


def _check_rows(paths: Paths, task: str, split: str, lines: list[dict[str, Any]]) -> None:
    if [row["id"] for row in read_rows(paths, task, split)] != [line["id"] for line in lines]:
        raise DataError(
            f"{task}: the predictions are not those of the rows in data/tasks",
            where=str(paths.tasks / task / f"{split}.jsonl"),
            next_step="run: dvc repro finetune",
        )


def _write_glue(paths: Paths, path: Path, predicted: dict[Handed, list[dict[str, Any]]]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in GLUE_FILES:
            if lines := predicted.get(file):
                _check_rows(paths, file.task, file.split, lines)
                spec = TASKS[file.task]
                rows = [(line["id"], KINDS[spec.kind].submitted(spec, line)) for line in lines]
            else:
                rows = [(str(index), file.fill) for index in range(file.rows)]
            text = "index\tprediction\n" + "".join(f"{index}\t{word}\n" for index, word in rows)
            entry = zipfile.ZipInfo(file.name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, text)


def _write_squad(folder: Path, task: str, lines: list[dict[str, Any]], null_threshold: float) -> None:
    """Write ``<task>.predictions.json``, and for 2.0 the files from which evaluate-v2.0.py finds the best threshold."""
    texts = {line["id"]: line["text"] for line in lines}
    if not TASKS[task].has_unanswerable:
        write_json(folder / f"{task}.predictions.json", texts)
        return
    odds = {line["id"]: line["null_score"] for line in lines}
    given = {id: text if odds[id] <= null_threshold else "" for id, text in texts.items()}
    write_json(folder / f"{task}.predictions.json", given)
    write_json(folder / f"{task}.best_answers.json", texts)
    write_json(folder / f"{task}.null_odds.json", odds)
