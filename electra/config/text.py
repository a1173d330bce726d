"""Settings of the text stages: corpus with its cleaning (none by default), tokenizer, shards."""

import codecs
import io
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from electra.config.section import Probability, Section, Seed

# If a file yields this many documents with this few characters on average, its documents may be only paragraphs
MANY_PARAGRAPHS = 100  # minimum number of documents per file
PARAGRAPH_CHARS = 1000  # upper limit of the mean: above a paragraph of a book, below most articles
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # the first entries of every trained vocabulary


class Unwrap(Section):
    """Join hard-wrapped lines to paragraphs; must be the first step, since it needs the blank lines."""

    kind: Literal["unwrap"] = Field(description="join hard-wrapped lines")
    min_share: Probability = Field(0.8, description="minimum share of line breaks that look wrapped")


class Boilerplate(Section):
    """Remove text that book sites and web pages add around a document."""

    kind: Literal["boilerplate"] = Field(description="licence blocks, headers with metadata, notices")


class Markup(Section):
    """Remove remains of HTML, wiki markup and transcribers' marks; the text inside stays."""

    kind: Literal["markup"] = Field(description="tags, entities, wiki links, transcribers' marks, scene breaks")


class RepeatedLines(Section):
    """Remove lines that occurred earlier."""

    kind: Literal["repeated_lines"] = Field(description="lines (paragraphs) that occurred earlier")
    min_chars: int = Field(60, ge=1, le=1_000_000, description="shorter lines may repeat: dialogue, headings")
    scope: Literal["document", "corpus"] = Field(
        "document", description="corpus: also lines of documents before this one, in the order of the mixture"
    )


class Gopher(Section):
    """Document rules of Gopher (Rae et al. 2021, arXiv 2112.11446, appendix A1.1); null switches a rule off."""

    kind: Literal["gopher"] = Field(description="Gopher's rules for length, words, symbols, bullets and stop words")
    min_words: int | None = Field(50, ge=1, le=1_000_000_000, description="minimum number of words")
    max_words: int | None = Field(
        100_000, ge=1, le=1_000_000_000, description="maximum number of words; books have more"
    )
    min_word_length: float | None = Field(3, gt=0, le=1000, description="minimum mean of characters per word")
    max_word_length: float | None = Field(10, gt=0, le=1000, description="maximum mean of characters per word")
    max_symbol_ratio: float | None = Field(0.1, ge=0, le=1000, description="maximum hash signs or ellipses per word")
    max_bullet_lines: Probability | None = Field(0.9, description="maximum share of lines that begin with a bullet")
    max_ellipsis_lines: Probability | None = Field(0.3, description="maximum share of lines that end with an ellipsis")
    min_alphabetic_words: Probability | None = Field(0.8, description="minimum share of words with a letter")
    max_digits: Probability | None = Field(None, description="maximum share of digits among characters; not Gopher's")
    min_stop_words: int | None = Field(2, ge=1, le=1000, description="minimum number of different `stop_words`")
    stop_words: list[str] = Field(
        ["the", "be", "to", "of", "and", "that", "have", "with"], description="frequent words of the language"
    )


class Repetition(Section):
    """Gopher's rules for repetition (table A1); documents over a threshold are dropped, null switches a rule off."""

    kind: Literal["repetition"] = Field(description="Gopher's rules for repeated lines and word n-grams")
    max_duplicate_lines: Probability | None = Field(0.30, description="maximum share of repeated lines")
    max_duplicate_line_chars: Probability | None = Field(0.20, description="maximum share of characters in them")
    max_top_ngram_chars: dict[int, Probability] = Field(
        {2: 0.20, 3: 0.18, 4: 0.16}, description="n: maximum share of characters in the most frequent n-gram"
    )
    max_duplicate_ngram_chars: dict[int, Probability] = Field(
        {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10},
        description="n: maximum share of characters in repeated n-grams",
    )


