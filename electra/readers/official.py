"""Tasks in their official files."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from electra.common.artifacts import sha256
from electra.common.errors import ConfigError, DataError
from electra.readers.conll import encoding_of, read_conll
from electra.readers.official_tables import read_json_lines, read_sentences, read_swag
from electra.readers.questions import read_mrqa, read_questions
from electra.tasks.catalogue import TaskSpec
from electra.tasks.format import Row


class OfficialSource:
    """Source of tasks in their official files, such as ``<glue>/<task>/{train,dev,test}.tsv``.

    Args:
        folders: folder of each source that tasks are read from, by its key in ``tasks.source``: ``glue`` has a folder
            per task, ``squad`` the files ``{train,dev}-v{1.1,2.0}.json``.

    Attributes:
        counts: numbers of rows repaired or left out so far, by task.
    """

    def __init__(self, **folders: Path):
        self.folders = folders
        self.counts: dict[str, Counter[str]] = {}

    def splits(self, spec: TaskSpec) -> list[str]:
        """Return the available splits; only test splits may be missing."""
        return [split for split in spec.files if not split.startswith("test") or self._path(spec, split).is_file()]

    def read(self, spec: TaskSpec, split: str) -> Iterator[Row]:
        """Yield the rows of one split, in file order.

        Raises:
            DataError: a file is missing or unreadable; a row is malformed, with its file and line.
        """
        path = self._path(spec, split)
        if not path.is_file():
            others = " or ".join(spec.other_files.get(split, ()))
            raise DataError(
                f"{spec.name}: {path} does not exist" + (f", nor {others}" if others else ""),
                next_step="add the file, or drop the task",
            )
        counts = self.counts.setdefault(spec.name, Counter())
        try:
            yield from read_official(spec, split, path, counts)
        except UnicodeDecodeError as error:
            raise DataError(f"{spec.name}: the file is not UTF-8 text: {error}", where=str(path)) from None

    def describe(self, spec: TaskSpec) -> dict[str, Any]:
        """Return the files of a task with their sha256, and the encodings if the task allows several."""
        paths = [self._path(spec, split) for split in self.splits(spec)]
        files = [{"name": path.name, "sha256": sha256(path)} for path in paths]
        if len(spec.encodings) > 1:
            files = [
                {**file, "encoding": encoding_of(path, spec.encodings)} for file, path in zip(files, paths, strict=True)
            ]
        return {"files": files}

    def _path(self, spec: TaskSpec, split: str) -> Path:
        folder = self.folders.get(spec.source)
        if folder is None:
            raise ConfigError(
                f"{spec.name} is among cells.tasks, but there is no folder to read it from",
                where=f"tasks.source.{spec.source}",
                next_step=f"set tasks.source.{spec.source}, or remove {spec.name} from cells.tasks",
            )
        return spec.path_in(folder, split)


def read_official(spec: TaskSpec, split: str, path: Path, counts: Counter[str]) -> Iterator[Row]:
    """Return the rows of one file in the layout of the task's source, in file order.

    Args:
        counts: numbers of rows repaired or left out; updated.

    Raises:
        DataError: the file is unreadable; a row is malformed, with its file and line.
    """
    labelled = not split.startswith("test")
    match spec.source:
        case "squad":
            return read_questions(spec, path, counts)
        case "mrqa":
            return read_mrqa(spec, path, counts)
        case "conll":
            return read_conll(spec, path)
        case "swag":
            return read_swag(spec, path, labelled)
        case "superglue":
            return read_json_lines(spec, path, labelled)
        case _:
            return read_sentences(spec, split, path, counts)
