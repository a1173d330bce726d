"""sha256 of files, taken anew only where size, time of change or inode differ from those at the last look."""

import json
import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from electra.common.artifacts import sha256, write_text

# A file changed again within a tick of the file system's clock may keep its time: younger files are not remembered
SETTLED_SECONDS = 2.0


class RememberedHashes:
    """sha256 of files, with a memory in a JSON file that may be removed at any time.

    Args:
        memory: absolute path -> [bytes, nanoseconds of the last change, inode, sha256].
    """

    def __init__(self, memory: Path):
        self._memory = memory
        try:
            known = json.loads(memory.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known = {}
        self._known: dict[str, list[int | str]] = known if isinstance(known, dict) else {}

    def of(self, paths: Iterable[Path]) -> list[tuple[int, str]]:
        """Bytes and sha256 of each file, in the order given; remembers them for the next run.

        Raises:
            OSError: a file cannot be read.
        """
        kept: dict[str, list[int | str]] = {}
        now = time.time_ns()

        def look(path: Path) -> tuple[int, str]:
            status = os.stat(path)
            seen: list[int | str] = [status.st_size, status.st_mtime_ns, status.st_ino]
            known = self._known.get(str(path), [])
            digest = str(known[3]) if len(known) == 4 and known[:3] == seen else sha256(path)
            if now - status.st_mtime_ns > SETTLED_SECONDS * 1e9:
                kept[str(path)] = [*seen, digest]
            return status.st_size, digest

        with ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0)))) as threads:  # hashing runs beside other threads
            found = list(threads.map(look, [path.absolute() for path in paths]))
        write_text(self._memory, json.dumps(dict(sorted(kept.items()))) + "\n")
        return found
