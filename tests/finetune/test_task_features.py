"""Token ids, truncation, windows and character offsets."""

import numpy as np
import pytest
import torch
from tokenizers import BertWordPieceTokenizer

from electra.finetune.classification import sentence_features
from electra.finetune.features import (
    Feature,
    Vocabulary,
    collate,
    rows_cut,
    sorted_batches,
    training_order,
    truncated_lengths,
)
from electra.finetune.kinds import FINETUNING
from electra.finetune.multiple_choice import choice_features
from electra.finetune.span import answers_not_recoverable, span_features, window_starts, with_marks
from electra.finetune.tagging import tagging_features
from electra.readers.official import OfficialSource
from electra.tasks.catalogue import TASKS, TaskSpec
from tests.fixtures import LABELLED
from tests.small_tasks import SHARED, VOCAB, make_settings

SETTINGS = make_settings(LABELLED, ["CoLA"]).finetune


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


SPECIAL = "the [SEP] cat [MASK][CLS]"


def inner(vocabulary, feature):
    """The tokens that are of the texts, not of the frame around them."""
    ids = list(feature.token_ids)
    first = ids[len(vocabulary.inputs.before) : feature.first_length - 1]
    return first + ids[feature.first_length : -1] if len(ids) > feature.first_length else first


def test_texts_that_look_like_special_tokens_are_text_for_every_kind_of_task(paths):
    vocabulary = Vocabulary.load(paths)
    pair = {"id": "0", "text_a": SPECIAL, "text_b": SPECIAL, "label": None}
    tagged = {"id": "0", "words": SPECIAL.split(), "tags": None}
    choice = {"id": "0", "text_a": SPECIAL, "choices": [SPECIAL] * 4, "label": None}
    question = {"id": "0", "question": SPECIAL, "context": SPECIAL, "answers": [], "impossible": True}
    long = SETTINGS.model_copy(update={"span_max_length": 64, "max_question_length": 30})
    features = [
        *sentence_features(TASKS["RTE"], [pair], vocabulary, 64),
        *sentence_features(TASKS["CoLA"], [pair], vocabulary, 64),
        *tagging_features(TASKS["CoNLL-2003"], [tagged], vocabulary, 64),
        *choice_features(TASKS["SWAG"], [choice], vocabulary, 64)[0].choices,
        *span_features([question], vocabulary, long),
    ]
    pieces = "the [UNK] s ##e ##p [UNK] cat [UNK] m ##a ##s ##k [UNK] [UNK] c ##l ##s [UNK]".split()
    for feature in features:
        ids = inner(vocabulary, feature)
        found = [vocabulary.tokenizer.id_to_token(i) for i in ids]
        assert found in (pieces, pieces * 2)
        assert not set(ids) & {vocabulary.pad, *vocabulary.inputs.before, *vocabulary.inputs.after}


def test_truncation_takes_from_the_longer_text_token_by_token():
    for a in range(12):
        for b in range(12):
            for limit in range(2, 14):
                x, y = a, b
                while x + y > limit:
                    x, y = (x - 1, y) if x > y else (x, y - 1)
                assert truncated_lengths(a, b, limit) == (x, y)


def test_rows_that_lose_tokens_are_counted_once_each(paths):
    vocabulary = Vocabulary.load(paths)
    words = [("the cat sat", "a dog"), ("the cat sat on", "a dog"), ("the cat", "a dog sat on the park"), ("a", "the")]
    pairs = [{"id": "0", "text_a": a, "text_b": b, "label": None} for a, b in words]
    assert rows_cut(sentence_features(TASKS["RTE"], pairs, vocabulary, 8)) == 2  # 5 tokens beside three special ones
    assert rows_cut(sentence_features(TASKS["RTE"], pairs, vocabulary, 9)) == 1
    assert rows_cut(sentence_features(TASKS["CoLA"], pairs, vocabulary, 5)) == 1
    choices = [
        {"id": "0", "text_a": "the cat", "choices": ["a", "dog", "a dog", end], "label": None} for end, _ in words
    ]
    choices.append(
        {**choices[0], "text_a": "the cat sat on a dog", "choices": ["\u0001"] * 4}
    )  # nothing is left of these
    assert rows_cut(choice_features(TASKS["SWAG"], choices, vocabulary, 8)) == 2
    tagged = [{"id": "0", "words": a.split(), "tags": None} for a, _ in words]
    assert rows_cut(tagging_features(TASKS["CoNLL-2003"], tagged, vocabulary, 5)) == 1
    asked = [{"id": "0", "question": a, "context": f"{b} " * 20, "answers": [], "impossible": True} for a, b in words]
    options = SETTINGS.model_copy(update={"max_question_length": 3})
    assert rows_cut(span_features(asked, vocabulary, options)) == 1, "contexts are not cut: windows hold all of them"


def test_scores_are_learned_as_shares_of_their_range(paths):
    warmth = TaskSpec("warmth", "regression", ("spearman",), {}, score_range=(-10.0, 30.0))
    for label, share in [(-10.0, 0.0), (0.0, 0.25), (30.0, 1.0)]:
        row = {"id": "0", "text_a": "cat", "text_b": None, "label": label}
        (feature,) = FINETUNING["regression"].features(warmth, [row], Vocabulary.load(paths), SETTINGS)
        assert feature.target == pytest.approx(share)


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


