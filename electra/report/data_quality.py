"""Data section of the report: evaluation text in the corpus, and how the vocabulary fits."""

from typing import Any

from electra.report.facts import Facts, Section

ACTIONS = {
    "report": "it was left",
    "drop_documents": "the document was dropped",
    "drop_paragraphs": "its paragraphs were dropped",
}


def leakage(facts: Facts) -> Section:
    """Which evaluation examples stand in the corpus, by set."""
    columns = ["task", "set", "examples", "compared", "found", "documents", "paragraphs"]
    found = facts.manifests.get("corpus", {}).get("decontamination")
    if not found:
        return Section("Evaluation text in the corpus", "", columns, [])
    rows = [
        [
            one["task"],
            one["split"],
            *(f"{one[key]:,}" for key in ("examples", "compared", "found", "documents", "paragraphs")),
        ]
        for one in found["sets"]
    ]
    n, least = found["words"], found["min_words"]
    note = (
        f"An example is found if {n} words in a row of one of its texts stand in a document, or all words of a text of"
        f" {least} to {n - 1}; shorter texts are not compared. Where one was found, {ACTIONS[found['action']]}"
    )
    return Section("Evaluation text in the corpus", note, columns, rows)


def vocabulary_rows(tokenizer: dict[str, Any]) -> list[list[str]]:
    """How well the vocabulary fits the held-out text: rows of (figure, value)."""
    held_out = tokenizer.get("held_out", {})
    per_word, unknown = held_out.get("wordpieces_per_word"), held_out.get("unknown_rate")
    if not per_word:
        return []
    per_piece = held_out["characters"] / (held_out["words"] * per_word)
    return [
        ["wordpieces per word (fertility), held-out text", f"{per_word:.2f}"],
        ["characters per wordpiece, spaces counted", f"{per_piece:.2f}"],
        ["[UNK] among wordpieces, held-out text", f"{100 * unknown:.2f}%"],
    ]
