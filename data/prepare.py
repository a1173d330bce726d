"""Write the bundled books and labelled files from their originals.

    python data/prepare.py ORIGINALS

It was run once; the files in git are its output, and ``data/README.md`` has their licences and sha256. ``ORIGINALS``
holds ``prose/books.txt.xz`` (English public-domain books, each after a head of ``Title:``, ``Author:`` and ``Year:``),
``ud-ewt/*.conllu``, ``wnut17/``, ``squad/`` and ``blimp/``.
"""

import json
import lzma
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parent
LABELLED = HERE / "labelled"

# Published before 1925 in English by authors who died in 1951 or earlier: free in countries that protect for 70 years.
BOOKS = """
The Autobiography of Benjamin Franklin|A Christmas Carol|Jane Eyre|Agnes Grey|The Warden|A Tale of Two Cities
On the Origin of Species|Black Beauty|The Leavenworth Case|A Study in Scarlet|The Sign of the Four
The Adventure of the Speckled Band|Silver Blaze|An Occurrence at Owl Creek Bridge|The Great God Pan
The Prisoner of Zenda|Dracula|The Lost Continent|The House Behind the Cedars|Up from Slavery
The Hound of the Baskervilles|The Willows|John Silence: Physician Extraordinary|The Life of a Fossil Hunter
The Christmas Angel|The Lost World|The Poison Belt|The Valley of Fear|Cabin Fever|The Moon Pool
The Book of the Damned|Open the Door!|Alice Adams
"""
NUM_TAGGED = 4_000  # training sentences of the treebank
MODIFIERS = ("det", "det:predet", "amod", "nummod", "compound", "flat", "nmod:poss", "nmod:desc", "advmod", "case:poss")
QUESTIONS_PER_PARAGRAPH = {"train": 1, "dev": 2}
PAIRS_PER_PARADIGM = 100


def books(originals: Path) -> None:
    """One compressed file a book: its paragraphs, a line each, without the head."""
    wanted = {title for line in BOOKS.strip().splitlines() for title in line.split("|")}
    text = lzma.decompress((originals / "prose/books.txt.xz").read_bytes()).decode()
    (HERE / "books").mkdir(exist_ok=True)
    for document in text.split("\n\n"):
        head, _, body = document.partition("\n-------")
        facts = dict(line.partition(": ")[::2] for line in head.strip().splitlines())
        if facts.get("Title") in wanted:
            wanted.remove(facts["Title"])
            name = f"{facts['Year']}-{facts['Author'].split()[-1]}-{facts['Title']}"
            name = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
            paragraphs = "\n".join(line.strip() for line in body.splitlines() if line.strip())
            (HERE / f"books/{name}.txt.xz").write_bytes(lzma.compress(f"{paragraphs}\n".encode(), preset=9))
    assert not wanted, wanted


def sentences(file: Path) -> Iterator[tuple[str, str, list[list[str]]]]:
    """Genre, text and the words' columns of each sentence of a CoNLL-U file."""
    for block in file.read_text(encoding="utf-8").strip().split("\n\n"):
        lines = block.splitlines()
        facts = dict(line[2:].partition(" = ")[::2] for line in lines if line.startswith("# "))
        rows = [line.split("\t") for line in lines if not line.startswith("#")]
        yield facts["sent_id"].partition("-")[0], facts["text"], [row for row in rows if row[0].isdecimal()]


def noun_phrases(rows: list[list[str]]) -> list[str]:
    """B-NP, I-NP or O for each word: a noun, name or pronoun with the modifiers of :data:`MODIFIERS` beside it."""
    phrase = list(range(len(rows)))  # of each word: the word that its phrase is built around
    place = {row[0]: number for number, row in enumerate(rows)}
    for number, row in enumerate(rows):
        if row[1] == "-" and number + 1 < len(rows):
            phrase[number] = number + 1  # inside a compound
        elif row[7] in MODIFIERS and row[6] in place:
            phrase[number] = place[row[6]]
    heads = {number for number, row in enumerate(rows) if row[3] in ("NOUN", "PROPN", "PRON")}
    tags = ["O"] * len(rows)
    for head in sorted(heads):
        if phrase[head] in heads and phrase[head] != head:
            continue  # a modifier itself: "stone" of "stone walls"
        inside = {head}
        for step in (-1, 1):  # outwards, as long as words belong to the head or to what is inside
            number = head + step
            while 0 <= number < len(rows) and phrase[number] in inside and phrase[number] != number:
                inside.add(number)
                number += step
        first, last = min(inside), max(inside)
        tags[first : last + 1] = ["B-NP"] + ["I-NP"] * (last - first)
    return tags


