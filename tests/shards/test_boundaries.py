"""Examples that end where sentences and words do, in several scripts."""

import unicodedata
from collections import Counter
from itertools import accumulate

import numpy as np
import pytest

from electra.config import Shards
from electra.text.corpus.cleaning.normalize import clean
from electra.text.shards.examples import Boundaries, DocumentBoundaries, cut_document, document_generator
from electra.text.tokenizer.wordpiece import alphabet_of, make_tokenizer, single_entries

# One paragraph each, written for these tests
SAMPLES = {
    "Chinese": "今天早上天气很好。我们去公园散步，看见很多花！你喜欢花吗？我喜欢红色的花，也喜欢白色的花。"
    "回家的路上下雨了，我们没有带伞。妈妈说：“快跑！”我们都笑了。晚上吃面条，大家都很高兴。",
    "Japanese": "今日はとても良い天気です。公園を散歩して、たくさんの花を見ました！花は好きですか？はい、赤い花が好き。"
    "帰り道で雨が降りました。傘を持っていませんでした。母は「走って！」と言いました。みんなで笑いました。",
    "Hungarian": "Ma reggel szép idő volt. A kertben árvíztűrő tükörfúrógépet találtunk, és nevettünk! Szereted a "
    "virágot? Igen, a pirosat szeretem. Hazafelé esett az eső, de nem volt nálunk ernyő. Anyám azt mondta: fussatok!",
    "Arabic": "كان الطقس جميلا هذا الصباح. ذهبنا إلى الحديقة ورأينا زهورا كثيرة! هل تحب الزهور؟ نعم، أحب الزهور. "
    "في طريق العودة نزل المطر ولم يكن معنا مظلة. قالت أمي اركضوا! ضحكنا جميعا؟ نعم ضحكنا.",
    "Hindi": "आज सुबह मौसम अच्छा था। हम बगीचे में गए और बहुत फूल देखे। क्या तुम्हें फूल पसंद हैं? हाँ, लाल फूल पसंद हैं। "
    "लौटते समय बारिश हुई। हमारे पास छाता नहीं था। माँ ने कहा दौड़ो! हम सब हँसे।",
    "Vietnamese": unicodedata.normalize(
        "NFD",
        "Sáng nay trời rất đẹp. Chúng tôi đi dạo trong công viên và thấy nhiều hoa! Bạn có thích hoa không? Có, tôi "
        "thích hoa đỏ. Trên đường về nhà trời mưa. Chúng tôi không mang ô. Mẹ nói: chạy đi! Mọi người đều cười.",
    ),
}
SPACED = ("Hungarian", "Arabic", "Hindi", "Vietnamese")
RULES = Shards(max_length=48, single_segment_probability=0.3, short_example_probability=0.0, boundaries="sentences")


class Encoded:
    """A text as wordpieces of a vocabulary of its single characters: nearly every piece continues a word."""

    def __init__(self, text: str):
        self.text, _ = clean(text, repair_mojibake=True)
        characters = Counter(self.text)
        self.vocabulary = single_entries(alphabet_of(characters, lowercase=False, max_alphabet=1000))
        self.tokenizer = make_tokenizer(self.vocabulary, lowercase=False)
        self.lines = [self.tokenizer.encode(line, add_special_tokens=False) for line in self.text.split("\n")]
        self.pieces = np.array([id for line in self.lines for id in line.ids], dtype=np.uint16)
        self.line_ends = list(accumulate(len(line.ids) for line in self.lines))

    def cuts(self, rules: Shards = RULES) -> list[tuple[int, int, int]]:
        found = Boundaries(self.vocabulary).of(self.pieces, self.line_ends)
        boundaries = found if rules.boundaries == "sentences" else None
        return list(cut_document(len(self.pieces), self.line_ends, rules, document_generator(1, "ab"), boundaries))

    def tokens(self, start: int, end: int) -> list[str]:
        return [self.vocabulary[id] for id in self.pieces[start:end]]


@pytest.mark.parametrize("language", SAMPLES)
def test_nothing_is_lost_and_no_example_is_too_long(language: str) -> None:
    encoded = Encoded(SAMPLES[language] * 5)
    cuts = encoded.cuts()
    assert [start for start, _, _ in cuts] == [0, *(end for _, _, end in cuts[:-1])] and cuts[-1][2] == len(
        encoded.pieces
    )
    for start, middle, end in cuts:
        assert start < middle <= end
        assert end - start + (2 if middle == end else 3) <= RULES.max_length


