"""What data scores are on, in words: no card may pass for the real benchmark's."""

from typing import Any

from electra.finetune.tasks import TASKS, TaskSpec

OWN = "data of your own, not a public benchmark"
EMBEDDED = "microworld (embedded), not the real GLUE or SQuAD"
_TOLERANCE = 1e-4  # releases of QQP differ in a handful of broken training rows


def has_official_counts(spec: TaskSpec, rows: dict[str, int]) -> bool:
    """Whether the labelled splits have as many rows as the official release."""
    return all(abs(rows.get(split, 0) - n) <= _TOLERANCE * n for split, n in spec.official_rows.items())


def is_official(spec: TaskSpec, manifest: dict[str, Any], train_rows: int) -> bool:
    """Whether a task's scores may stand beside published ones: the official rows, and trained on all of them."""
    rows = manifest["tasks"][spec.name]["rows"]
    return manifest["source"]["kind"] != "embedded" and has_official_counts(spec, rows) and train_rows == rows["train"]


def describe_task(spec: TaskSpec, manifest: dict[str, Any]) -> str:
    """One task's data."""
    facts, kind = manifest["tasks"][spec.name], manifest["source"]["kind"]
    if spec.source == "own":
        return OWN
    if kind == "embedded":
        return EMBEDDED
    where = f"hub ({facts['dataset']}, revision {facts.get('revision', 'none')})" if kind == "hub" else "files"
    if has_official_counts(spec, facts["rows"]):
        return f"{where}; row counts of the official release"
    ours = ", ".join(f"{split} {facts['rows'].get(split, 0):,}" for split in spec.official_rows)
    theirs = ", ".join(f"{split} {n:,}" for split, n in spec.official_rows.items())
    return f"{where}; not the official split ({ours}; official {theirs}): not comparable with published scores"


def describe_card(manifest: dict[str, Any]) -> str:
    """The whole card's data, in one sentence."""
    own = [name for name in manifest["tasks"] if name not in TASKS]
    public = {name: facts for name, facts in manifest["tasks"].items() if name in TASKS}
    parts = [_describe_public({**manifest, "tasks": public})] if public else []
    return "; ".join([*parts, f"{', '.join(own)}: {OWN}"] if own else parts)


def _describe_public(manifest: dict[str, Any]) -> str:
    if manifest["source"]["kind"] == "embedded":
        return EMBEDDED
    odd = [name for name, facts in manifest["tasks"].items() if not has_official_counts(TASKS[name], facts["rows"])]
    source = {"files": "files", "hub": "Hugging Face datasets"}[manifest["source"]["kind"]]
    if not odd:
        return f"{source} with the row counts of the official releases (development sets)"
    rest = "; the others have the official row counts" if len(odd) < len(manifest["tasks"]) else ""
    return f"{source}; not the official split: {', '.join(odd)}{rest}"
