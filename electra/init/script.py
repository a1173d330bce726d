"""The scripts of a text, and whether a vocabulary may strip their marks."""

import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import cache

RARE = 0.005  # share of a script's letters: marks that are rarer are those of loan words, as in English
LEAST = 0.01  # share of all letters: a script that has less is left out


@dataclass(frozen=True)
class Script:
    """One script of a text.

    Attributes:
        name: as in the names of Unicode's characters, in title case; Han, kana and Hangul are three.
        share: of the text's letters.
        marked: share of the script's letters that stripping marks changes.
        example: a word that stripping changes, and what is left of it; empty without one.
    """

    name: str
    share: float
    marked: float
    example: tuple[str, str]

    @property
    def keeps_marks(self) -> bool:
        """Return True if marks are a regular part of the script as it is written here."""
        return self.marked > RARE


def scripts_of(text: str) -> list[Script]:
    """The scripts that have at least ``LEAST`` of a text's letters, the most frequent first."""
    text = unicodedata.normalize("NFC", text)
    letters: Counter[str] = Counter()
    marked: Counter[str] = Counter()
    for character, count in Counter(text).items():
        if script := _script(character):
            letters[script] += count
            marked[script] += count * (stripped(character) != character)
    if not letters:
        return []
    words: dict[str, Counter[str]] = {script: Counter() for script in letters}
    for word, count in Counter(text.split()).items():
        if word != stripped(word) and all(map(_script, word)):
            changed = next(character for character in word if stripped(character) != character)
            words[_script(changed)][word] += count
    total = sum(letters.values())
    found = [
        Script(
            script,
            count / total,
            marked[script] / count,
            (word := next(iter(dict(words[script].most_common(1))), ""), stripped(word)),
        )
        for script, count in letters.most_common()
        if count >= LEAST * total
    ]
    return found


def stripped(text: str) -> str:
    """A text without combining marks, as BERT's normaliser strips accents."""
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(character for character in decomposed if unicodedata.category(character) != "Mn")


@cache
def _script(character: str) -> str:
    """Name of a letter's or a combining mark's script; empty for other characters."""
    if unicodedata.category(character)[0] not in "LM":
        return ""
    name = unicodedata.name(character, "").removeprefix("HALFWIDTH ").removeprefix("FULLWIDTH ").partition(" ")[0]
    if name in ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"):
        return "Kana"
    return "Han" if name == "CJK" else name.title()
