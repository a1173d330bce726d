"""Checking fsspec URLs before they are opened, and removing secrets from them for messages."""

import inspect
from urllib.parse import urlsplit

from electra.common.errors import DataError


def without_secrets(name: str) -> str:
    """Return a URL without user, password and query, which may be a key; return any other name unchanged."""
    if "://" not in name:
        return name
    try:
        parts = urlsplit(name)
    except ValueError:  # not a URL: any part of it may be a secret
        return f"{name.partition('://')[0]}://***"
    if "@" not in parts.netloc and not parts.query:
        return name
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="***" if parts.query else "").geturl()


def check_url(url: str) -> None:
    """Raise DataError for a URL that no file system of fsspec can open, without connecting to it.

    Raises:
        DataError: its protocol is unknown or not installed, or the URL lacks what the protocol needs, as
            ``github://a.txt`` lacks the repository.
    """
    import fsspec  # imported here: slow and rarely needed

    try:
        urlsplit(url)
        parts = url.split("::")  # zip://*.txt::s3://bucket/a.zip
        kinds = [fsspec.get_filesystem_class(part.partition("://")[0]) for part in parts if "://" in part]
        if len(parts) == 1:  # else a part is given the file system of the next one
            inspect.signature(kinds[0].__init__).bind(None, **kinds[0]._get_kwargs_from_urls(url))
    except (ValueError, ImportError, TypeError) as error:
        raise DataError(
            f"cannot be opened: {error}",
            where=without_secrets(url),
            next_step="correct the URL, or fetch the files first and name them by their paths",
        ) from error
