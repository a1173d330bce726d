"""Facts of the report, read from ``results/`` and the manifests; remarks on scores, and sections on data and probes.

A remark is one sentence on the score card; its thresholds are documented in docs/alarms.md.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from electra.common.artifacts import MANIFEST, read_json
from electra.common.errors import DataError
from electra.common.paths import SCORE_FAMILIES, Paths
from electra.config import Settings
from electra.config.methods import METHODS
from electra.results.report.tables import Section

Curves = dict[str, list[float | None]]  # column -> values, None if missing; the first column is the step


@dataclass(frozen=True)
class Facts:
    """All facts about one run; parts whose stage has not run are None."""

    settings: Settings
    scores: dict[str, Any] | None
    pretrain: dict[str, Any] | None
    curves: Curves | None
    validation: dict[str, dict[str, Any]]  # suite -> report
    manifests: dict[str, dict[str, Any]]  # corpus, tokenizer, shards, tasks
    probe: dict[str, Any] | None = None


def gather(settings: Settings, paths: Paths) -> Facts:
    """Read all results that exist."""
    folders = {"corpus": paths.corpus, "tokenizer": paths.tokenizer, "shards": paths.shards, "tasks": paths.tasks}
    tsv = paths.results / "pretrain.tsv"
    manifests = {name: facts for name, at in folders.items() if (facts := _optional_json(at / MANIFEST))}
    if settings.pretrain.epochs and "shards" in manifests:
        recipe = settings.pretrain.with_steps_for(manifests["shards"]["splits"]["train"]["examples"])
        settings = settings.model_copy(update={"pretrain": recipe})
    return Facts(
        settings=settings,
        scores=read_scores(paths),
        pretrain=_optional_json(paths.results / "pretrain.json"),
        curves=read_curves(tsv) if tsv.exists() else None,
        validation={
            name: report
            for name in ("corpus", "shards", "tasks")
            if (report := _optional_json(paths.results / f"validation/{name}.json"))
        },
        manifests=manifests,
        probe=_optional_json(paths.results / "probe.json"),
    )


def read_scores(paths: Paths) -> dict[str, Any] | None:
    """Return ``results/scores.json`` with the ``tasks`` of all score files, GLUE first; None before evaluation."""
    scores = _optional_json(paths.results / "scores.json")
    if scores is None:
        return None
    tasks = [entry for family in SCORE_FAMILIES for entry in read_json(paths.scores(family)).items()]
    return {**scores, "tasks": dict(tasks)}


def read_curves(path: Path) -> Curves:
    """Return the columns of a TSV of numbers; cells may be empty.

    Raises:
        DataError: a cell is not a number; the message has its line.
    """
    return parse_curves(path.read_text(encoding="utf-8"), str(path))


def parse_curves(text: str, where: str) -> Curves:
    """Parse the text of a curves file, as :func:`read_curves`; ``where`` names its origin in errors."""
    header, *rows = csv.reader(text.splitlines(), delimiter="\t")
    curves: Curves = {name: [] for name in header}
    for line, row in enumerate(rows, 2):
        try:
            for name, cell in zip(header, row, strict=True):
                curves[name].append(float(cell) if cell else None)
        except ValueError as error:
            raise DataError(
                f"the curve has a bad row: {error}", where=f"{where}:{line}", next_step="dvc repro -f pretrain"
            ) from None
    return curves


def _optional_json(path: Path) -> Any:
    return read_json(path) if path.exists() else None


# Thresholds: loss relative to guessing by frequency, and area under the ROC curve. Measured: discriminators that helped
# fine-tuning had an AUC of 0.79 or more; one with 0.67 hurt every task, although its loss was below guessing.
LOSS_BELOW, AUC_ABOVE = 0.95, 0.75  # better than guessing
HARDLY_BELOW, HARDLY_ABOVE = 0.98, 0.55  # hardly better than guessing; anything worse raises an alarm during training


def plateaus(facts: Facts) -> list[str]:
    """Return whether generator and discriminator are clearly, hardly or not better than guessing by frequency."""
    known, lines = facts.pretrain or {}, []
    model = "generator" if METHODS[facts.settings.pretrain.objective].has_generator else "model"
    for name, loss, guess, auc in [
        (model, "mlm_loss", "unigram_entropy", None),
        ("discriminator", "disc_loss", "fake_rate_entropy", known.get("disc_auc")),
    ]:
        if loss in known and guess in known:
            lines.append(f"The {name} {_verdict(known[loss], known[guess], auc)}")
    return lines


def _verdict(loss: float, guess: float, auc: float | None) -> str:
    figures = f"loss {loss:.3f}, guessing {guess:.3f}" + ("" if auc is None else f", AUC {auc:.3f}")
    area = 1.0 if auc is None else auc
    if loss <= LOSS_BELOW * guess and area >= AUC_ABOVE:
        return f"does better than guessing by frequency: {figures}."
    wanted = f"a loss {1 - LOSS_BELOW:.0%} below guessing" + ("" if auc is None else f" and an AUC of {AUC_ABOVE}")
    if loss <= HARDLY_BELOW * guess and area >= HARDLY_ABOVE:
        return f"does hardly better than guessing by frequency: {figures}; {wanted} would be better."
    return f"is still at guessing by frequency: {figures}; {wanted} would be better."


ACTIONS = {
    "report": "it was left",
    "drop_documents": "the document was dropped",
    "drop_paragraphs": "its paragraphs were dropped",
}


def leakage(facts: Facts) -> Section:
    """Return how many evaluation examples occur in the corpus, by task and split."""
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


def vocabulary_rows(tokenizer: dict[str, Any], unused: float | None = None) -> list[list[str]]:
    """Return rows of (figure, value) on how well the vocabulary fits the text.

    Args:
        tokenizer: the manifest.
        unused: share of entries that never occur in the training examples.
    """
    held_out = tokenizer.get("held_out", {})
    per_word, unknown = held_out.get("wordpieces_per_word"), held_out.get("unknown_rate")
    if not per_word:
        return []
    per_piece = held_out["characters"] / (held_out["words"] * per_word)
    return [
        ["wordpieces per word (fertility), held-out text", f"{per_word:.2f}"],
        ["characters per wordpiece, spaces counted", f"{per_piece:.2f}"],
        ["[UNK] among wordpieces, held-out text", f"{100 * unknown:.2f}%"],
        *([["entries that never occur in training", f"{100 * unused:.1f}%"]] if unused is not None else []),
    ]


def zero_shot(facts: Facts) -> Section:
    """Return the results of the zero-shot probes."""
    known = facts.probe or {}
    num_pairs = known.get("pairs", 0)
    rows = []
    for way, values in known.get("accuracy", {}).items():
        share = values["all"]
        margin = 1.96 * (share * (1 - share) / num_pairs) ** 0.5
        parts = ", ".join(f"{rule} {100 * value:.1f}" for rule, value in values.items() if rule != "all")
        rows.append([f"minimal pairs: {way}", f"{100 * share:.1f} ± {100 * margin:.1f}", parts])
    baseline = known.get("word_vectors", {})
    if "similarity_spearman" in known:
        words = _beside(baseline.get("similarity_spearman"))
        rows.append(["STS-B without labels: Spearman", f"{100 * known['similarity_spearman']:.1f}", words])
    if found := known.get("retrieval"):
        what = f"{found['questions']:,} questions, {found['paragraphs']:,} paragraphs, MRR {100 * found['mrr']:.1f}"
        if words := _beside(baseline.get("retrieval", {}).get("ndcg_at_10")):
            what += f"; {words}"
        rows.append([f"{found['task']}, question to paragraph: nDCG@10", f"{100 * found['ndcg_at_10']:.1f}", what])
    note = "Percent."
    if num_pairs:
        note += (
            " Minimal pairs: the good sentence scores higher; guessing gives 50; ± is the 95% interval over "
            f"{num_pairs:,} pairs, to which other seeds of pre-training would add."
        )
    note += " Similarity and retrieval: by cosines of mean states."
    return Section("Before fine-tuning", note, ["probe", "figure", "parts"], rows)


def _beside(value: float | None) -> str:
    """Return the figure of averaged word vectors in words; empty if there is none."""
    return "" if value is None else f"averaged word vectors of the same text: {100 * value:.1f}"


class Shown(NamedTuple):
    """A token: its text, P(replaced) or None, the token it replaced, and the generator's proposals."""

    text: str
    replaced: float | None
    was: str | None
    fills: str | None


