"""Content of the score card: sections with their tables, independent of the format they are written in."""

import re
from typing import Any

from electra.common.parsing import flat
from electra.config.methods import METHODS
from electra.results.report.beside import beside_published
from electra.results.report.facts import Facts, leakage, learned, vocabulary_rows, zero_shot
from electra.results.report.tables import Section


def milestones(facts: Facts) -> Section:
    """Return the section on milestones: the headline metrics after each part of pre-training."""
    scores = facts.scores or {}
    tasks, parts = scores.get("tasks", {}), scores.get("milestones", {})
    found = {part: [entry["mean"], *_medians(tasks, "milestones", part)] for part, entry in parts.items()}
    if found:
        found["100"] = [scores["mean"]["pretrained"], *(entry["pretrained"] for entry in tasks.values())]
    rows = [
        [f"{percent}%", *(f"{value:.1f}" for value in values)]
        for percent, values in sorted(found.items(), key=lambda item: float(item[0]))
    ]
    note = "Development sets after a part of one schedule that is not re-scaled."
    return Section("Milestones", note, ["pre-training", "mean", *tasks], rows)


def encoders(facts: Facts) -> Section:
    """Return the section that compares the run's encoder with third-party encoders on the same tasks."""
    scores = facts.scores or {}
    tasks, others = scores.get("tasks", {}), scores.get("encoders", {})
    if not others:
        return Section("Other encoders", "", [], [])
    ours = [score(entry["pretrained"], entry.get("pretrained_sd")) for entry in tasks.values()]
    rows = [["this run", f"{scores['mean']['pretrained']:.1f}", *ours]]
    for name, mean in others.items():
        found = [entry["encoders"][name] for entry in tasks.values()]
        rows.append([name, f"{mean['mean']:.1f}", *(score(entry["median"], entry["sd"]) for entry in found)])
    note = "The same rows, seeds, heads and settings; " + statistic(facts)
    return Section("Other encoders", note, ["encoder", "mean", *tasks], rows)


def intermediate(facts: Facts) -> Section:
    """Return the section on tasks that were also fine-tuned from an encoder fine-tuned on another task first."""
    rows = []
    for task, entry in (facts.scores or {}).get("tasks", {}).items():
        for first, found in entry.get("intermediate", {}).items():
            both = [
                score(entry["pretrained"], entry.get("pretrained_sd")),
                score(found["median"], found["sd"]),
            ]
            rows.append([task, first, *both, f"{found['median'] - entry['pretrained']:+.1f}"])
    note = (
        f"Development sets; {statistic(facts)} The paper does this for test submissions only: its development scores "
        "are without it, and so are the means here."
    )
    return Section(
        "Fine-tuned on another task first", note, ["task", "first on", "pre-trained", "then the task", "gain"], rows
    )


def statistic(facts: Facts) -> str:
    """Return the name of the statistic over seeds; the best seed is never reported alone."""
    seeds = len(facts.settings.cells.seeds)
    return f"median of {seeds} seeds ± standard deviation." if seeds > 1 else "one seed."


def score(value: float, deviation: float | None) -> str:
    """Return a median as text, with its standard deviation if there is one."""
    return f"{value:.1f}" if deviation is None else f"{value:.1f} ± {deviation:.1f}"


def _medians(tasks: dict[str, Any], group: str, name: str) -> list[float]:
    return [entry[group][name]["median"] for entry in tasks.values()]


METRIC_NAMES = {
    "matthews": "Matthews corr.",
    "spearman": "Spearman corr.",
    "pearson": "Pearson corr.",
    "f1": "F1",
    "exact": "exact match",
    "accuracy": "accuracy",
    "HasAns_f1": "F1, questions with an answer",
    "HasAns_exact": "exact match, questions with an answer",
    "NoAns_f1": "F1, questions without an answer",
    "NoAns_exact": "exact match, questions without an answer",
    "best_f1": "F1, no-answer threshold tuned on dev",
    "best_exact": "exact match, no-answer threshold tuned on dev",
    "best_f1_threshold": "the threshold tuned on dev for F1",
    "best_exact_threshold": "the threshold tuned on dev for exact match",
}
AVERAGES = {"glue_paper": "GLUE, paper", "glue_leaderboard": "GLUE, leaderboard's rule"}
PRETRAIN_NAMES = {
    "step": "steps",
    "examples_seen": "examples seen",
    "mlm_loss": "generator: masked language modelling loss (nats per masked token)",
    "unigram_entropy": "the same loss when guessing by word frequency alone",
    "mlm_accuracy": "generator: masked tokens predicted",
    "sampled_accuracy": "generator: samples that are the original token",
    "disc_loss": "discriminator: loss (nats per token)",
    "fake_rate_entropy": "the same loss when guessing by the share of replaced tokens alone",
    "fake_rate": "share of tokens that are replaced",
    "disc_auc": "discriminator: AUC (0.5 is guessing)",
    "disc_accuracy": "discriminator: accuracy",
    "disc_precision": "discriminator: precision on replaced tokens",
    "disc_recall": "discriminator: recall of replaced tokens",
    "sampled_entropy": "generator: entropy of its samples (nats)",
    "cloze_loss": "generator: cloze loss, all tokens (nats per token)",
    "cloze_accuracy": "generator: tokens predicted",
    "replace_mlm_loss": "encoder: loss on replaced tokens (nats per masked token)",
    "replace_mlm_accuracy": "encoder: masked tokens predicted",
    "all_tokens_mlm_loss": "encoder: loss on all tokens (nats per token)",
    "all_tokens_mlm_accuracy": "encoder: tokens predicted, without copying",
    "nsp_accuracy": "encoder: second segments distinguished from random ones",
    "alarms": "collapse alarms raised",
}


