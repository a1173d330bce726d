"""What must hold for a corpus before anything is made of it."""

from electra.config import Corpus
from electra.validation.corpus_table import DOC_ID
from electra.validation.files_suite import files_expectations
from electra.validation.judge import CRITICAL, WARNING, Suite, gxe

REBUILD = "make the corpus again: dvc repro -f corpus"
CLEANING = "repair or drop these documents in the source, then: dvc repro corpus"


def corpus_suite(corpus: Corpus) -> Suite:
    """Expectations per table of ``corpus_table.corpus_tables``."""
    return {
        "files": files_expectations("data/corpus", "corpus"),
        "splits": [
            gxe.ExpectColumnValuesToBeBetween(
                column="documents",
                min_value=1,
                severity=CRITICAL,
                description="both splits have documents",
                notes="give more text, or raise corpus.held_out_fraction",
            )
        ],
        "documents": [
            gxe.ExpectColumnValuesToMatchRegex(
                column="doc_id",
                regex=DOC_ID,
                severity=CRITICAL,
                description="doc_id is 16 hexadecimal digits",
                notes=REBUILD,
            ),
            gxe.ExpectColumnValuesToBeUnique(
                column="doc_id", severity=CRITICAL, description="no document stands twice", notes=REBUILD
            ),
            gxe.ExpectColumnValuesToBeInSet(
                column="in_both_splits",
                value_set=[False],
                severity=CRITICAL,
                description="no held-out document is in the training split",
                notes=REBUILD,
            ),
            gxe.ExpectColumnValuesToBeInSet(
                column="id_is_text_hash",
                value_set=[True],
                severity=CRITICAL,
                description="doc_id is the hash of the text",
                notes=REBUILD,
            ),
            gxe.ExpectColumnValuesToNotBeNull(
                column="begins", severity=CRITICAL, description="text is not null", notes=REBUILD
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="chars",
                min_value=corpus.min_chars,
                max_value=corpus.max_chars,
                severity=CRITICAL,
                description="length is within corpus.min_chars and corpus.max_chars",
                notes=REBUILD,
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="replacement_chars",
                max_value=0,
                severity=CRITICAL,
                description="no replacement characters (U+FFFD): text that was decoded wrongly and is lost",
                notes=CLEANING,
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="control_chars",
                max_value=0,
                severity=CRITICAL,
                description="no control characters",
                notes=CLEANING,
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="mean_word_chars",
                min_value=2,
                max_value=15,
                mostly=0.99,
                severity=WARNING,
                description="words have a usual length",
                notes="look for tables, code or text without spaces in the source",
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="digit_ratio",
                max_value=0.3,
                mostly=0.99,
                severity=WARNING,
                description="few documents are mostly digits",
                notes="look for tables and lists in the source",
            ),
        ],
        "totals": [
            gxe.ExpectColumnValuesToBeInSet(
                column="documents_missing",
                value_set=[0],
                severity=CRITICAL,
                description="there are as many documents as the manifest says",
                notes=REBUILD,
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="near_duplicate_share",
                max_value=0.01,
                severity=WARNING,
                description="few documents differ from another only in case, spaces or punctuation",
                notes="look for boilerplate in the source",
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="mojibake_share",
                max_value=0.001,
                severity=WARNING,
                description="few documents hold wrongly decoded characters",
                notes="set corpus.repair_mojibake: true, or decode the source with its own encoding",
            ),
        ],
        "sources": [
            gxe.ExpectColumnValuesToBeBetween(
                column="difference",
                min_value=-0.03,
                max_value=0.03,
                severity=WARNING,
                description="each source has the share of characters that its weight asks for",
                notes="a source ran out of text: lower its weight or give it more",
            )
        ],
    }