class FineWeb(Section):
    """FineWeb's additional document rules (Penedo et al. 2024, arXiv 2406.17557, section 3.4)."""

    kind: Literal["fineweb"] = Field(description="FineWeb's rules for line ends, repeated and short lines")
    min_punctuated_lines: Probability | None = Field(0.12, description="minimum share of lines that end in punctuation")
    max_duplicate_line_chars: Probability | None = Field(
        0.1, description="maximum share of characters in repeated lines"
    )
    max_short_lines: Probability | None = Field(
        0.67, description="maximum share of lines with fewer than `short_line` characters"
    )
    short_line: int = Field(30, ge=1, le=100_000, description="minimum characters of a line that is not short")


class PersonalData(Section):
    """Mask e-mail addresses and phone numbers."""

    kind: Literal["personal_data"] = Field(description="e-mail addresses and phone numbers become fixed examples")
    email: str = Field("email@example.com", description="replacement for e-mail addresses")
    phone: str = Field("555-0100", description="replacement for phone numbers")


# what py3langid tells apart: its codes, once each
LANGUAGES = frozenset(
    "ace af am an ar ary arz as az ba bcl be bg bn br bs ca crh cs cy da de dz el en eo es et eu ext fa fi fo fr "
    "fuv fy ga gcf gcr gd gl gom grc gu gug guw ha hbo he hi hr ht hu hy id ig is it ja jv ka kab kik kk km kn ko "
    "ku ky la lb lg lij ln lo lt ltg lv mg mk ml mn mr ms mt my ne nl nn no nso oc om or pa pcm pl ps pt qu ro ru "
    "rw sa sdh se si sk sl sn so sq sr st sv sw ta te tg th tk tl tr tt ug uk ur uz uzs vec vi vo wa wuu xh yo "
    "yue zh zu zxx".split()
)


def _known_language(code: str) -> str:
    if code not in LANGUAGES:
        near = sorted(known for known in LANGUAGES if known[:2] == code[:2])
        raise ValueError(
            f"{code!r} is no language of py3langid, whose codes have two letters where ISO 639 has such a one"
            + (f"; near: {', '.join(near)}" if near else "")
        )
    return code


class Language(Section):
    """Drop documents of other languages (py3langid: 140 languages, no download)."""

    kind: Literal["language"] = Field(description="documents of other languages are dropped")
    languages: list[Annotated[str, AfterValidator(_known_language)]] = Field(
        min_length=1, description="ISO 639 codes of the languages to keep, such as en"
    )
    min_probability: Probability = Field(
        0.5, description="minimum probability of the other language; less certain documents, such as short ones, stay"
    )


CleaningStep = Annotated[
    Unwrap | Boilerplate | Markup | RepeatedLines | Gopher | Repetition | FineWeb | PersonalData | Language,
    Field(discriminator="kind"),
]


def known_encoding(name: str) -> str:
    """Return the name of a text encoding; raise ValueError if Python has none of this name."""
    try:
        io.TextIOWrapper(io.BytesIO(), encoding=name)
        codecs.getincrementaldecoder(name)
    except LookupError:
        raise ValueError(
            "no text encoding that Python knows (https://docs.python.org/3/library/codecs.html#standard-encodings)"
        ) from None
    return name


Encoding = Annotated[str, AfterValidator(known_encoding)]
Revision = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class FilesCorpus(Section):
    """Text files: .txt (or .train), .jsonl or .parquet, plain or compressed (.gz, .xz, .zst), at any fsspec URL."""

    kind: Literal["files"] = Field(description="files read from disk or any fsspec URL")
    name: str = Field(description="name of the source in the corpus and the manifest")
    weight: float = Field(1.0, gt=0, le=1_000_000, description="relative share of the mixture, counted in characters")
    license: str | None = Field(None, description="licence of the text, an SPDX name or a URL: for manifest and cards")
    paths: list[str] = Field(min_length=1, description="paths, globs or fsspec URLs, read in sorted order")
    text_field: str = Field("text", description="field or column with the text (jsonl, parquet)")
    encoding: Encoding = Field(
        "utf-8", description="encoding of .txt and .jsonl files, such as cp1252, shift_jis, gb18030 or utf-16"
    )
    checksums: str | None = Field(
        None, description="file written by sha256sum with a line for every input file; a mismatch is an error"
    )
    documents: Literal["blank_line", "line", "lines", "file"] = Field(
        "blank_line",
        description="what separates documents in a .txt file; blank lines alone are none. lines: consecutive lines of "
        "about 10,000 characters, for transcripts with a sentence per line",
    )