def sections(facts: Facts) -> list[Section]:
    """Return all tables below the score card whose stage has run."""
    made = [
        averages(facts),
        milestones(facts),
        encoders(facts),
        intermediate(facts),
        beside_published(facts),
        _other_metrics(facts),
        pretraining(facts),
        zero_shot(facts),
        learned(facts),
        corpus(facts),
        leakage(facts),
        _examples(facts),
        _tasks(facts),
        validation(facts),
        settings_table(facts),
    ]
    return [section for section in made if section.rows or (section.note and not section.columns)]


def data_in_words(facts: Facts) -> str:
    """Return one sentence that describes the run's pre-training text and tasks."""
    kinds = [f"{source.name} ({_WHERE[source.kind]})" for source in facts.settings.corpus.sources]
    text = f"Pre-trained on {', '.join(kinds)}"
    if facts.scores and not facts.scores["tasks"]:
        return f"{text}. Not scored: `cells.tasks` names no task."
    return f"{text}. Scored on: {facts.scores['data']}." if facts.scores else f"{text}."


_WHERE = {"files": "files", "hub": "Hugging Face dataset"}


def score_card(facts: Facts) -> Section:
    """Return the score card: one row per task and the mean."""
    scores = facts.scores or {"tasks": {}, "mean": {}}
    rows = [
        [
            task,
            METRIC_NAMES.get(entry["metric"], entry["metric"]),
            score(entry["pretrained"], entry.get("pretrained_sd")),
            score(entry["scratch"], entry.get("scratch_sd")),
            f"{entry['gain']:+.1f}",
            "" if entry.get("constant") is None else f"{entry['constant']:.1f}",
            count(entry.get("train_rows")),
            count(entry.get("dev_rows")),
        ]
        for task, entry in scores["tasks"].items()
    ]
    if mean := scores["mean"]:
        means = [f"{mean['pretrained']:.1f}", f"{mean['scratch']:.1f}", f"{mean['gain']:+.1f}"]
        rows.append(["Mean", "", *means, "", "", ""])
    return Section(
        "Score card",
        f"Development sets, percent; {statistic(facts)} One answer: the best label for every row.",
        ["task", "metric", "pre-trained", "from scratch", "gain", "one answer", "train", "dev"],
        rows,
    )


def averages(facts: Facts) -> Section:
    """Return the GLUE averages, each with its definition."""
    rows = [
        [AVERAGES[name], entry["what"], *(f"{entry[init]:.1f}" for init in ("pretrained", "scratch"))]
        for name, entry in (facts.scores or {}).get("averages", {}).items()
    ]
    return Section("GLUE averages", "", ["average", "what it is", "pre-trained", "from scratch"], rows)


def _other_metrics(facts: Facts) -> Section:
    rows = [
        [
            task,
            METRIC_NAMES.get(name, name.replace("_", " ")),
            f"{values['pretrained']:.2f}",
            f"{values['scratch']:.2f}",
        ]
        for task, entry in (facts.scores or {"tasks": {}})["tasks"].items()
        for name, values in entry.get("other_metrics", {}).items()
    ]
    return Section("Other metrics", "", ["task", "metric", "pre-trained", "from scratch"], rows)


def pretraining(facts: Facts) -> Section:
    """Return every figure of results/pretrain.json; known figures first, with a description."""
    known = facts.pretrain or {}
    keys = [key for key in PRETRAIN_NAMES if key in known] + [key for key in known if key not in PRETRAIN_NAMES]
    model = "generator" if METHODS[facts.settings.pretrain.objective].has_generator else "model"
    rows = [
        [PRETRAIN_NAMES.get(key, key.replace("_", " ")).replace("generator:", f"{model}:"), number(known[key])]
        for key in keys
        if isinstance(known[key], (int, float, str)) and known[key] is not None
    ]
    note = f"{METHODS[facts.settings.pretrain.objective].title}. Held-out text, at the end of training."
    return Section("Pre-training", note[0].upper() + note[1:], ["figure", "value"], rows)


