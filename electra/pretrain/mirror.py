"""The mirror of checkpoints: a second place, such as a bucket, from which a fresh machine resumes.

``<url>/<fingerprint>/step_<n>/`` and ``milestone_<name>/`` are as in the local folder. A folder is complete when the
file that seals it is there: ``state.json`` or ``manifest.json``, which hold the checksums of the others and are written
last; then ``latest`` is moved. Credentials come from the environment, in the way the storage's own tools read them.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from electra.common.artifacts import MANIFEST, sha256
from electra.common.errors import ConfigError, InfrastructureError
from electra.common.output import disk_errors

SEALS = ("state.json", MANIFEST)


class Mirror:
    """The mirror of one run's folder.

    Args:
        url: any fsspec URL, ending with the run's fingerprint.
        keep: how many checkpoints to keep there.

    Raises:
        ConfigError: the kind of URL is unknown, or the package it needs is not installed.
    """

    def __init__(self, url: str, keep: int):
        import fsspec

        self.url, self.keep = url, keep
        try:
            self.storage, self.path = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"this mirror cannot be used: {error}",
                where="cluster.checkpoint_mirror",
                next_step="for s3:// install the extra: pip install 'electra-pipeline[s3]'",
            ) from None

    def copy(self, folder: Path, name: str) -> None:
        """Copy the checkpoint ``folder/name``, and before it what it needs: milestones that are not there yet.

        A failure of the storage is reported only: training goes on, and the next checkpoint is another try.
        """
        try:
            mirrored = self._complete("milestone_")
            for milestone in sorted(folder.glob("milestone_*")):
                if milestone.name not in mirrored and _seal(milestone):
                    self._upload(milestone)
            self._upload(folder / name)
            self.storage.pipe_file(f"{self.path}/latest", f"{name}\n".encode())
            for old in self._complete("step_")[: -self.keep]:
                if old != name:  # where later steps are damaged, the run has gone back behind them
                    self.storage.rm(f"{self.path}/{old}", recursive=True)
        except Exception as error:  # of any storage's own kind
            print(f"checkpoint {name} is not mirrored to {self.url}: {_in_words(error)}", flush=True)

    def fetch(self, folder: Path) -> None:
        """Download the newest whole checkpoint, and its milestones, if it is newer than those of ``folder``.

        Raises:
            InfrastructureError: the storage cannot be read, and ``folder`` has no checkpoint to go on from.
        """
        local = sorted(path.name for path in folder.glob("step_*") if _seal(path))
        try:
            newer = [name for name in self._complete("step_") if not local or name > local[-1]]
            if any(self._download(name, folder) for name in reversed(newer)):
                for milestone in self._complete("milestone_"):
                    if not _seal(folder / milestone):
                        self._download(milestone, folder)
        except Exception as error:
            message = f"the mirror of checkpoints cannot be read: {_in_words(error)}"
            if not local:
                raise InfrastructureError(
                    message,
                    where=self.url,
                    next_step="mend it, or start from step 0 by removing cluster.checkpoint_mirror",
                ) from error
            print(f"{message}; going on from {local[-1]}", flush=True)

    def clear(self) -> None:
        """Remove the run's folder: the run has succeeded. A failure of the storage is reported only."""
        try:
            self.storage.invalidate_cache()
            if self.storage.exists(self.path):
                self.storage.rm(self.path, recursive=True)
        except Exception as error:  # of any storage's own kind
            print(
                f"the mirrored checkpoints of this finished run cannot be removed: {_in_words(error)}; remove "
                f"{self.url}, or the same run goes on from there when it is run again",
                flush=True,
            )

    def _complete(self, prefix: str) -> list[str]:
        """Return the names of the complete folders, in order."""
        self.storage.invalidate_cache()  # another machine may have written since
        names = set()
        for seal in SEALS:
            for path in self.storage.glob(f"{self.path}/{prefix}*/{seal}"):
                names.add(str(path).rsplit("/", 2)[-2])
        return sorted(names)

    def _upload(self, folder: Path) -> None:
        seal = _seal(folder)
        assert seal, f"{folder} is not complete"
        others = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != seal]
        for file in (*others, seal):
            target = f"{self.path}/{folder.name}/{file.relative_to(folder).as_posix()}"
            self.storage.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
            self.storage.put_file(str(file), target)

    def _download(self, name: str, folder: Path) -> bool:
        """Return whether it is whole here; a damaged one is reported and left."""
        scratch = folder / f".{name}"
        with disk_errors(folder / name):
            shutil.rmtree(scratch, ignore_errors=True)
            try:
                self.storage.get(f"{self.path}/{name}/", f"{scratch}/", recursive=True)
                if damaged := [file for file, sum in _sums(scratch).items() if not _has_sum(scratch / file, sum)]:
                    print(f"mirrored {name} is damaged ({', '.join(damaged)}), passing over it", flush=True)
                    return False
                shutil.rmtree(folder / name, ignore_errors=True)
                os.replace(scratch, folder / name)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        print(f"{name} comes from {self.url}", flush=True)
        return True


def _seal(folder: Path) -> Path | None:
    return next((folder / name for name in SEALS if (folder / name).is_file()), None)


def _sums(folder: Path) -> dict[str, str]:
    """Return the checksums by file, from the seal."""
    seal = _seal(folder)
    sealed: dict[str, Any] = json.loads(seal.read_text()) if seal else {}
    return sealed["sha256"] if "sha256" in sealed else {entry["path"]: entry["sha256"] for entry in sealed["files"]}


def _has_sum(file: Path, expected: str) -> bool:
    return file.is_file() and sha256(file) == expected


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error) or 'no more is known'}".splitlines()[0][:300]
