"""Documents of a dataset on the Hugging Face hub."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from electra.common.artifacts import sha256
from electra.common.errors import DataError
from electra.common.hub import dataset_errors
from electra.common.printing import listed
from electra.config import HubCorpus
from electra.text.corpus.sources import Part


class HubSource:
    """Source of the documents of a dataset on the Hugging Face hub.

    Streaming keeps nothing on disk. With ``data_files`` the repository's parquet files are read directly, for
    repositories whose main branch holds a loading script, which ``datasets`` no longer runs. The dataset is one part,
    so a single worker cleans it.
    """

    def __init__(self, settings: HubCorpus):
        self.name, self.settings = settings.name, settings
        self._is_local = Path(settings.dataset).is_dir()

    def parts(self) -> list[Part]:
        return [self]

    def texts(self) -> Iterator[str]:
        """Yield the texts of the split, in the dataset's order.

        Raises:
            DataError: no such dataset, revision, configuration, split, file or column.
            InfrastructureError: the hub cannot be reached.
        """
        import datasets

        settings = self.settings
        where, next_step = f"corpus source {settings.name!r}", "check dataset, revision, config_name, split, data_files"
        with dataset_errors(settings.dataset, where=where, next_step=f"{next_step} and your access rights"):
            if settings.data_files:
                # the parquet builder names its only split "train"
                dataset = datasets.load_dataset(
                    "parquet", data_files=self._data_files(settings.data_files), split="train", streaming=True
                )
            else:
                dataset = datasets.load_dataset(
                    settings.dataset,
                    settings.config_name,
                    split=settings.split,
                    revision=None if self._is_local else settings.revision,
                    streaming=True,
                )
            for row, item in enumerate(dataset):
                if settings.text_field not in item:
                    raise DataError(
                        f"no column {settings.text_field!r}; the columns are: {listed(item)}",
                        where=f"{settings.dataset}, split {settings.split}",
                        next_step=f"set text_field of the source {settings.name!r}",
                    )
                text = item[settings.text_field]
                if not isinstance(text, str | None):
                    raise DataError(
                        f"column {settings.text_field!r} holds {type(text).__name__}, not text",
                        where=f"{settings.dataset}, split {settings.split}, row {row}",
                        next_step=f"set text_field of the source {settings.name!r}",
                    )
                yield text or ""

    def describe(self, read: list[dict[str, Any]]) -> dict[str, Any]:
        return self.facts(complete=bool(read))

    def facts(self, *, complete: bool) -> dict[str, Any]:
        """Return dataset, configuration, split and revision; for a local folder also its files with their sha256."""
        settings = self.settings
        facts: dict[str, Any] = {"dataset": settings.dataset, "config_name": settings.config_name}
        facts |= {"data_files": settings.data_files, "split": settings.split}
        if not self._is_local:
            return facts | {"revision": settings.revision}
        folder = Path(settings.dataset)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return facts | {
            "files": [
                {"path": path.relative_to(folder).as_posix(), "bytes": path.stat().st_size, "sha256": sha256(path)}
                for path in files
            ]
        }

    def _data_files(self, pattern: str) -> str:
        if self._is_local:
            return str(Path(self.settings.dataset) / pattern)
        return f"hf://datasets/{self.settings.dataset}@{self.settings.revision}/{pattern}"
