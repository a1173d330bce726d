"""Documents of the microworld: reproducible, diverse, grammatical."""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from electra.microworld import lexicon, words
from electra.microworld.stories import document, documents
from electra.microworld.words import indefinite, inflect, plural
from electra.microworld.world import World

HASH_DOCUMENTS = """
import hashlib
from electra.microworld.stories import documents
print(hashlib.sha256("\\n\\n".join(documents(300, 7)).encode()).hexdigest())
"""


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return list(documents(4000, 1))


@pytest.fixture(scope="module")
def counts(texts: list[str]) -> Counter[str]:
    return Counter(word for text in texts for word in re.findall(r"[a-z]+", text.lower()))


def test_bytes_do_not_depend_on_the_process():
    digests = {
        subprocess.run(
            [sys.executable, "-c", HASH_DOCUMENTS],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert digests == {hashlib.sha256("\n\n".join(documents(300, 7)).encode()).hexdigest()}


def test_a_document_does_not_depend_on_the_others():
    world = World(3)
    backwards = [document(world, index) for index in reversed(range(20))]
    assert backwards[::-1] == list(documents(20, 3))


def test_seeds_make_different_worlds():
    assert set(documents(50, 1)).isdisjoint(documents(50, 2))
    assert World(1).regions != World(2).regions


def test_vocabulary_has_thousands_of_words_and_a_tail(counts: Counter[str]):
    frequencies = sorted(counts.values(), reverse=True)
    assert 2_000 < len(frequencies) < 4_000
    assert sum(frequencies[:100]) > 0.5 * sum(frequencies)  # a short head carries most of the text
    assert frequencies[len(frequencies) // 2] < frequencies[100] / 5  # and the tail keeps falling


def test_one_capitalised_and_punctuated_sentence_a_line(texts: list[str]):
    lines = [line for text in texts for line in text.split("\n")]
    assert all(re.fullmatch(r"[A-Z][A-Za-z, ]*[.?!]", line) for line in lines)
    assert 6 < sum(len(line.split()) for line in lines) / len(lines) < 12


def test_documents_hardly_repeat(texts: list[str]):
    assert len(set(texts)) > 0.99 * len(texts)


def test_articles_fit_the_next_word(texts: list[str]):
    for text in texts:
        for article, word in re.findall(r"\b(an?) (\w+)", text):
            assert article == indefinite(word), (article, word)


def test_verbs_agree_with_their_subject(texts: list[str]):
    bases = {form.base for verb in words.TRANSITIVE + words.INTRANSITIVE for form in verb.forms}
    bases -= {form.past for verb in words.TRANSITIVE for form in verb.forms}  # "read" and "cut" are also past forms
    people = "|".join(lexicon.FEMALE + lexicon.MALE)
    text = "\n".join(texts)
    after_a_name = re.findall(rf"^(?:{people}) (\w+) ", text, flags=re.MULTILINE)
    assert len(after_a_name) > 5_000
    assert bases.isdisjoint(after_a_name)
    after_auxiliary = re.findall(r"\b(?:did|does|will) not (\w+)", text)
    assert len(after_auxiliary) > 300
    assert set(after_auxiliary) <= bases | {form.base for v in words.TRANSITIVE for form in v.forms} | {"have"}


def test_pronouns_fit_the_name(texts: list[str]):
    female = set(lexicon.FEMALE)
    answers = re.findall(r"^(?:Did|Does|Will) (\w+) .*\?\n(?:Yes|No), (he|she) ", "\n".join(texts), flags=re.MULTILINE)
    assert len(answers) > 300
    assert all((pronoun == "she") == (name in female) for name, pronoun in answers)


def test_counted_nouns_are_plural(texts: list[str]):
    senses = [noun for members in lexicon.NOUNS.values() for noun in members if not noun.mass]
    singulars = {word for noun in senses for word in noun.words if plural(word) != word}
    counted = re.findall(r"\b(?:two|three|four|several) (\w+)\b(?! \w+s\b)", "\n".join(texts))
    adjective_words = {w for allowed in lexicon.MODIFIERS.values() for sense in allowed for w in sense.words}
    assert not (set(counted) & singulars) - adjective_words


def test_synonyms_and_hypernyms_are_told(texts: list[str]):
    text = "\n".join(texts)
    assert re.search(r"Did \w+ (buy|purchase) .*\?\nYes", text)
    members = {w: kind for kind, nouns_ in lexicon.NOUNS.items() for n in nouns_ for w in n.words}
    statements = re.findall(r"^An? (\w+) is an? (\w+)\.$", text, flags=re.MULTILINE)
    assert len(statements) > 300
    assert all(above in lexicon.HYPERNYMS[members[word]].words for word, above in statements)


def test_no_noun_belongs_to_two_senses():
    words = [w for members in lexicon.NOUNS.values() for n in members for w in n.words]
    words += [w for above in lexicon.HYPERNYMS.values() for w in above.words if above.words[0] not in words]
    assert [w for w, n in Counter(words).items() if n > 1] == []


def test_no_verb_belongs_to_two_senses():
    lemmas = Counter(form.base for verb in words.TRANSITIVE + words.INTRANSITIVE for form in verb.forms)
    assert [lemma for lemma, n in lemmas.items() if n > 1] == []


@pytest.mark.parametrize("kind", sorted(lexicon.MODIFIERS))
def test_no_modifier_of_a_kind_belongs_to_two_senses(kind: str):
    words = Counter(word for sense in lexicon.MODIFIERS[kind] for word in sense.words)
    assert [word for word, n in words.items() if n > 1] == []


def test_inflection():
    assert [plural(w) for w in "box cherry toy goose postman".split()] == "boxes cherries toys geese postmen".split()
    forms = [inflect(w) for w in ("carry", "spot", "give", "regret")]
    assert [(f.third, f.past, f.progressive) for f in forms] == [
        ("carries", "carried", "carrying"),
        ("spots", "spotted", "spotting"),
        ("gives", "gave", "giving"),
        ("regrets", "regretted", "regretting"),
    ]
