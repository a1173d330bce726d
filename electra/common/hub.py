"""The Hugging Face hub: local copies of repositories, and errors in loading datasets."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from electra.common.errors import ConfigError, DataError, InfrastructureError

RUN_AGAIN = "check the network and run again"


@contextmanager
def dataset_errors(name: str, *, where: str, next_step: str) -> Iterator[None]:
    """Convert errors of finding, fetching or reading a dataset into the project's errors.

    Args:
        name: the dataset, for messages.
        where, next_step: place and advice in the error for a dataset that cannot be loaded.

    Raises:
        DataError: no such dataset, revision, configuration, split or file; no access; or a file is damaged.
        InfrastructureError: the hub cannot be reached.
    """
    from datasets.exceptions import DatasetGenerationError
    from huggingface_hub.utils import HfHubHTTPError, httpx

    try:
        yield
    except (ConnectionError, TimeoutError, httpx.RequestError, HfHubHTTPError) as error:
        status = error.response.status_code if isinstance(error, HfHubHTTPError) else None
        if status is None or status == 429 or status >= 500:
            raise InfrastructureError(f"{name} cannot be fetched: {error}", where=where, next_step=RUN_AGAIN) from error
        raise DataError(f"{name} cannot be loaded: {error}", where=where, next_step=next_step) from error
    # RuntimeError: datasets refuses to run a loading script
    except (FileNotFoundError, ValueError, RuntimeError, DatasetGenerationError) as error:
        raise DataError(f"{name} cannot be loaded: {error}", where=where, next_step=next_step) from error


def local_folder(source: Path, revision: str | None, files: Sequence[str]) -> Path:
    """Return a local folder unchanged, or the local copy of a hub repository ``owner/name`` after fetching ``files``.

    Args:
        revision: full commit hash on the hub.
        files: names or patterns of the files to fetch.

    Raises:
        ConfigError: there is no such folder or repository, or its commit is not given in full.
        InfrastructureError: the hub cannot be reached.
    """
    if source.is_dir():
        return source
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", str(source)):
        raise ConfigError(f"there is no folder {source}", next_step="name a folder, or owner/name on the hub")
    if revision is None or not re.fullmatch("[0-9a-f]{40}", revision):
        raise ConfigError(
            f"there is no folder {source}, and a hub repository needs its full 40-hex commit",
            next_step=f"correct the path, or copy the commit from https://huggingface.co/{source}/commits/main",
        )
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    from huggingface_hub.utils import httpx

    try:
        return Path(huggingface_hub.snapshot_download(str(source), revision=revision, allow_patterns=list(files)))
    except (ConnectionError, TimeoutError, httpx.RequestError, LocalEntryNotFoundError) as error:
        raise InfrastructureError(f"{source} cannot be fetched: {error}", next_step=RUN_AGAIN) from error
    except HfHubHTTPError as error:
        raise ConfigError(
            f"{source} cannot be loaded: {error}", next_step="check name, revision and your access rights"
        ) from error
