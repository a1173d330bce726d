"""A folder with a model: on disk, or a repository of the Hugging Face hub at a pinned commit."""

import re
from collections.abc import Sequence
from pathlib import Path

from electra.common.errors import ConfigError, InfrastructureError


def local_folder(source: Path, revision: str | None, files: Sequence[str]) -> Path:
    """A local folder as it is; a repository ``owner/name`` of the hub after fetching the files asked for.

    Args:
        revision: full commit on the hub.
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
        raise InfrastructureError(
            f"{source} cannot be fetched: {error}", next_step="check the network and run again"
        ) from error
    except HfHubHTTPError as error:
        raise ConfigError(
            f"{source} cannot be loaded: {error}", next_step="check name, revision and your access rights"
        ) from error
