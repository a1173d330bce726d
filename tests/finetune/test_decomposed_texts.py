"""Texts of tasks and predictions are normalised as the corpus is: decomposed ones give the ids of composed ones."""

import unicodedata

import pytest

from electra.config.text import SPECIAL_TOKENS
from electra.finetune.classification import sentence_features
from electra.finetune.features import Vocabulary
from electra.finetune.span import span_features
from electra.finetune.tagging import tagging_features
from electra.tasks.catalogue import TASKS
from electra.text.tokenizer.wordpiece import make_tokenizer
from tests.fixtures import LABELLED
from tests.small_tasks import make_settings

TEXTS = {
    "Vietnamese": "Hà Nội là thủ đô của Việt Nam",
    "Japanese": "ガラス と コップ が ある",
    "Korean": "서울 은 한국 의 수도",
    "Hindi": "दिल्ली भारत की राजधानी है",
}
KINDS = {"cased": (False, None), "accents kept": (True, False), "uncased": (True, None)}
SETTINGS = make_settings(LABELLED, ["SQuAD1.1"], span_max_length=60, span_stride=30).finetune


@pytest.fixture(params=KINDS)
def vocabulary(request, tmp_path):
    """Every word of the texts is an entry, so that a token is a word."""
    lowercase, strip_accents = KINDS[request.param]
    blank = make_tokenizer(SPECIAL_TOKENS, lowercase=lowercase, strip_accents=strip_accents)
    words = {word for text in TEXTS.values() for word in blank.normalizer.normalize_str(text).split()}
    tokenizer = make_tokenizer([*SPECIAL_TOKENS, *sorted(words)], lowercase=lowercase, strip_accents=strip_accents)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return Vocabulary.read(tmp_path / "tokenizer.json")


def decomposed(text):
    return unicodedata.normalize("NFD", text)


@pytest.mark.parametrize("language", TEXTS)
def test_sentences_and_words_give_the_same_ids(vocabulary, language):
    text = TEXTS[language]
    assert decomposed(text) != text or language == "Hindi"
    sentences = [{"text_a": t, "text_b": None, "label": "1"} for t in (text, decomposed(text))]
    composed, other = sentence_features(TASKS["CoLA"], sentences, vocabulary, 64)
    assert other.token_ids == composed.token_ids and 1 not in other.token_ids
    tagged = [{"words": t.split(), "tags": None} for t in (text, decomposed(text))]
    composed, other = tagging_features(TASKS["CoNLL-2000"], tagged, vocabulary, 64)
    assert other.token_ids == composed.token_ids and other.positions == composed.positions


@pytest.mark.parametrize("language", TEXTS)
def test_answers_are_cut_whole_from_the_text_as_it_was_written(vocabulary, language):
    for context in (TEXTS[language], decomposed(TEXTS[language])):
        for answer in context.split():
            span = {"text": answer, "start": context.index(answer)}
            row = {"question": "?", "context": context, "answers": [span], "impossible": False}
            (window,) = span_features([row], vocabulary, SETTINGS)
            first, last, _ = window.target
            assert window.text(context, first, last) == answer
