"""What must hold for the vocabulary and the shards before they are trained on."""

from electra.config import Settings
from electra.validation.files_suite import files_expectations
from electra.validation.judge import CRITICAL, WARNING, Suite, gxe
from electra.validation.shards_table import RULES

RESHARD = "make the shards again: dvc repro -f shards"
RETOKENIZE = "make the tokenizer again: dvc repro -f tokenizer"
RULE_TEXT = {
    "spans_possible": "spans fit: 3 <= first segment <= tokens <= max_length",
    "ids_known": "token ids are in the vocabulary",
    "starts_with_cls": "examples start with [CLS]",
    "segments_end_with_sep": "both segments end with [SEP]",
    "padding_is_zero": "padding, and nothing else, is zero",
}


def shards_suite(settings: Settings) -> Suite:
    """Expectations per table of ``shards_table.shards_tables``."""
    return {
        "tokenizer_files": files_expectations("data/tokenizer", "tokenizer"),
        "vocabulary": [
            gxe.ExpectColumnValuesToBeUnique(
                column="token", severity=CRITICAL, description="no entry stands twice", notes=RETOKENIZE
            ),
            gxe.ExpectColumnValuesToBeInSet(
                column="id_minus_line",
                value_set=[0],
                severity=CRITICAL,
                description="ids in tokenizer.json are the line numbers of vocab.txt: 0, 1, 2, ... without gaps",
                notes=RETOKENIZE,
            ),
            gxe.ExpectColumnValuesToMatchRegex(
                column="token",
                regex=r"^[^\s\x00-\x1f\x7f-\x9f]+$",
                severity=CRITICAL,
                description="entries hold no spaces and no control characters",
                notes=RETOKENIZE,
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="chars",
                max_value=100,
                severity=WARNING,
                description="no entry is longer than 100 characters",
                notes="look for text without spaces in the corpus",
            ),
        ],
        "shard_files": files_expectations("data/shards", "shards"),
        "shards": [
            gxe.ExpectColumnValuesToBeInSet(
                column="layout",
                value_set=["as listed"],
                severity=CRITICAL,
                description="types and shapes are those of the manifest",
                notes=RESHARD,
            ),
            gxe.ExpectColumnValuesToBeInSet(
                column="examples_missing",
                value_set=[0],
                severity=CRITICAL,
                description="examples are as many as the manifest says",
                notes=RESHARD,
            ),
            gxe.ExpectColumnValuesToBeInSet(
                column="tokens_missing",
                value_set=[0],
                severity=CRITICAL,
                description="tokens are as many as the manifest says",
                notes=RESHARD,
            ),
        ],
        "examples": [
            *(
                gxe.ExpectColumnValuesToBeInSet(
                    column=rule, value_set=[True], severity=CRITICAL, description=RULE_TEXT[rule], notes=RESHARD
                )
                for rule in RULES
            ),
            gxe.ExpectColumnValuesToBeInSet(
                column="stray_specials",
                value_set=[0],
                severity=WARNING,
                description="special tokens stand only at the ends of segments",
                notes="the text itself holds [CLS], [SEP] or [MASK]: remove them from the source",
            ),
        ],
        "totals": [
            gxe.ExpectColumnValuesToBeInSet(
                column="size_difference",
                value_set=[0],
                severity=CRITICAL,
                description="the vocabulary has the size its manifest says",
                notes=RETOKENIZE,
            ),
            gxe.ExpectColumnValuesToBeInSet(
                column="shards_size_difference",
                value_set=[0],
                severity=CRITICAL,
                description="the shards were made with a vocabulary of this size",
                notes=RESHARD,
            ),
            gxe.ExpectColumnValuesToBeInSet(
                column="other_tokenizer",
                value_set=[False],
                severity=CRITICAL,
                description="the shards were made with this tokenizer (sha256 of tokenizer.json)",
                notes=RESHARD,
            ),
            gxe.ExpectColumnValuesToBeInSet(
                column="specials_missing",
                value_set=[0],
                severity=CRITICAL,
                description="[PAD], [UNK], [CLS], [SEP] and [MASK] are in the vocabulary",
                notes=RETOKENIZE,
            ),
            *(
                gxe.ExpectColumnValuesToBeBetween(
                    column=f"{split}_examples",
                    min_value=1,
                    severity=CRITICAL,
                    description=f"the {split.replace('_', '-')} split has examples",
                    notes="give more text, or raise corpus.held_out_fraction",
                )
                for split in ("train", "held_out")
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="vocabulary",
                min_value=1 if settings.tokenizer.vocab_file else settings.tokenizer.vocab_size,
                severity=WARNING,
                description="the vocabulary is as large as tokenizer.vocab_size asks",
                notes="lower tokenizer.vocab_size or tokenizer.min_frequency, or give more text",
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="continuation_share",
                min_value=0.03,
                max_value=0.7,
                severity=WARNING,
                description="a usual share of entries continue a word (##)",
                notes="look at data/tokenizer/vocab.txt: does it hold words and word parts?",
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="held_out_unknown_share",
                max_value=0.001,
                severity=WARNING,
                description="hardly any held-out token is [UNK]",
                notes="raise tokenizer.max_training_chars, or look for foreign scripts in the corpus",
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="pad_share",
                max_value=0.5,
                severity=WARNING,
                description="less than half of the shards is padding",
                notes="documents are short: lower shards.max_length",
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="duplicate_share",
                max_value=0.05,
                severity=WARNING,
                description="few training examples stand twice",
                notes="look for boilerplate in the corpus",
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="held_out_seen_share",
                max_value=0.05,
                severity=WARNING,
                description="few held-out examples are training examples too",
                notes="look for boilerplate in the corpus",
            ),
        ],
    }
