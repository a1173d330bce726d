"""Writing systems of a text, and whether a vocabulary may strip their combining marks."""

import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import cache

RARE = 0.005  # share of a script's letters with marks up to which they occur only in loan words, as in English
LEAST = 0.01  # minimum share of all letters for a script to be listed


@dataclass(frozen=True)
class Script:
    """One script of a text.

    Attributes:
        name: as in the names of Unicode characters, in title case; Han, kana and Hangul are separate scripts.
        share: share of the text's letters.
        marked: share of the script's letters that stripping marks changes.
        example: a word before and after stripping; empty strings if there is none.
    """

    name: str
    share: float
    marked: float
    example: tuple[str, str]

    @property
    def keeps_marks(self) -> bool:
        """Whether marks are a regular part of the script in this text."""
        return self.marked > RARE


def scripts_of(text: str) -> list[Script]:
    """Return the scripts with at least ``LEAST`` of a text's letters, the most frequent first."""
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
    """Return a text without combining marks, stripped as by BERT's normaliser."""
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(character for character in decomposed if unicodedata.category(character) != "Mn")


@cache
def _script(character: str) -> str:
    """Return the name of a letter's or a combining mark's script; empty for other characters."""
    if unicodedata.category(character)[0] not in "LM":
        return ""
    name = unicodedata.name(character, "").removeprefix("HALFWIDTH ").removeprefix("FULLWIDTH ").partition(" ")[0]
    if name in ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"):
        return "Kana"
    return "Han" if name == "CJK" else name.title()