def corpus(facts: Facts) -> Section:
    """Return the sources of the corpus."""
    manifest = facts.manifests.get("corpus", {})
    rows = [
        [name, count(f["documents"]), count(f["characters"]), percent(f.get("share")), percent(f.get("asked_share"))]
        for name, f in manifest.get("sources", {}).items()
    ]
    notes = []
    if held_out := manifest.get("held_out"):
        notes.append(f"held out: {count(held_out['documents'])} documents")
    if dropped := manifest.get("dropped"):
        notes.append("dropped: " + ", ".join(f"{count(n)} {reason.replace('_', ' ')}" for reason, n in dropped.items()))
    note = "; ".join(notes)
    columns = ["source", "documents", "characters", "share", "asked"]
    return Section("Corpus", note[:1].upper() + note[1:] + "." if note else "", columns, rows)


def _examples(facts: Facts) -> Section:
    tokenizer, shards = facts.manifests.get("tokenizer"), facts.manifests.get("shards")
    statistics = facts.validation.get("shards", {}).get("statistics", {})
    rows = []
    if tokenizer:
        rows.append(["vocabulary entries", count(tokenizer["vocab_size"])])
        rows += vocabulary_rows(tokenizer, statistics.get("unused_entries_share"))
    if shards:
        rows.append(["tokens per example, at most", count(shards["max_length"])])
        for split, name in (("train", "training"), ("heldout", "held-out")):
            if split in shards["splits"]:
                rows.append([f"{name} examples", count(shards["splits"][split]["examples"])])
                rows.append([f"{name} tokens", count(shards["splits"][split]["tokens"])])
    for key, name in [
        ("pad_share", "share of padding"),
        ("two_segment_share", "examples with two segments"),
        ("held_out_unknown_share", "unknown tokens in held-out text"),
    ]:
        if key in statistics:
            rows.append([name, percent(statistics[key], digits=2)])
    return Section("Vocabulary and examples", "", ["figure", "value"], rows)


def _tasks(facts: Facts) -> Section:
    tasks = facts.manifests.get("tasks", {}).get("tasks", {})
    scored = (facts.scores or {"tasks": {}})["tasks"]
    rows = [
        [
            task,
            ", ".join(f"{split} {count(n)}" for split, n in entry["rows"].items()),
            scored.get(task, {}).get("data", ""),
            _cut(scored.get(task, {})),
        ]
        for task, entry in tasks.items()
    ]
    note = "Cut: rows longer than the inputs (finetune.max_length; of span tasks, questions: max_question_length)."
    return Section("Tasks", note, ["task", "rows", "data", "cut"], rows)


def _cut(entry: dict[str, Any]) -> str:
    """Return the share of truncated rows of a task, and the counts of what cannot be learned because of it."""
    totals = {"train": entry.get("train_rows"), "dev": entry.get("dev_rows")}
    parts = [
        f"{split} {percent(number / totals[split]) if totals.get(split) else count(number)}"
        for split, number in entry.get("rows_cut", {}).items()
        if number
    ]
    if words := entry.get("words_cut"):
        parts.append(f"{count(words)} words of train")
    if answers := entry.get("answers_not_recoverable"):
        parts.append(f"{count(answers)} answers of train cannot be learned exactly")
    return ", ".join(parts) or ("none" if "rows_cut" in entry else "")


def validation(facts: Facts) -> Section:
    """Return the verdict of each suite, and the observed value of every failed check."""
    rows = []
    for name, report in facts.validation.items():
        failed = [check for check in report["checks"] if not check["success"]]
        verdict = "failed" if report["failed_critical"] else f"passed{', with warnings' if failed else ''}"
        rows.append([name, f"{report['expectations'] - len(failed)} of {report['expectations']} hold", verdict])
        rows += [
            ["", f"{check['severity']}, expected: {check['check']}", _observed(check["observed"])] for check in failed
        ]
    return Section(
        "Data validation",
        "Great Expectations suites over corpus, shards and tasks.",
        ["suite", "checks", "result"],
        rows,
    )


def settings_table(facts: Facts) -> Section:
    """Return all settings that results depend on, by key path."""
    values = facts.settings.model_dump(mode="json", exclude={"cluster", "profile"})
    texts = {key: ", ".join(map(str, value)) if isinstance(value, list) else value for key, value in flat(values)}
    rows = [[key, number(_without_secrets(value))] for key, value in sorted(texts.items())]
    return Section("Settings", f"Profile {facts.settings.profile}.", ["key", "value"], rows)


def _without_secrets(value: Any) -> Any:
    """Remove user, password and query from URLs: the report is committed to git."""
    if not isinstance(value, str):
        return value
    return re.sub(r"(?<=://)[^/\s@]*@|(?<=\?)[^\s,]*(?=,|$)", "", value) if "://" in value else value


def _observed(observed: Any) -> str:
    if isinstance(observed, dict):
        return f"{observed['unexpected']:,} of {observed['rows']:,} rows break it"
    return f"observed {number(observed)}"


def count(value: int | None) -> str:
    """Format a whole number with thousands separators."""
    return "" if value is None else f"{value:,}"


def percent(share: float | None, digits: int = 1) -> str:
    """Format a fraction as a percentage."""
    return "" if share is None else f"{100 * share:.{digits}f}%"


def number(value: Any) -> str:
    """Format a JSON scalar: four significant digits for fractions, separators for whole numbers."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