@pytest.mark.parametrize("language", SAMPLES)
def test_the_tokenizer_gives_the_text_back_by_its_offsets(language: str) -> None:
    encoded = Encoded(SAMPLES[language])
    assert "[UNK]" not in encoded.tokens(0, len(encoded.pieces))
    for line, encoding in zip(encoded.text.split("\n"), encoded.lines, strict=True):
        assert "".join(line[a:b] for a, b in encoding.offsets) == line.replace(" ", "")


@pytest.mark.parametrize("language", SPACED)
def test_no_segment_begins_inside_a_word(language: str) -> None:
    encoded = Encoded(SAMPLES[language] * 5)
    for start, middle, end in encoded.cuts():
        assert not encoded.tokens(start, start + 1)[0].startswith("##")
        assert middle == end or not encoded.tokens(middle, middle + 1)[0].startswith("##")
    before = [
        encoded.tokens(start, start + 1)[0]
        for start, _, _ in encoded.cuts(RULES.model_copy(update={"boundaries": "lines"}))
    ]
    assert any(token.startswith("##") for token in before), "the sample does not try what it is for"


@pytest.mark.parametrize("language", ["Chinese", "Japanese"])
def test_where_words_have_no_spaces_segments_end_after_sentences_or_clauses(language: str) -> None:
    encoded = Encoded(SAMPLES[language] * 5)
    marks = "。！？，、”」："
    for start, middle, end in encoded.cuts():
        assert encoded.tokens(end - 1, end)[0].removeprefix("##") in marks, encoded.tokens(start, end)
        assert middle == end or encoded.tokens(middle - 1, middle)[0].removeprefix("##") in marks


def sentence_ends(text: str) -> list[str]:
    encoded = Encoded(text)
    ends = Boundaries(encoded.vocabulary).of(encoded.pieces, encoded.line_ends).sentences
    return [
        "".join(token.removeprefix("##") for token in encoded.tokens(a, b))
        for a, b in zip([0, *ends], ends, strict=False)
    ]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("He said (quietly.) Then he left?! Yes.", ["Hesaid(quietly.)", "Thenheleft?!", "Yes."]),
        ("It is 3.14 in all. J. Smith knew.", ["Itis3.14inall.", "J.Smithknew."]),
        ("Wait... what? No", ["Wait...", "what?", "No"]),
        ("是。“不是！”好吗？", ["是。", "“不是！”", "好吗？"]),
        ("هل؟ نعم। क्या", ["هل؟", "نعم।", "क्या"]),
        ("first line\nsecond", ["firstline", "second"]),
    ],
)
def test_sentences_end_at_the_marks_of_many_scripts(text: str, sentences: list[str]) -> None:
    assert sentence_ends(text) == sentences


def test_a_run_of_letters_without_any_boundary_is_cut_where_the_example_is_full() -> None:
    encoded = Encoded("ก" * 90)
    assert all(end - start >= RULES.max_length - 3 for start, _, end in encoded.cuts()[:-1])


def test_lines_are_the_default_and_cut_as_before() -> None:
    encoded = Encoded(SAMPLES["Hungarian"] * 5)
    rules = Shards(max_length=48)
    assert rules.boundaries == "lines"
    assert all(
        end - start >= 48 - 3
        for start, _, end in encoded.cuts(rules.model_copy(update={"short_example_probability": 0.0}))[:-1]
    )


def test_a_sentence_that_ends_before_the_last_quarter_does_not_shorten_an_example() -> None:
    """Room for 61 wordpieces: a sentence's end is looked for from the 46th on, and words end anywhere."""
    rules = Shards(max_length=64, single_segment_probability=0, short_example_probability=0, boundaries="sentences")
    for sentence, end in [(40, 61), (45, 61), (46, 46), (58, 58)]:
        boundaries = DocumentBoundaries([sentence, 200], [], list(range(200)))
        assert next(cut_document(200, [200], rules, document_generator(1, "ab"), boundaries))[2] == end