def shown_sentences(facts: Facts) -> list[list[Shown]]:
    """Return the held-out sentences of the probe, in which the generator replaced tokens."""
    sentences = []
    for found in (facts.probe or {}).get("sentences", []):
        tokens = found["tokens"].split(" ")
        scores = map(float, found["replaced"].split(" ")) if found["replaced"] else [None] * len(tokens)
        places = zip(map(str, range(len(tokens))), tokens, scores, strict=True)
        sentences.append([Shown(text, score, found["was"].get(n), found["fills"].get(n)) for n, text, score in places])
    return sentences


LEARNED = "What it learned"


def which_sentences(facts: Facts) -> str:
    """Return a caption that states how the shown sentences were chosen."""
    found = facts.probe or {}
    if has_scores(facts):
        has_generator = any(sentence["fills"] for sentence in found["sentences"])
        how = "the generator replaced tokens" if has_generator else "tokens were replaced by frequent ones"
        text, loss = f"Held-out sentences in which {how}", "of the discriminator"
    else:
        text, loss = "Held-out sentences in which tokens were masked and the model's best guesses filled in", "there"
    if found.get("candidates", 0) > len(found.get("sentences", [])) and found["sentences"][0].get("loss") is not None:
        half = len(found["sentences"]) // 2
        text += f": of {found['candidates']}, the {half} with the lowest loss {loss}, then the {half} with the highest"
    return text


def has_scores(facts: Facts) -> bool:
    """Return whether a discriminator scored the shown sentences."""
    return any(sentence["replaced"] for sentence in (facts.probe or {}).get("sentences", []))


def learned(facts: Facts) -> Section:
    """Return the sentences as text: P(replaced) in percent after tokens that were replaced or are predicted to be."""
    rows = []
    for sentence in shown_sentences(facts):
        words = [
            token.text
            + (f" [was {token.was}]" if token.was else "")
            + (
                f" ({100 * token.replaced:.0f})"
                if token.replaced is not None and (token.was or token.replaced > 0.3)
                else ""
            )
            for token in sentence
        ]
        fills = "; ".join(token.fills for token in sentence if token.fills)
        rows.append([" ".join(words), fills])
    note = f"{which_sentences(facts)} [was: what stood there]"
    if has_scores(facts):
        note += "; in brackets the discriminator's probability of a replacement, percent, where it is above 30 or "
        note += "there is one"
    model = "generator" if has_scores(facts) else "model"
    return Section(LEARNED, f"{note}.", ["sentence", f"the {model}'s best proposals"], rows)
