"""BabyLM: the challenge's folder of training text, its budget of words, and the settings that its rules ask for.

Rules of 2025 and 2026 (babylm.github.io): at most 10 million words of training text in the track strict-small and 100
million in strict, at most 10 epochs, and checkpoints after each million words seen up to 10 million, each 10 million up
to 100 million and each 100 million up to a billion. Their names are those that the evaluation pipeline asks for.
"""

import codecs
import glob
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from electra.common.errors import ConfigError, DataError

TrackName = Literal["strict-small", "strict"]
SUFFIXES = (".train", ".train.txt")  # of 2024 and 2025; of 2026
EPOCHS = 10
CHUNK = 1 << 24  # bytes of text counted at a time


@dataclass(frozen=True)
class Track:
    """A track of the challenge.

    Attributes:
        max_words: budget of training text.
        folder: name of the folder with its training text in the official data.
        milestones: checkpoints, as ``pretrain.milestones``.
    """

    name: str
    max_words: int
    folder: str
    milestones: list[str]


TRACKS = {
    "strict-small": Track(
        "strict-small",
        10_000_000,
        "train_10M",
        ["every 1M words to 9M as chck_", "every 10M words to 100M or end as chck_"],
    ),
    "strict": Track(
        "strict",
        100_000_000,
        "train_100M",
        [
            "every 1M words to 9M as chck_",
            "every 10M words to 90M as chck_",
            "every 100M words to 1000M or end as chck_",
        ],
    ),
}


@dataclass(frozen=True)
class TrainingText:
    """Training text of a track.

    Attributes:
        patterns: globs of its files.
        words: words of each file, by its name.
    """

    track: Track
    patterns: list[str]
    words: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.words.values())


def training_text(folder: str, track: Track, root: Path) -> TrainingText:
    """Find and count the training text: files that end in .train or .train.txt.

    Args:
        folder: the folder with these files, or the one above it, in which it has the track's official name; relative
            to ``root``.

    Raises:
        ConfigError: there is no such folder.
        DataError: it holds no training text, or more words than the track allows.
    """
    where = root / folder / track.folder if (root / folder / track.folder).is_dir() else root / folder
    if not where.is_dir():
        raise ConfigError("is no folder", where=folder, next_step="name the folder with the .train files")
    files = sorted(path for path in where.iterdir() if path.is_file() and path.name.endswith(SUFFIXES))
    if not files:
        raise DataError(
            f"no training text in it: no file ends in {' or '.join(SUFFIXES)}",
            where=str(where),
            next_step=f"name the challenge's folder {track.folder}, or the one above it",
        )
    words = {path.name: count_words(path) for path in files}
    total = sum(words.values())
    if total > track.max_words:
        raise DataError(
            f"{total:,} words are {total - track.max_words:,} more than the track {track.name} allows",
            where=str(where),
            next_step="take text out" + (", or choose: --babylm strict" if total <= TRACKS["strict"].max_words else ""),
        )
    found = sorted({suffix for path in files for suffix in SUFFIXES if path.name.endswith(suffix)})
    base = glob.escape(str(where.relative_to(root) if where.is_relative_to(root) else where))
    return TrainingText(track, [f"{base}/*{suffix}" for suffix in found], words)


def count_words(path: Path) -> int:
    """Return the number of words, separated by white space as by ``str.split``; memory does not grow with the file."""
    return sum(len(part.split()) for part in _whole_words(path))


def _whole_words(path: Path) -> Iterator[str]:
    """Yield the text in parts that end at white space; a byte that is no UTF-8 counts as a letter."""
    decoder, left = codecs.getincrementaldecoder("utf-8")("replace"), ""
    with open(path, "rb") as file:
        while data := file.read(CHUNK):
            text = left + decoder.decode(data)
            whole = text.rstrip()
            end = len(text) if len(whole) < len(text) else len(text) - len((text.split() or [""])[-1])
            yield text[:end]
            left = text[end:]
    yield left + decoder.decode(b"", final=True)


def adapt(values: dict[str, Any], text: TrainingText) -> None:
    """Change the settings of a new profile to the rules: text as it is, counted and limited, epochs, checkpoints.

    Cleaning and the search for duplicates are switched off, so that the words of the corpus are those of the files.
    """
    values["corpus"] |= {
        "max_words": text.track.max_words,
        "cleaning": [],
        "near_duplicates": None,
        "decontamination": None,
        "min_chars": 1,
        "max_chars": 1_000_000,
        "repair_mojibake": False,
        "held_out_fraction": 0.005,
    }
    values["pretrain"] |= {"epochs": float(EPOCHS), "milestones": text.track.milestones}


def summary(text: TrainingText) -> list[str]:
    """Return lines for the user: words of each file, and of all, beside the budget."""
    lines = [f"{count:>13,} words  {name}" for name, count in text.words.items()]
    return [*lines, f"{text.total:>13,} words in all; {text.track.name} allows {text.track.max_words:,}"]
