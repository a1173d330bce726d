"""Token ids, truncation, windows and character offsets."""

import numpy as np
import pytest
from tokenizers import BertWordPieceTokenizer

from electra.finetune.features import (
    Feature,
    Vocabulary,
    collate,
    sentence_features,
    sorted_batches,
    training_order,
    truncated_lengths,
)
from electra.finetune.run import answers_not_recoverable, unlearnable
from electra.finetune.spans import span_features, window_starts
from electra.readers.official import OfficialSource
from electra.tasks.catalogue import TASKS
from tests.small_tasks import SHARED, make_settings

SETTINGS = make_settings({"kind": "embedded"}, ["CoLA"]).finetune


def tokens(vocabulary, feature):
    return [vocabulary.tokenizer.id_to_token(i) for i in feature.token_ids]


def test_sentences_and_pairs_get_their_special_tokens(paths):
    vocabulary = Vocabulary.load(paths)
    row = {"id": "0", "text_a": "The cat sat.", "text_b": "a dog", "label": "entailment"}
    (pair,) = sentence_features(TASKS["RTE"], [row], vocabulary, 16)
    assert tokens(vocabulary, pair) == ["[CLS]", "the", "cat", "sat", ".", "[SEP]", "a", "dog", "[SEP]"]
    assert (pair.first_length, pair.target) == (6, 0)
    row = {"id": "0", "text_a": "The cat sat.", "text_b": None, "label": "1"}
    (single,) = sentence_features(TASKS["CoLA"], [row], vocabulary, 5)
    assert tokens(vocabulary, single) == ["[CLS]", "the", "cat", "sat", "[SEP]"]
    assert single.first_length == 5


def test_truncation_takes_from_the_longer_text_token_by_token():
    for a in range(12):
        for b in range(12):
            for limit in range(2, 14):
                x, y = a, b
                while x + y > limit:
                    x, y = (x - 1, y) if x > y else (x, y - 1)
                assert truncated_lengths(a, b, limit) == (x, y)


def test_padding_is_masked_and_the_second_segment_marked():
    batch = collate([Feature([2, 7, 3, 8, 3], 3, 1, 0), Feature([2, 7, 3], 3, 0, 1)], pad=0)
    assert batch.tokens_BT.tolist() == [[2, 7, 3, 8, 3], [2, 7, 3, 0, 0]]
    assert batch.segments_BT.tolist() == [[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]]
    assert batch.mask_BT.tolist() == [[True] * 5, [True] * 3 + [False] * 2]
    assert batch.targets.tolist() == [1, 0]


def test_batches_are_widened_to_a_multiple_of_8_but_never_beyond_the_longest_feature():
    three, longer = Feature([2, 7, 3], 3, 0, 0), Feature([2] * 10, 10, 0, 1)
    assert collate([three], 0, longest=8).tokens_BT.shape == (1, 8)
    assert collate([three], 0, longest=5).tokens_BT.shape == (1, 5)
    assert collate([longer], 0, longest=64).tokens_BT.shape == (1, 16)
    assert collate([longer], 0, longest=64).mask_BT.sum() == 10


def test_every_example_is_drawn_once_an_epoch_in_batches_of_like_length():
    lengths = np.random.default_rng(0).integers(5, 60, 500).tolist()
    order = training_order(lengths, 8, np.random.default_rng(1))
    assert sorted(i for batch in order for i in batch) == list(range(500))
    padded = sum(max(lengths[i] for i in batch) * len(batch) for batch in order)
    assert padded < 1.15 * sum(lengths)
    assert order == training_order(lengths, 8, np.random.default_rng(1))
    assert order != training_order(lengths, 8, np.random.default_rng(2))
    assert sorted(i for batch in sorted_batches(lengths, 8) for i in batch) == list(range(500))


@pytest.mark.parametrize(("length", "size", "stride"), [(0, 4, 2), (4, 4, 2), (5, 4, 2), (23, 5, 3), (9, 3, 7)])
def test_windows_cover_every_token_without_a_gap(length, size, stride):
    starts = window_starts(length, size, stride)
    assert {i for start in starts for i in range(start, min(start + size, length))} == set(range(length))
    assert starts[-1] + size >= length
    assert len(starts) == 1 or starts[-2] + size < length


