"""The report's section on the fit of the vocabulary."""

from electra.results.report.facts import vocabulary_rows


def test_fertility_characters_and_unknown_share_come_from_the_manifest() -> None:
    held_out = {"characters": 5000, "words": 1000, "wordpieces_per_word": 1.25, "unknown_rate": 0.002}
    assert [row[1] for row in vocabulary_rows({"held_out": held_out})] == ["1.25", "4.00", "0.20%"]
    assert vocabulary_rows({"held_out": held_out}, 0.034)[-1] == ["entries that never occur in training", "3.4%"]


def test_held_out_text_without_words_gives_no_rows() -> None:
    empty = {"characters": 0, "words": 0, "wordpieces_per_word": None, "unknown_rate": None}
    assert vocabulary_rows({"held_out": empty}) == vocabulary_rows({}) == []
