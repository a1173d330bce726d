"""Input formats of models: special tokens, padding, and the token that summarises the input.

BERT, ELECTRA, ALBERT   [CLS] a [SEP]      [CLS] a [SEP] b [SEP]            the first token is the summary
RoBERTa                 <s> a </s>         <s> a </s></s> b </s>            the first
XLNet                   a <sep> <cls>      a <sep> b <sep> <cls>            the last, with a separate segment id
GPT-2                   a                  a b                              the last
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tokenizers import Encoding, Tokenizer

from electra.common.errors import DataError

Position = Literal["first", "last"]


@dataclass(frozen=True)
class Layout:
    """Facts about the format that heads need; BERT's by default.

    Attributes:
        summary: the token whose hidden state represents the whole input.
        null: the token that represents "not in this window" in span tasks.
        num_after: number of special tokens after the last text.
    """

    summary: Position = "first"
    null: Position = "first"
    num_after: int = 1


@dataclass(frozen=True)
class InputFormat:
    """Ids of the special tokens, in order.

    Attributes:
        before, between, after: special tokens before, between and after the texts.
        pad: padding token; always masked.
        has_segments: True if the second text has segment id 1; False if the model has no segments.
        summary_segment: segment id of a summary token at the end, if it has a separate one.
    """

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    pad: int
    layout: Layout = Layout()
    has_segments: bool = True
    summary_segment: int | None = None

    @classmethod
    def bert(cls, cls_id: int, sep: int, pad: int) -> "InputFormat":
        return cls(before=(cls_id,), between=(sep,), after=(sep,), pad=pad)

    @classmethod
    def of(cls, tokenizer: Tokenizer, cls_id: int | None, pad: int, where: str) -> "InputFormat":
        """Return the format of a tokenizer, from the special tokens that it adds to one text and to two.

        Args:
            cls_id: id of the tokenizer's summary token, if it has one.

        Raises:
            DataError: fine-tuning does not support where the tokenizer puts special tokens.
        """
        single, pair = tokenizer.encode("a"), tokenizer.encode("a", "b")
        if not {0, 1} <= set(pair.sequence_ids):
            raise DataError("the tokenizer makes no tokens of the texts 'a' and 'b'", where=where)
        before, between, after = _specials(pair)
        if _specials(single) != (before, (), after):
            raise DataError("the tokenizer frames single texts otherwise than pairs", where=where)
        # without a token at the end the model is one-sided, as GPT-2 and OPT, unless its summary is the first token
        last = after[-1] == cls_id if after else cls_id not in before
        segments = _expected_segments(pair, before, between)
        own_segment = pair.type_ids[-1] if after and last and pair.type_ids[-1] != 1 and any(pair.type_ids) else None
        if own_segment is not None:
            segments[-1] = own_segment
        has_segments = bool(before or after) and any(pair.type_ids)
        if has_segments and pair.type_ids != segments:
            raise DataError(
                f"the tokenizer gives a pair the segments {pair.type_ids}, expected {segments}", where=where
            )
        return cls(
            before=before,
            between=between,
            after=after,
            pad=pad,
            layout=Layout(
                summary="last" if last else "first", null="last" if last and after else "first", num_after=len(after)
            ),
            has_segments=has_segments,
            summary_segment=own_segment if has_segments else None,
        )

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> "InputFormat":
        """Return the format from ``dataclasses.asdict`` after a round trip through JSON."""
        ids = {name: tuple(facts[name]) for name in ("before", "between", "after")}
        return cls(**{**facts, **ids, "layout": Layout(**facts["layout"])})

    def num_special(self, *, pair: bool) -> int:
        """Return the number of special tokens of an input with one text or two."""
        return len(self.before) + len(self.after) + (len(self.between) if pair else 0)

    def single(self, a: Sequence[int]) -> list[int]:
        """Return one text with its special tokens; the padding token if that is empty."""
        return [*self.before, *a, *self.after] or [self.pad]

    def first_part(self, a: Sequence[int]) -> list[int]:
        """Return the first segment of a pair: all tokens before the second text."""
        return [*self.before, *a, *self.between]

    def second_part(self, b: Sequence[int]) -> list[int]:
        return [*b, *self.after]


def _specials(encoding: Encoding) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the ids before, between and after the texts."""
    owners, ids = encoding.sequence_ids, encoding.ids
    places = [i for i, owner in enumerate(owners) if owner is not None]
    inside = tuple(ids[i] for i in range(places[0], places[-1]) if owners[i] is None)
    return tuple(ids[: places[0]]), inside, tuple(ids[places[-1] + 1 :])


def _expected_segments(pair: Encoding, before: tuple[int, ...], between: tuple[int, ...]) -> list[int]:
    first = len(before) + sum(owner == 0 for owner in pair.sequence_ids) + len(between)
    return [0] * first + [1] * (len(pair.ids) - first)
