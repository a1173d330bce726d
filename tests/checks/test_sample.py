"""Tables stay small, their choice depends on the rows alone, and no rule-breaking row is lost to sampling."""

import numpy as np
import pandas as pd

from electra.checks.tables import MAX_HASHES, MAX_ROWS, DuplicateCount, RowSample

NUM = 2 * MAX_ROWS
KEYS = np.random.Generator(np.random.Philox(1)).integers(0, 2**64, NUM, np.uint64)
ROWS = pd.DataFrame({"row": np.arange(NUM)})


def collect(block: int, wrong: np.ndarray) -> pd.DataFrame:
    sample = RowSample(NUM, ["row"])
    for start in range(0, NUM, block):
        part = slice(start, start + block)
        sample.add(ROWS[part], KEYS[part], wrong[part])
    return sample.table(["row"]).frame


def test_sample_is_about_the_size_asked_for_and_does_not_depend_on_blocks() -> None:
    none_wrong = np.zeros(NUM, bool)
    first, second = collect(50_000, none_wrong), collect(33_333, none_wrong)
    assert abs(len(first) - MAX_ROWS) < 0.02 * MAX_ROWS
    assert first.equals(second)


def test_rows_that_break_a_rule_are_in_the_table_whatever_their_hash() -> None:
    wrong = np.zeros(NUM, bool)
    wrong[[7, 123_456, NUM - 1]] = True
    assert {7, 123_456, NUM - 1} <= set(collect(50_000, wrong)["row"])


def test_offenders_are_bounded_too() -> None:
    assert len(collect(50_000, np.ones(NUM, bool))) < 1.02 * MAX_ROWS + 1001


def test_share_of_duplicates_is_kept_when_hashes_are_sampled() -> None:
    unique = KEYS[:300_000]
    exact, estimated = DuplicateCount(330_000), DuplicateCount(10 * MAX_HASHES)
    for count in (exact, estimated):
        count.add(unique)
        count.add(unique[:30_000])
    assert exact.share() == 30_000 / 330_000
    assert abs(estimated.share() - exact.share()) < 0.01
    assert len(estimated.hashes()) < len(exact.hashes()) / 5
