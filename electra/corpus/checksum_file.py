"""Known checksums of input files: what ``sha256sum * > SHA256SUMS`` writes and datasets are often distributed with."""

import re
from pathlib import Path

from electra.errors import ConfigError, DataError

LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


def read_checksums(path: Path, names: list[str]) -> dict[str, str]:
    """The sha256 of each of the files named.

    Args:
        path: lines of a checksum and a name: relative to the folder of ``path``, or written as in ``names``.
        names: paths or URLs.

    Raises:
        ConfigError: there is no such file.
        DataError: a line is something else, or a file has no checksum.
    """
    by_name: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", where=f"corpus.sources checksums: {path}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        match = LINE.fullmatch(line)
        if not match:
            raise DataError(
                "not a checksum and a file name",
                where=f"{path}:{number}",
                next_step=f"write it with: sha256sum ... > {path.name}",
            )
        digest, name = match[1].lower(), match[2]
        by_name[name] = by_name[str((path.parent / name).absolute())] = digest
    found = {name: by_name.get(name) or by_name.get(str(Path(name).absolute())) for name in names}
    if unknown := [name for name, digest in found.items() if digest is None]:
        raise DataError(
            f"{len(unknown)} input files have no checksum there, first {unknown[0]}",
            where=f"corpus.sources checksums: {path}",
            next_step="add them, or narrow `paths`",
        )
    return {name: digest for name, digest in found.items() if digest}