def treebank(originals: Path) -> None:
    """Word, universal part of speech, noun phrase and relation in column files; text and genre in tables."""
    for split in ("train", "dev"):
        found = list(sentences(originals / f"ud-ewt/{split}.conllu"))
        if split == "train":
            found = Random(1).sample(found, NUM_TAGGED)  # the first ones are of all genres then
        words = [
            "".join(
                f"{row[1]}\t{row[3]}\t{tag}\t{row[7].partition(':')[0]}\n"
                for row, tag in zip(rows, noun_phrases(rows), strict=True)
            )
            for _, _, rows in found
        ]
        write(f"ewt/{split}.conll", "\n".join(words))
        texts = [f"{text}\t{genre}\n" for genre, text, _ in found if "\t" not in text]
        write(f"ewt/{split}.tsv", "text\tgenre\n" + "".join(texts))


def entities(originals: Path) -> None:
    """WNUT-17's training and development files as they are."""
    for name in ("wnut17train.conll", "emerging.dev.conll"):
        write(f"wnut17/{name}", (originals / f"wnut17/{name}").read_text(encoding="utf-8"))


def articles(originals: Path, split: str) -> list[dict[str, Any]]:
    """Articles of SQuAD 1.1 with the first questions of every second paragraph, so that they cover many texts."""
    found = json.loads((originals / f"squad/{split}-v1.1.json").read_text(encoding="utf-8"))["data"]
    for article in found:
        article["paragraphs"] = article["paragraphs"][::2]
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = paragraph["qas"][: QUESTIONS_PER_PARAGRAPH[split]]
    return found


def questions(originals: Path) -> None:
    """Questions on paragraphs, in SQuAD's own layout."""
    for split in ("train", "dev"):
        given = {"version": "1.1", "data": articles(originals, split)}
        write(f"squad/{split}-v1.1.json", json.dumps(given, ensure_ascii=False, indent=0) + "\n")


def answer_sentences(originals: Path) -> None:
    """Two rows for each of these questions: the sentence that holds the answer, and another one of its paragraph."""
    random = Random(1)
    for split in ("train", "dev"):
        lines = []
        for paragraph in (paragraph for article in articles(originals, split) for paragraph in article["paragraphs"]):
            ends = [match.end() for match in re.finditer(r"[.!?][\"')]*\s+(?=[A-Z\"'(])", paragraph["context"])]
            spans = list(zip([0, *ends], [*ends, len(paragraph["context"])], strict=True))
            for question in paragraph["qas"]:
                start = question["answers"][0]["answer_start"]
                own = next(span for span in spans if span[0] <= start < span[1])
                if others := [span for span in spans if span != own]:
                    for label, (first, last) in (("answer", own), ("other", random.choice(others))):
                        texts = (question["question"], paragraph["context"][first:last])
                        lines.append("\t".join([*(" ".join(text.split()) for text in texts), label]) + "\n")
        if split == "train":
            random.shuffle(lines)
        write(f"answers/{split}.tsv", "question\tsentence\tlabel\n" + "".join(lines))


def minimal_pairs(originals: Path) -> None:
    """The first pairs of each paradigm of BLiMP that is there, in one file."""
    lines = []
    for file in sorted((originals / "blimp").glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines()[:PAIRS_PER_PARADIGM]:
            row = json.loads(line)
            lines.append(json.dumps({key: row[key] for key in ("sentence_good", "sentence_bad", "UID")}))
    write("blimp.jsonl", "".join(f"{line}\n" for line in lines))


def write(name: str, text: str) -> None:
    path = LABELLED / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for make in (books, treebank, entities, questions, answer_sentences, minimal_pairs):
        make(folder)
