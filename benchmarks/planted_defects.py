"""Precision and recall of the corpus' cleaning steps on defects planted into a text.

    python -m benchmarks.planted_defects TEXT [--documents 3000] [--write benchmarks/results/planted_defects.json]

TEXT has one paragraph a line. It is cut into documents of about 3,000 characters; only those in which no step finds
anything are used. Defects are inserted into some documents, and text that only resembles a defect into others. A defect
counts as found if cleaning restores the original document, or drops the document where it should. Recall: share of
defects that are found. Precision: share, among the documents that a step changed, of those with a found defect. The
same text gives the same figures.
"""

import argparse
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.planted_texts import (
    LICENCES_ALIKE,
    MARKUP,
    MARKUP_ALIKE,
    MOJIBAKE,
    PERSONAL,
    PERSONAL_ALIKE,
    Plant,
    Planted,
    binary,
    foreign,
    in_licence,
    same_line,
    verse,
    with_line,
    with_mojibake,
    with_quotation,
    with_refrain,
    with_repeats,
    wrapped,
)
from electra.common.artifacts import write_json
from electra.config import Corpus
from electra.config.text import NearDuplicates
from electra.text.corpus.cleaned import clean_documents
from electra.text.corpus.cleaning.normalize import clean
from electra.text.corpus.cleaning.notes import Notes
from electra.text.corpus.document import CleanedDocument
from electra.text.corpus.leaks import LEAST_LETTERS, EvaluationTexts, letters_of
from electra.text.corpus.near_duplicates import NearDuplicateIndex, Signer, words_of
from electra.text.corpus.selection import repeated_across

DOCUMENT_CHARACTERS = 3000
EACH = 200  # documents per defect, and per kind of text that resembles one
EVALUATION = 1000
SIMILARITIES = (0.5, 0.7, 0.8, 0.9)
WEB = ["boilerplate", "markup", "personal_data"]
QUALITY = ["gopher", "repetition", "fineweb"]
NOT_READ = {"kind": "files", "name": "text", "paths": ["none"]}  # settings of a corpus need a source


