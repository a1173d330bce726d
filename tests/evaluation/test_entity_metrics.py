"""Tag schemes and the entities they mark, counted as the script conlleval counts them."""

from random import Random

import pytest

from electra.kinds.tagging import entity_scores, word_accuracy
from electra.tasks.format import bioes, bioes_labels, entities, iob2, is_entity_tag


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O O", []),
        ("B-A I-A O", [(0, 2, "A")]),
        ("I-A I-A O", [(0, 2, "A")]),  # IOB1, or an I without a B
        ("I-A B-A O", [(0, 1, "A"), (1, 2, "A")]),  # IOB1: B parts neighbours of one type
        ("B-A B-A", [(0, 1, "A"), (1, 2, "A")]),
        ("B-A I-B O", [(0, 1, "A"), (1, 2, "B")]),  # another type begins another entity
        ("I-A I-B I-B", [(0, 1, "A"), (1, 3, "B")]),
        ("O I-A", [(1, 2, "A")]),  # open at the end of the sentence
        ("S-A S-A", [(0, 1, "A"), (1, 2, "A")]),
        ("B-A I-A E-A S-A", [(0, 3, "A"), (3, 4, "A")]),
        ("B-A E-A I-A O", [(0, 2, "A"), (2, 3, "A")]),  # after E something new begins
        ("E-A O", [(0, 1, "A")]),
        ("B-A S-A I-A", [(0, 1, "A"), (1, 2, "A"), (2, 3, "A")]),
        ("B-A-B I-A-B", [(0, 2, "A-B")]),  # types may hold hyphens
    ],
)
def test_entities_of_every_scheme(tags, expected):
    assert entities(tags.split()) == expected


def test_schemes_are_turned_into_each_other_without_loss():
    tags = "B-A I-A I-A B-A O B-B I-B O B-A".split()
    found = entities(tags)
    assert iob2(found, 9) == tags
    assert bioes(found, 9) == "B-A I-A E-A S-A O B-B E-B O S-A".split()
    assert entities(bioes(found, 9)) == found
    assert set(bioes(found, 9)) <= set(bioes_labels(["A", "B"])) and len(bioes_labels(["A", "B"])) == 9
    assert [is_entity_tag(tag) for tag in ("O", "B-X", "NN", "B-", "X-B")] == [True, True, False, False, False]


# gold, predicted, entities in gold, predicted, right; counted by hand
TABLE = [
    ("B-A I-A O", "B-A I-A O", 1, 1, 1),
    ("B-A I-A O", "I-A I-A O", 1, 1, 1),  # I without B
    ("B-A I-A O", "B-A E-A O", 1, 1, 1),  # another scheme
    ("B-A I-A O", "B-A O O", 1, 1, 0),  # too short
    ("B-A I-A O", "B-A B-A O", 1, 2, 0),  # cut in two
    ("B-A B-A O", "B-A I-A O", 2, 1, 0),  # neighbours joined
    ("B-A B-A O", "B-A B-A O", 2, 2, 2),
    ("B-A I-A O", "B-B I-B O", 1, 1, 0),  # wrong type
    ("B-A O B-B", "B-A O O", 2, 1, 1),
    ("O O O", "B-A O O", 0, 1, 0),
    ("O O O", "O O O", 0, 0, 0),
]


@pytest.mark.parametrize(("gold", "predicted", "num_gold", "num_predicted", "num_correct"), TABLE)
def test_scores_of_one_sentence(gold, predicted, num_gold, num_predicted, num_correct):
    scores = entity_scores([gold.split()], [predicted.split()])
    precision = num_correct / num_predicted if num_predicted else 0
    recall = num_correct / num_gold if num_gold else 0
    assert scores["precision"] == precision and scores["recall"] == recall
    assert scores["f1"] == pytest.approx(2 * precision * recall / (precision + recall) if num_correct else 0)


def test_scores_are_over_all_entities_not_means_of_sentences():
    scores = entity_scores([row[0].split() for row in TABLE], [row[1].split() for row in TABLE])
    assert scores == {"f1": 2 * 6 / (12 + 12), "precision": 6 / 12, "recall": 6 / 12}
    assert entity_scores([], []) == {"f1": 0, "precision": 0, "recall": 0}


def test_tags_of_another_length_are_a_defect():
    with pytest.raises(ValueError, match="2 predicted tags for 1 words"):
        entity_scores([["O"]], [["O", "O"]])


def test_accuracy_counts_words():
    assert word_accuracy([["N", "V"], ["N"]], [["N", "N"], ["N"]]) == 2 / 3


def conlleval_entities(tags):
    """The script's two rules for B, I and O: which pairs of tags end an entity, and which begin one."""
    found, begin = [], 0
    pairs = [("O", ""), *(tag.split("-") if tag != "O" else ("O", "") for tag in tags), ("O", "")]
    for position, ((before, type_before), (tag, type_)) in enumerate(zip(pairs, pairs[1:], strict=False)):
        ends = (before, tag) in {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O")}
        if ends or (before != "O" and type_before != type_):
            found.append((begin, position, type_before))
        begins = (before, tag) in {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I")}
        if begins or (tag != "O" and type_before != type_):
            begin = position
    return found


def test_random_tags_mark_the_entities_that_conlleval_finds():
    random = Random(1)
    for _ in range(2000):
        tags = random.choices(["O", "B-X", "I-X", "B-Y", "I-Y"], k=random.randint(0, 8))
        assert entities(tags) == conlleval_entities(tags), tags