def answers_of(paths, context, answers, **options):
    """Return the text of each answer found through windows over the context; every letter is a wordpiece."""
    letters = sorted(set(BertWordPieceTokenizer(**options).normalize(context)) - {" "})
    vocabulary = paths.root / "letters.txt"
    vocabulary.write_text("\n".join([*VOCAB[:5], *letters, *(f"##{letter}" for letter in letters)]) + "\n")
    BertWordPieceTokenizer(str(vocabulary), **options).save(str(paths.tokenizer / "tokenizer.json"))
    vocabulary = Vocabulary.load(paths)
    assert vocabulary.tokenizer.token_to_id("[UNK]") not in vocabulary.encode([context])[0]
    found = []
    for answer in answers:
        spans = [{"text": answer, "start": context.index(answer)}]
        row = {"id": "q", "question": "who?", "context": context, "answers": spans, "impossible": False}
        windows = span_features([row], vocabulary, SETTINGS.model_copy(update={"span_max_length": 128}))
        found.append(windows[0].text(context, *windows[0].target[:2]))
    return found


HINDI = "दिल्ली की कुतुब मीनार को ऐबक ने सन् 1193 में बनवाना शुरू किया, और यह ईंट से बनी सबसे ऊँची मीनार है।"
THAI = "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย มีประชากรมากที่สุด ตั้งอยู่ริมแม่น้ำเจ้าพระยา เปิดเมื่อปีนี้"
MARKED = {  # answers that end in a nonspacing mark; those of most are of combining class 0
    "Hindi": (HINDI, ["ऐबक ने", "सन्", "1193 में", "कुतुब मीनार को ऐबक ने", "ईंट से", "बनी सबसे", "मीनार है", "दिल्ली"]),
    "Thai": (THAI, ["มี", "ที่", "ตั้งอยู่", "แม่น้ำเจ้า", "ปีนี้", "กรุงเทพมหานครเป็", "เมื่อปี", "ประเทศไทย"]),
    "Arabic": ("كَتَبَ الوَلَدُ في البَيْتِ", ["كَتَبَ", "الوَلَدُ", "البَيْتِ"]),
    "a joiner between letter and mark": ("अक्\u200d\u0941 ब", ["अक्\u200d\u0941"]),
}


@pytest.mark.parametrize("script", MARKED)
@pytest.mark.parametrize("lowercase", [True, False])
def test_answers_keep_the_marks_that_the_normaliser_drops(paths, script, lowercase):
    context, answers = MARKED[script]
    assert answers_of(paths, context, answers, lowercase=lowercase) == answers


def test_marks_of_other_tokens_and_joiners_without_a_mark_are_not_part_of_an_answer():
    assert with_marks("ae\u0301i", [(0, 1), (1, 2), (2, 3), (3, 4)]) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert with_marks("ab\u200b c", [(0, 2), (4, 5)]) == [(0, 2), (4, 5)]
    assert with_marks("ab\u0941", [(0, 2)]) == [(0, 3)]


def test_a_context_of_dropped_characters_alone_has_no_answer(paths):
    rows = [{"id": "q", "question": "who?", "context": "\u200b\u0301", "answers": [], "impossible": True}]
    (window,) = span_features(rows, Vocabulary.load(paths), SETTINGS)
    assert window.target == (0, 0, 1)


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


def test_an_answer_that_ends_behind_a_window_is_no_target_of_it(paths):
    """A target there would be a place that the head never chooses: the loss would be infinite."""
    words = "the cat sat on a big house in the park where john ran on a small dog in the red cafe".split()
    windows_of = {}
    for number in range(len(words) - 1):
        answer, start = " ".join(words[number : number + 2]), len(" ".join([*words[:number], ""]))
        row = {"id": "q", "question": "who?", "context": " ".join(words), "impossible": False}
        row["answers"] = [{"text": answer, "start": start}]
        windows_of[number] = span_features([row], Vocabulary.load(paths), SETTINGS)
        for window in windows_of[number]:
            first, last, _ = window.target
            assert not last or window.text(row["context"], first, last) == answer
    first = windows_of[0][0]
    words_inside = len(first.offsets)
    assert words_inside < len(words), "the context is longer than a window"
    assert windows_of[words_inside - 2][0].target[1] == first.first_length + words_inside - 1
    assert windows_of[words_inside - 1][0].target == (0, 0, 0)


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
    assert FINETUNING["span"].unlearnable(rows, windows) == {"answers_not_recoverable": 2}


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is not there")
@pytest.mark.parametrize(("split", "num_rows", "num_listed"), [("train", 8992, 25), ("dev", 1578, 2)])
def test_every_answer_of_real_squad_is_recovered_but_those_inside_a_wordpiece(paths, split, num_rows, num_listed):
    BertWordPieceTokenizer(str(SHARED / "vocab/bert-base-uncased-vocab.txt")).save(
        str(paths.tokenizer / "tokenizer.json")
    )
    vocabulary = Vocabulary.load(paths)
    rows = list(OfficialSource(squad=SHARED / "squad").read(TASKS["SQuAD1.1"], split))
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


def test_a_batch_for_cuda_says_where_its_examples_end_and_a_cpu_keeps_the_plain_one() -> None:
    features = [Feature([2, 7, 8, 3], 4, 0, row=0), Feature([2, 9, 3], 3, 1, row=1)]
    batch = collate(features, pad=0)
    ready = batch.for_cuda(pinned=False)
    assert ready.ends_N is not None and ready.ends_N.tolist() == [0, 4, 7, 8, 8]
    assert batch.to(torch.device("cpu")) is batch
