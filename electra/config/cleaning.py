"""Settings of the corpus' cleaning: a list of named steps, none by default."""

from typing import Annotated, Literal

from pydantic import Field

from electra.config.section import Probability, Section


class Unwrap(Section):
    """Join hard-wrapped lines to paragraphs; must be the first step, since it needs the blank lines."""

    kind: Literal["unwrap"] = Field(description="join hard-wrapped lines")
    min_share: Probability = Field(0.8, description="of the line breaks inside paragraphs that look like wrapped text")


class Boilerplate(Section):
    """Remove what book sites and web pages put around a text."""

    kind: Literal["boilerplate"] = Field(description="licence blocks, headers with metadata, notices")


class Markup(Section):
    """Remove what is left of HTML, wiki text and transcribers' marks; the text inside stays."""

    kind: Literal["markup"] = Field(description="tags, entities, wiki links, transcribers' marks, scene breaks")


class RepeatedLines(Section):
    """Remove lines that stood before."""

    kind: Literal["repeated_lines"] = Field(description="lines (paragraphs) that stood before")
    min_chars: int = Field(60, ge=1, le=1_000_000, description="shorter lines may repeat: dialogue, headings")
    scope: Literal["document", "corpus"] = Field(
        "document", description="corpus: also lines of documents before this one, in the order of the mixture"
    )


class Gopher(Section):
    """Document rules of Gopher (Rae et al. 2021, arXiv 2112.11446, appendix A1.1); None switches a rule off."""

    kind: Literal["gopher"] = Field(description="Gopher's rules for length, words, symbols, bullets and stop words")
    min_words: int | None = Field(50, ge=1, le=1_000_000_000, description="fewest words")
    max_words: int | None = Field(100_000, ge=1, le=1_000_000_000, description="most words; books have more")
    min_word_length: float | None = Field(3, gt=0, le=1000, description="least mean of characters a word")
    max_word_length: float | None = Field(10, gt=0, le=1000, description="greatest mean of characters a word")
    max_symbol_ratio: float | None = Field(0.1, ge=0, le=1000, description="most hash signs, and most ellipses, a word")
    max_bullet_lines: Probability | None = Field(0.9, description="largest share of lines that begin with a bullet")
    max_ellipsis_lines: Probability | None = Field(0.3, description="largest share of lines that end with an ellipsis")
    min_alphabetic_words: Probability | None = Field(0.8, description="least share of words with a letter")
    max_digits: Probability | None = Field(None, description="largest share of digits among characters; not Gopher's")
    min_stop_words: int | None = Field(2, ge=1, le=1000, description="fewest different words of `stop_words`")
    stop_words: list[str] = Field(
        ["the", "be", "to", "of", "and", "that", "have", "with"], description="frequent words of the language"
    )


class Repetition(Section):
    """Gopher's rules for repetition (table A1); documents over a threshold are dropped, null switches a rule off."""

    kind: Literal["repetition"] = Field(description="Gopher's rules for repeated lines and word n-grams")
    max_duplicate_lines: Probability | None = Field(0.30, description="largest share of lines that stood before")
    max_duplicate_line_chars: Probability | None = Field(0.20, description="their largest share of the characters")
    max_top_ngram_chars: dict[int, Probability] = Field(
        {2: 0.20, 3: 0.18, 4: 0.16}, description="n: largest share of characters in the most frequent n-gram"
    )
    max_duplicate_ngram_chars: dict[int, Probability] = Field(
        {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10},
        description="n: largest share of characters in n-grams that stood before",
    )


class FineWeb(Section):
    """FineWeb's own document rules (Penedo et al. 2024, arXiv 2406.17557, section 3.4)."""

    kind: Literal["fineweb"] = Field(description="FineWeb's rules for line ends, repeated and short lines")
    min_punctuated_lines: Probability | None = Field(0.12, description="least share of lines that end in punctuation")
    max_duplicate_line_chars: Probability | None = Field(
        0.1, description="largest share of characters in repeated lines"
    )
    max_short_lines: Probability | None = Field(
        0.67, description="largest share of lines under `short_line` characters"
    )
    short_line: int = Field(30, ge=1, le=100_000, description="characters of a line that is not short")


class PersonalData(Section):
    """Mask e-mail addresses and phone numbers."""

    kind: Literal["personal_data"] = Field(description="e-mail addresses and phone numbers become fixed examples")
    email: str = Field("email@example.com", description="put in the place of an e-mail address")
    phone: str = Field("555-0100", description="put in the place of a phone number")


CleaningStep = Annotated[
    Unwrap | Boilerplate | Markup | RepeatedLines | Gopher | Repetition | FineWeb | PersonalData,
    Field(discriminator="kind"),
]