class HubCorpus(Section):
    """A dataset of the Hugging Face hub at a pinned revision, streamed."""

    kind: Literal["hub"] = Field(description="a hub dataset, streamed")
    name: str = Field(description="name of the source in the corpus and the manifest")
    weight: float = Field(1.0, gt=0, le=1_000_000, description="relative share of the mixture, counted in characters")
    license: str | None = Field(None, description="licence of the text, an SPDX name or a URL: for manifest and cards")
    dataset: str = Field(description="owner/name on the hub, or a local dataset folder")
    revision: Revision | None = Field(None, description="full 40-hex commit; required unless dataset is a local folder")
    config_name: str | None = Field(None, description="dataset configuration, such as 20231101.en")
    data_files: str | None = Field(None, description="glob of parquet files in the repository to read directly")
    split: str = Field("train", description="split to stream")
    text_field: str = Field("text", description="column with the text")

    @model_validator(mode="after")
    def _pinned(self) -> "HubCorpus":
        if self.revision is None and not Path(self.dataset).is_dir():
            raise ValueError("a hub dataset needs `revision`: the full 40-hex commit, so that a run can be repeated")
        return self


CorpusSource = Annotated[FilesCorpus | HubCorpus, Field(discriminator="kind")]


class NearDuplicates(Section):
    """MinHash-LSH: of documents that share most of their word n-grams, only the first is kept."""

    threshold: float = Field(0.8, gt=0, le=1, description="minimum Jaccard similarity of near-duplicates")
    shingle_words: int = Field(5, ge=1, le=100, description="words of an n-gram")
    bands: int = Field(
        20, ge=1, le=200, description="bands of the signature; documents with a common band are compared"
    )
    rows: int = Field(
        6, ge=1, le=50, description="values per band; fewer also find less similar documents and cost more"
    )


class Decontamination(Section):
    """Evaluation text in the corpus: n-grams of development and test sets (GPT-3, Brown et al. 2020, appendix C)."""

    action: Literal["report", "drop_documents", "drop_paragraphs"] = Field(
        "drop_paragraphs", description="action when evaluation text is found"
    )
    words: int = Field(13, ge=5, le=1000, description="consecutive words that count as evaluation text")
    min_words: int = Field(
        8, ge=3, le=1000, description="texts of at least this many but fewer than `words` words must match as a whole"
    )