UNICODE = (
    "Mary\u200b sat in the Cafe\u0301 日本, 😀 the İ big\u00a0dog \U0001d518 ran.\u2028 "
    "John is in a déjà house? a cat sat"
)


@pytest.mark.parametrize("answer", ["Mary", "Cafe\u0301", "日本", "😀", "big\u00a0dog", "John", "déjà", "cat", "ran"])
def test_the_answer_is_recovered_exactly_from_windows_over_unicode_text(paths, answer):
    start = UNICODE.index(answer)
    row = {
        "id": "q",
        "question": "who?",
        "context": UNICODE,
        "answers": [{"text": answer, "start": start}],
        "impossible": False,
    }
    windows = span_features([row], Vocabulary.load(paths), SETTINGS)
    assert len(windows) > 2
    assert all(len(window.token_ids) <= SETTINGS.span_max_length for window in windows)
    holding = [window for window in windows if window.target[0]]
    assert holding
    for window in holding:
        assert window.text(UNICODE, *window.target[:2]) == answer
    for window in windows:
        assert len(window.offsets) == len(window.token_ids) - window.first_length - 1


def test_unanswerable_questions_and_windows_without_the_answer_point_at_cls(paths):
    context = "the cat sat on a big house in the park where john ran on a small dog in the red cafe"
    base = {"id": "q", "question": "who?", "context": context}
    rows = [
        {**base, "answers": [], "impossible": True},
        {**base, "answers": [{"text": "cat", "start": 4}], "impossible": False},
    ]
    windows = span_features(rows, Vocabulary.load(paths), SETTINGS)
    assert {window.target for window in windows if window.row == 0} == {(0, 0, 1)}
    targets = [window.target for window in windows if window.row == 1]
    assert targets[0] == (5, 5, 0)  # [CLS] who ? [SEP] the cat
    assert set(targets[1:]) == {(0, 0, 0)}


def test_answers_inside_a_wordpiece_or_longer_than_a_window_are_listed_as_not_recoverable(paths):
    context = "the cat sat on a big house in the park where john ran on a small dog in the red cafe"
    texts = {"whole": "big house", "inside": "hous", "long": context[:60]}
    rows = [
        {
            "id": id,
            "question": "who?",
            "context": context,
            "answers": [{"text": text, "start": context.index(text)}],
            "impossible": False,
        }
        for id, text in texts.items()
    ]
    rows.append({"id": "none", "question": "who?", "context": context, "answers": [], "impossible": True})
    windows = span_features(rows, Vocabulary.load(paths), SETTINGS)
    assert answers_not_recoverable(rows, windows) == ["inside", "long"]
    assert unlearnable(TASKS["SQuAD2.0"], rows, windows) == {"answers_not_recoverable": 2}


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is not there")
@pytest.mark.parametrize(("split", "num_rows", "num_listed"), [("train", 8992, 25), ("dev", 1578, 2)])
def test_every_answer_of_real_squad_is_recovered_but_those_inside_a_wordpiece(paths, split, num_rows, num_listed):
    BertWordPieceTokenizer(str(SHARED / "vocab/bert-base-uncased-vocab.txt")).save(
        str(paths.tokenizer / "tokenizer.json")
    )
    vocabulary = Vocabulary.load(paths)
    rows = list(OfficialSource(None, SHARED / "squad").read(TASKS["SQuAD1.1"], split))
    assert len(rows) == num_rows
    paper = {"span_max_length": 512, "span_stride": 128, "max_question_length": 64}
    listed = answers_not_recoverable(rows, span_features(rows, vocabulary, SETTINGS.model_copy(update=paper)))
    assert len(listed) == num_listed
    for row in (row for row in rows if row["id"] in listed):
        answer = row["answers"][0]
        begin, end = answer["start"], answer["start"] + len(answer["text"])
        assert row["context"][begin:end] == answer["text"]
        pieces = vocabulary.tokenizer.encode(row["context"], add_special_tokens=False).offsets
        assert any(first < begin < last or first < end < last for first, last in pieces), row["id"]
