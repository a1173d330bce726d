"""The hub source: a dataset streamed at a pinned revision, or a local dataset folder through the same code."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from electra.common.artifacts import sha256
from electra.common.errors import DataError, InfrastructureError
from electra.config import HubCorpus
from electra.corpus.document import Part


class HubSource:
    """A dataset of the Hugging Face hub.

    Streaming keeps nothing on disk. With ``data_files`` the parquet files of the repository are read as they are:
    for repositories whose main branch holds a loading script, which ``datasets`` no longer runs. The dataset is one
    part: a single worker cleans it.
    """

    def __init__(self, settings: HubCorpus):
        self.name, self.settings = settings.name, settings
        self._is_local = Path(settings.dataset).is_dir()

    def parts(self) -> list[Part]:
        return [self]

    def texts(self) -> Iterator[str]:
        """The texts of the split, in the dataset's order.

        Raises:
            DataError: no such dataset, revision, configuration, split, file or column.
            InfrastructureError: the hub cannot be reached.
        """
        import datasets

        settings = self.settings
        with _loading(settings):
            if settings.data_files:
                # the parquet builder calls whatever it reads "train"
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
                        f"no column {settings.text_field!r}; the columns are: {', '.join(item)}",
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
        """Dataset, configuration, split and revision; for a local folder its files with their sha256."""
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


@contextmanager
def _loading(settings: HubCorpus) -> Iterator[None]:
    """Turn failures of finding, fetching or reading a dataset into the project's errors."""
    from datasets.exceptions import DatasetGenerationError
    from huggingface_hub.utils import HfHubHTTPError, httpx

    try:
        yield
    except (ConnectionError, TimeoutError, httpx.RequestError) as error:
        raise _unreachable(settings, error) from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status == 429 or status >= 500:
            raise _unreachable(settings, error) from error
        raise _unusable(settings, error) from error
    # the RuntimeError is the refusal to run a loading script
    except (FileNotFoundError, ValueError, RuntimeError, DatasetGenerationError) as error:
        raise _unusable(settings, error) from error


def _unreachable(settings: HubCorpus, error: Exception) -> InfrastructureError:
    return InfrastructureError(
        f"{settings.dataset} cannot be fetched: {error}",
        where=f"corpus source {settings.name!r}",
        next_step="check the network and run again",
    )


def _unusable(settings: HubCorpus, error: Exception) -> DataError:
    return DataError(
        f"{settings.dataset} cannot be loaded: {error}",
        where=f"corpus source {settings.name!r}",
        next_step="check dataset, revision, config_name, split, data_files and your access rights",
    )