class Corpus(Section):
    """Sources of documents, their cleaning and the held-out split."""

    sources: list[CorpusSource] = Field(min_length=1, description="one or more sources, mixed by weight")
    max_documents: int | None = Field(
        None, gt=0, le=1_000_000_000_000, description="stop after this many documents are kept"
    )
    max_words: int | None = Field(
        None,
        gt=0,
        le=1_000_000_000_000,
        description="more words of text, separated by white space and counted before cleaning, are an error",
    )
    min_chars: int = Field(20, ge=1, le=1_000_000_000, description="shorter documents are dropped")
    max_chars: int = Field(
        1_000_000,
        ge=1,
        le=1_000_000_000,
        description="longer documents are cut at the last line end before this length, or at the last word if that "
        "would lose more than half",
    )
    repair_mojibake: bool = Field(True, description="repair wrongly decoded text with ftfy")
    cleaning: list[CleaningStep] = Field([], description="steps in their order (docs/cleaning.md); none by default")
    near_duplicates: NearDuplicates | None = Field(
        None, description="drop near-duplicates too ({} for the defaults); null: only exact duplicates"
    )
    decontamination: Decontamination | None = Field(
        None, description="look for evaluation sets of data/tasks in the corpus ({} for the defaults); null: off"
    )
    held_out_fraction: float = Field(0.01, gt=0, lt=1, description="share of documents held out by document hash")
    split_longer_than: int | None = Field(
        100_000,
        gt=0,
        le=1_000_000_000,
        description="documents of more characters are split by groups of paragraphs; null: only whole documents",
    )
    documents_per_file: int = Field(
        50_000, gt=0, le=1_000_000_000, description="documents per parquet file: the unit of parallel work"
    )

    @model_validator(mode="after")
    def _distinct_names(self) -> "Corpus":
        names = [source.name for source in self.sources]
        if len(set(names)) < len(names):
            raise ValueError(f"source names must differ, got {names}")
        kinds = [(step.kind, getattr(step, "scope", "")) for step in self.cleaning]
        if len(set(kinds)) < len(kinds):
            raise ValueError("cleaning: a step is listed twice")
        if any(isinstance(step, Unwrap) for step in self.cleaning[1:]):
            raise ValueError("cleaning: unwrap must be the first step, since those after it leave no blank lines")
        if any(isinstance(step, RepeatedLines) and step.scope == "corpus" for step in self.cleaning[:-1]):
            raise ValueError("cleaning: repeated_lines with scope corpus must be the last step")
        if self.min_chars > self.max_chars:
            raise ValueError("min_chars is larger than max_chars")
        return self


class Tokenizer(Section):
    """The vocabulary: WordPiece with BERT's normaliser and pre-tokeniser, or another kind."""

    kind: Literal["wordpiece", "bpe", "unigram"] = Field(
        "wordpiece",
        description="wordpiece: BERT's and ELECTRA's; bpe: byte-level, as ModernBERT's, without unknown tokens; "
        "unigram: SentencePiece's, as ALBERT's",
    )
    vocab_size: int = Field(30522, ge=100, le=10_000_000, description="entries including the five special tokens")
    vocab_file: str | None = Field(
        None, description="use this existing vocab.txt (WordPiece) or tokenizer.json instead of training one"
    )
    lowercase: bool = Field(True, description="lowercase before splitting")
    strip_accents: bool | None = Field(
        None,
        description="remove combining marks before splitting (and with them vowel signs of Indic scripts and the "
        "dakuten of Japanese); null: same as lowercase",
    )
    min_frequency: int = Field(2, ge=1, le=1_000_000_000, description="minimum count of a pair to be merged")
    character_coverage: float = Field(
        0.9995,
        gt=0,
        le=1,
        description="share of the text covered by characters with entries (the most frequent, at least 1000); words "
        "with other characters become [UNK]",
    )
    max_alphabet: int | None = Field(
        None,
        ge=1,
        le=0x110000,
        description="number of characters with entries, the most frequent; null: by character_coverage",
    )
    max_training_chars: int = Field(
        2_000_000_000,
        gt=0,
        le=10**15,
        description="train on a hash sample of documents of about this many characters",
    )


class Shards(Section):
    """ELECTRA's two-segment examples as fixed-length memory-mapped arrays."""

    max_length: int = Field(128, ge=8, le=8_192, description="tokens per example, including [CLS] and [SEP]")
    single_segment_probability: Probability = Field(0.1, description="share of examples with one segment")
    short_example_probability: Probability = Field(0.05, description="share of examples with a random shorter target")
    boundaries: Literal["lines", "sentences"] = Field(
        "lines",
        description="lines: examples end when they are full, segments near line ends. sentences: both end after a "
        "sentence (also 。！？؟।), else a clause, else between words; up to a quarter of an example stays empty",
    )
    seed: Seed = Field(1, description="seed of segment choices, combined with each document's hash")
    max_shard_bytes: int = Field(256 * 2**20, ge=2**16, le=2**40, description="upper bound of one .npy file")
