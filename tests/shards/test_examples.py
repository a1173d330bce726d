"""Cutting documents into examples: nothing lost, nothing twice, nothing out of order."""

from collections import Counter
from itertools import accumulate

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from electra.config import Shards
from electra.text.shards.examples import cut_document, document_generator
from electra.text.shards.layout import write_example

LINES = st.lists(st.integers(0, 90), min_size=1, max_size=40)
PROBABILITY = st.sampled_from([0.0, 0.1, 0.5, 1.0])


def cuts(lines: list[int], rules: Shards, doc_id: str = "00000000000000ab") -> list[tuple[int, int, int]]:
    ends = list(accumulate(lines))
    return list(cut_document(ends[-1], ends, rules, document_generator(rules.seed, doc_id)))


@settings(max_examples=150, deadline=None)
@given(LINES, st.sampled_from([8, 9, 32, 128]), PROBABILITY, PROBABILITY, st.integers(0, 2**64))
def test_every_token_stands_once_and_in_order(lines: list[int], length: int, single: float, short: float, seed: int):
    rules = Shards(
        max_length=length, single_segment_probability=single, short_example_probability=short, seed=seed % 1000
    )
    pieces = np.arange(5, 5 + sum(lines), dtype=np.uint16)
    found: list[int] = []
    for cut in cuts(lines, rules, f"{seed % 2**64:016x}"):
        row = np.zeros(length, dtype=np.uint16)
        size, first = write_example(row, pieces, cut, cls_id=2, sep_id=3)
        assert 3 <= first <= size <= length
        assert row[0] == 2 and row[first - 1] == row[size - 1] == 3
        assert not row[size:].any()
        assert size == first or size >= first + 2  # no empty second segment
        content = [token for token in row[:size].tolist() if token >= 5]
        assert len(content) == size - (2 if size == first else 3)
        found += content
    assert found == pieces.tolist()


def test_examples_are_full_except_the_last_and_the_short_ones() -> None:
    rules = Shards(max_length=64, single_segment_probability=0, short_example_probability=0)
    made = cuts([20] * 50, rules)
    assert all(end - start == 61 for start, _, end in made[:-1])
    assert made[-1][2] == 1000


def test_the_first_segment_ends_at_the_nearest_line_end() -> None:
    rules = Shards(max_length=64, single_segment_probability=0, short_example_probability=0)
    assert cuts([10, 16, 10, 25], rules) == [(0, 26, 61)]  # 26 is nearer to 30 than 36
    assert cuts([10, 24, 27], rules) == [(0, 34, 61)]


def test_a_long_line_is_cut_in_the_middle() -> None:
    rules = Shards(max_length=64, single_segment_probability=0, short_example_probability=0)
    assert cuts([200], rules)[:2] == [(0, 30, 61), (61, 91, 122)]
    assert cuts([3, 200], rules)[0] == (0, 30, 61)  # a line end this early is not near the middle


def test_a_short_rest_is_one_segment() -> None:
    rules = Shards(max_length=64, single_segment_probability=0, short_example_probability=0)
    assert cuts([61, 10], rules) == [(0, 30, 61), (61, 71, 71)]


def test_single_segments_and_short_examples_are_as_frequent_as_asked() -> None:
    rules = Shards(max_length=64, single_segment_probability=0.3, short_example_probability=0.2)
    made = [cut for number in range(200) for cut in cuts([20] * 40, rules, f"{number:016x}")[:-1]]
    single = np.mean([middle == end for _, middle, end in made])
    short = np.mean([end - start < 61 for start, _, end in made])
    assert abs(single - 0.3) < 0.04
    assert abs(short - 0.2) < 0.04


def test_the_choices_depend_on_seed_and_document_only() -> None:
    rules = Shards(max_length=32, single_segment_probability=0.5, short_example_probability=0.5)
    lines = [7, 12, 30] * 20
    assert cuts(lines, rules) == cuts(lines, rules)
    assert cuts(lines, rules) != cuts(lines, rules.model_copy(update={"seed": 2}))
    assert cuts(lines, rules) != cuts(lines, rules, "00000000000000ac")


def test_short_examples_are_of_any_length_up_to_the_full_one() -> None:
    rules = Shards(max_length=8, single_segment_probability=0, short_example_probability=1)
    made = [cut for number in range(50) for cut in cuts([20] * 5, rules, f"{number:016x}")[:-1]]
    lengths = Counter(end - start + (2 if middle == end else 3) for start, middle, end in made)
    assert sorted(lengths) == [5, 6, 7, 8]
    assert max(lengths.values()) < 1.5 * min(lengths.values())
