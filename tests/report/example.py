"""Results of an example run with invented figures, in the stages' files."""

import math

from electra.common.artifacts import write_json, write_text
from electra.common.paths import Paths

TASKS = {"MRPC": (81.4, 68.4), "STS-B": (77.25, 12.3), "SQuAD1.1": (61.0, 22.4), "CoLA": (-1.5, 0.0)}
DATA = "files; not the official split: MRPC, STS-B, SQuAD1.1, CoLA"


def write_example_results(paths: Paths, *, scores: bool = True) -> None:
    """``results/`` and the manifests."""
    write_json(
        paths.results / "pretrain.json",
        {
            "step": 3000,
            "mlm_loss": 3.21,
            "mlm_accuracy": 0.34,
            "unigram_entropy": 5.9,
            "disc_loss": 0.28,
            "fake_rate": 0.1,
            "fake_rate_entropy": 0.325,
            "disc_auc": 0.853,
            "something_new": 1.5,
        },
    )
    write_text(paths.results / "pretrain.tsv", _curve())
    for suite in ("corpus", "shards", "tasks"):
        warning = {
            "check": "few <documents> repeat",
            "severity": "warning",
            "success": False,
            "observed": {"unexpected": 3, "rows": 60},
        }
        checks = [{"check": "rows", "severity": "critical", "success": True, "observed": 60}, warning]
        report = {"suite": suite, "success": True, "expectations": 2, "failed_critical": 0, "failed_warning": 1}
        write_json(paths.results / f"validation/{suite}.json", {**report, "checks": checks, "statistics": {}})
    source = {"documents": 20000, "characters": 9_000_000, "share": 1.0, "asked_share": 1.0}
    write_json(
        paths.corpus / "manifest.json",
        {
            "documents": 20000,
            "sources": {"stories": source},
            "dropped": {"duplicate": 12, "too_short": 0},
            "held_out": {"documents": 400, "characters": 180_000},
        },
    )
    write_json(paths.tokenizer / "manifest.json", {"vocab_size": 4000, "lowercase": True})
    splits = {"train": {"examples": 30000, "tokens": 1_800_000}, "heldout": {"examples": 600, "tokens": 36_000}}
    write_json(paths.shards / "manifest.json", {"max_length": 64, "splits": splits})
    write_json(
        paths.tasks / "manifest.json",
        {"source": {"kind": "files"}, "tasks": {name: {"rows": {"train": 1000, "dev": 500}} for name in TASKS}},
    )
    write_json(
        paths.results / "probe.json",
        {
            "pairs": 16,
            "accuracy": {"discriminator, sum": {"all": 0.75, "agreement": 0.875, "order": 0.625}},
            "similarity_spearman": 0.4019,
            "retrieval": {"task": "SQuAD1.1", "questions": 400, "paragraphs": 100, "ndcg_at_10": 0.058, "mrr": 0.061},
            "sentences": [
                {
                    "tokens": "the rob ##in <b> sang .",
                    "replaced": "0.01 0.02 0.97 0.40 0.10 0.00",
                    "was": {"2": "##ert"},
                    "fills": {"2": "##in 0.50, ##ert 0.25, | 0.01"},
                },
                {"tokens": "a cat", "replaced": None, "was": {}, "fills": {}},
            ],
        },
    )
    if scores:
        write_scores(paths, _scores())


def write_scores(paths: Paths, scores: dict) -> None:
    """The files of the card, as evaluation writes them."""
    tasks: dict[str, dict] = {"glue": {}, "squad": {}, "tagging": {}, "other": {}}
    for name, entry in scores["tasks"].items():
        tasks["squad" if name.startswith("SQuAD") else "glue"][name] = entry
    write_json(paths.results / "scores.json", {key: value for key, value in scores.items() if key != "tasks"})
    for family, entries in tasks.items():
        write_json(paths.scores(family), entries)


def _curve() -> str:
    lines = ["step\ttrain_mlm_loss\ttrain_disc_loss\tmlm_loss\tdisc_loss\tfake_rate_entropy\tdisc_auc"]
    for step in range(10, 3001, 10):
        loss, disc = 3.2 + 4 * math.exp(-step / 500) + 0.1 * math.sin(step), 0.28 + 0.2 * math.exp(-step / 300)
        auc, entropy = 0.86 - 0.36 * math.exp(-step / 700), 0.325 + 0.1 * math.exp(-step / 900)
        held_out = f"{loss + 0.05:.4f}\t{disc + 0.01:.4f}\t{entropy:.4f}\t{auc:.4f}"
        lines.append(f"{step}\t{loss:.4f}\t{disc:.4f}\t{held_out if step % 500 == 0 else chr(9) * 3}")
    return "\n".join(lines) + "\n"


def _scores() -> dict:
    entries = {
        task: {
            "metric": {"STS-B": "spearman", "SQuAD1.1": "f1", "CoLA": "matthews"}.get(task, "accuracy"),
            "pretrained": ours,
            "scratch": scratch,
            "gain": round(ours - scratch, 3),
            "pretrained_sd": None,
            "scratch_sd": None,
            "data": DATA,
            "train_rows": 1000,
            "dev_rows": 500,
            "other_metrics": {"f1": {"pretrained": ours + 2, "scratch": scratch + 1}} if task == "MRPC" else {},
        }
        for task, (ours, scratch) in TASKS.items()
    }
    return {"data": DATA, "mean": {"pretrained": 54.54, "scratch": 25.78, "gain": 28.76}, "tasks": entries}


def official(scores: dict, tasks: list[str]) -> dict:
    """Return the scores as if the tasks were the official ones."""
    for task in tasks:
        scores["tasks"][task]["official_rows"] = True
        if task.startswith("SQuAD"):
            scores["tasks"][task]["other_metrics"] = {"exact": {"pretrained": 50.0, "scratch": 10.0}}
    return scores