@dataclass
class Figures:
    """Counts of one defect."""

    planted: int = 0
    found: int = 0
    wrong: int = 0  # documents changed without a defect, or not in the expected way
    alike: int = 0  # texts that only resemble a defect

    def row(self) -> dict[str, Any]:
        changed = self.found + self.wrong
        return {
            "planted": self.planted,
            "found": self.found,
            "recall": round(self.found / max(1, self.planted), 4),
            "look_alikes": self.alike,
            "changed_wrongly": self.wrong,
            "precision": round(self.found / max(1, changed), 4),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--documents", type=int, default=3000)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    result = measure(options.text, options.documents)
    print(as_table(result))
    if options.write:
        write_json(options.write, result)


def measure(text: Path, num_documents: int) -> dict[str, Any]:
    """Return the figures by defect."""
    given = documents_of(text)
    documents, left_out = sound_documents(given, num_documents)
    generator = random.Random(1)
    result: dict[str, Any] = {}
    for name, (steps, defects, alike) in CASES.items():
        chosen = generator.sample(documents, min(len(documents), 2 * EACH))
        planted = [defects(document, generator) for document in chosen[:EACH]]
        others = [alike(document, generator) for document in chosen[EACH:]] if alike else []
        result[name] = look(steps, planted, others, documents).row()
        print(f"{name}: {result[name]}", flush=True)
    result["paragraphs repeated in other documents"] = repeated_elsewhere(documents, generator).row()
    result |= near_duplicates(documents, generator)
    result |= evaluation_texts(given, documents, generator)
    return {"documents": len(documents), "left_out_because_a_step_finds_something": left_out, "defects": result}


def sound_documents(given: Iterator[str], num_documents: int) -> tuple[list[str], int]:
    """Return documents that no step changes, and the number of documents left out."""
    found: list[str] = []
    left_out = 0
    steps = [*WEB, "repeated_lines", *QUALITY]
    for document in given:
        (made,) = cleaned([document], steps)
        if made.text == document:
            found.append(document)
        else:
            left_out += 1
        if len(found) == num_documents:
            break
    return found, left_out


def documents_of(text: Path) -> Iterator[str]:
    """Yield documents of whole lines."""
    lines: list[str] = []
    characters = 0
    with open(text, encoding="utf-8") as file:
        for line in file:
            if line := clean(line, repair_mojibake=True)[0]:
                lines.append(line)
                characters += len(line)
            if characters >= DOCUMENT_CHARACTERS:
                yield "\n".join(lines)
                lines, characters = [], 0


def cleaned(documents: list[str], steps: list[Any]) -> list[CleanedDocument]:
    """Return the documents after steps of ``corpus.cleaning`` with their defaults."""
    cleaning = [{"kind": step} if isinstance(step, str) else step for step in steps]
    corpus = Corpus.model_validate({"sources": [NOT_READ], "min_chars": 1, "cleaning": cleaning})
    return list(clean_documents(iter(documents), corpus, Path()))


def look(steps: list[Any], planted: list[Planted], others: list[Planted], documents: list[str]) -> Figures:
    """Count found defects, and wrong changes in texts that only resemble a defect and in unchanged documents."""
    figures = Figures(planted=len(planted), alike=len(others))
    raws = [one.raw for one in (*planted, *others)]
    for one, made in zip((*planted, *others), cleaned(raws, steps), strict=True):
        came_out = None if made.dropped else made.text
        is_defect = one.wanted != one.raw
        if came_out == one.wanted:
            figures.found += is_defect
        elif came_out != clean(one.raw, repair_mojibake=False)[0]:
            figures.wrong += 1
    for document, made in zip(documents, cleaned(documents, steps), strict=True):
        figures.wrong += bool(made.dropped) or made.text != document
    return figures


CASES: dict[str, tuple[list[Any], Plant, Plant | None]] = {
    "mojibake": ([], with_mojibake, same_line([right for right, _ in MOJIBAKE])),
    "markup": (["markup"], with_line(MARKUP), same_line(MARKUP_ALIKE)),
    "licence blocks, headers, notices": (["boilerplate"], in_licence, same_line(LICENCES_ALIKE)),
    "e-mail addresses, phone numbers": (["personal_data"], with_line(PERSONAL), same_line(PERSONAL_ALIKE)),
    "repeated paragraphs": (["repeated_lines"], with_repeats, with_refrain),
    "hard wraps": (["unwrap"], wrapped, verse),
    "binary": (["gopher"], binary, None),
    "another language": ([{"kind": "language", "languages": ["en"]}], foreign, with_quotation),
}


def repeated_elsewhere(documents: list[str], generator: random.Random) -> Figures:
    """Plant paragraphs of earlier documents in later ones (``repeated_lines`` with ``scope: corpus``)."""
    figures = Figures(planted=EACH)
    step = {"kind": "repeated_lines", "scope": "corpus"}
    corpus = Corpus.model_validate({"sources": [NOT_READ], "cleaning": [step]})
    half = len(documents) // 2
    chosen = set(generator.sample(range(half, len(documents)), EACH))
    earlier = [line for document in documents[:half] for line in document.split("\n") if len(line) >= 60]
    with tempfile.TemporaryDirectory() as folder, repeated_across(corpus.cleaning, Path(folder) / "x", Notes()) as rule:
        assert rule is not None
        for number, document in enumerate(documents):
            raw = f"{document}\n{generator.choice(earlier)}" if number in chosen else document
            came_out = rule.remove(raw)
            figures.found += number in chosen and came_out == document
            figures.wrong += came_out not in (document, raw)
    return figures


def jaccard(one: list[str], two: list[str], n: int = 5) -> float:
    """Return the exact Jaccard similarity of the n-grams of two lists of words."""
    grams = [{tuple(words[i : i + n]) for i in range(len(words) - n + 1)} for words in (one, two)]
    return len(grams[0] & grams[1]) / len(grams[0] | grams[1])


def edited(text: str, similarity: float, generator: random.Random) -> tuple[str, float]:
    """Replace, cut off or insert words of a text so that its similarity stays just at or above ``similarity``."""
    words = text.split()
    kind = generator.randrange(3)
    low, high = 0, len(words) - 1
    places = generator.sample(range(len(words)), len(words))

    def variant(size: int) -> list[str]:
        if kind == 0:
            changed = set(places[:size])
            return [f"another{place}" if place in changed else word for place, word in enumerate(words)]
        if kind == 1:
            return words[: len(words) - size]
        middle = len(words) // 2
        return [*words[:middle], *(f"more{number}" for number in range(size)), *words[middle:]]

    compared = words_of(text)
    while low < high:
        size = (low + high + 1) // 2
        if jaccard(compared, words_of(" ".join(variant(size)))) >= similarity:
            low = size
        else:
            high = size - 1
    result = " ".join(variant(low))
    return result, jaccard(compared, words_of(result))


def near_duplicates(documents: list[str], generator: random.Random) -> dict[str, Any]:
    """Plant pairs of near duplicates by similarity; pairs below the threshold and all other documents should stay."""
    rules = NearDuplicates()
    signer, rows = Signer(rules), {}
    chosen = generator.sample(documents, len(SIMILARITIES) * EACH)
    pairs = [(s, *edited(d, s, generator)) for s, d in zip(list(SIMILARITIES) * EACH, chosen, strict=True)]
    figures = {similarity: Figures(planted=EACH) for similarity in SIMILARITIES}
    wrong = found = 0
    with tempfile.TemporaryDirectory() as folder:
        index = NearDuplicateIndex(Path(folder), rules, Notes())
        dropped = sum(not index.add(document, signer.sign([document])[0]) for document in documents)
        for similarity, text, exact in pairs:
            if not index.add(text, signer.sign([text])[0]):
                figures[similarity].found += 1
                found += exact >= rules.threshold
                wrong += exact < rules.threshold
        index.close()
    for similarity, one in figures.items():
        rows[f"near-duplicates at {similarity}"] = {
            "planted": one.planted, "dropped": one.found, "share_dropped": round(one.found / one.planted, 4),
        }  # fmt: skip
    similar = sum(exact >= rules.threshold for _, _, exact in pairs)
    rows["near-duplicates of at least 0.8"] = Figures(similar, found, wrong + dropped, len(pairs) - similar).row()
    return rows


def rewritten(text: str, generator: random.Random) -> str:
    """Return the text with other case and punctuation."""
    words = [word.upper() if generator.random() < 0.3 else word for word in text.split()]
    return generator.choice([" ", "  ", "\n"]).join(w + generator.choice(["", ",", " --", "...", ";"]) for w in words)


def evaluation_texts(others: Iterator[str], documents: list[str], generator: random.Random) -> dict[str, Any]:
    """Plant paragraphs of other documents, unchanged and with other case and punctuation."""
    known = {line for document in documents for line in document.split("\n")}
    candidates: list[str] = []
    for document in others:
        unknown = (line for line in document.split("\n") if len(line.split()) <= 60 and line not in known)
        fitting = (line for line in unknown if len(letters_of(line)) >= LEAST_LETTERS and len(words_of(line)) >= 8)
        line = next(fitting, "")
        candidates += [line] if line and line not in candidates else []
        if len(candidates) == EVALUATION:
            break
    texts = EvaluationTexts.of(candidates)
    shared = texts.find(documents)
    clean_ones = [document for document, leaks in zip(documents, shared, strict=True) if not leaks]
    truly = sum(_has_ngram(document, candidates) for document, leaks in zip(documents, shared, strict=True) if leaks)
    rows = {}
    for name, change in {"as they are": lambda t, _: t, "re-cased, re-punctuated": rewritten}.items():
        one = Figures(planted=len(candidates), alike=len(documents), wrong=sum(map(bool, shared)) - truly)
        for number, sentence in enumerate(candidates):
            lines = clean_ones[number % len(clean_ones)].split("\n")
            at, written = generator.randrange(len(lines)), change(sentence, generator)
            lines[at] = generator.choice([f"{lines[at]} {written} {lines[at]}", f"{lines[at]}\n{written}"])
            (leaks,) = texts.find(["\n".join(lines)])
            one.found += leaks is not None and number in leaks.rows
        rows[f"evaluation text, {name}"] = one.row()
    return rows


def _has_ngram(document: str, candidates: list[str], n: int = 13) -> bool:
    """Return whether the document shares an n-gram of words with a candidate, by comparing all of them."""
    words = words_of(document)
    for candidate in candidates:
        other = words_of(candidate)
        size = min(n, len(other))
        grams = {tuple(other[i : i + size]) for i in range(len(other) - size + 1)}
        if any(tuple(words[i : i + size]) in grams for i in range(len(words) - size + 1)):
            return True
    return False


def as_table(result: dict[str, Any]) -> str:
    """Return the figures as a Markdown table."""
    lines = ["| planted | found | recall | changed wrongly | precision |", "|---|---:|---:|---:|---:|"]
    for name, row in result["defects"].items():
        if "dropped" in row:
            lines.append(f"| {name}: {row['planted']} | {row['dropped']} dropped | | | |")
            continue
        lines.append(
            f"| {name}: {row['planted']:,} | {row['found']:,} | {row['recall']:.3f} | {row['changed_wrongly']} |"
            f" {row['precision']:.3f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
