"""Milestones as folders for ``transformers``; ``electra publish --milestones`` puts each on a branch of its own."""

from pathlib import Path
from typing import Any

from electra.common.artifacts import building, read_manifest, verify_folder, write_manifest
from electra.common.errors import ConfigError
from electra.common.paths import Paths
from electra.config import Settings
from electra.hub.export.pretrained import initial_weights, write_folders


def export_milestones(settings: Settings, paths: Paths) -> Path:
    """Write ``models/exported/milestones/<name>/<folder>`` for each milestone of ``pretrain.milestones``.

    Returns:
        The folder; its manifest has the milestones in the order of their steps.

    Raises:
        ConfigError: the run kept none.
        DataError: ``models/milestones`` is missing or damaged.
    """
    verify_folder(paths.milestones)
    facts = read_manifest(paths.milestones)
    seen: dict[str, dict[str, int]] = facts.get("seen", {})
    if not seen:
        raise ConfigError(
            "this run kept no milestones by tokens, words or steps",
            where=str(paths.milestones),
            next_step="set pretrain.milestones, such as [every 1M words], and run: dvc repro pretrain",
        )
    folder = paths.exported("milestones")
    with building(folder) as scratch:
        parent, _ = initial_weights(settings, paths)
        for name, one in seen.items():
            (scratch / name).mkdir()
            section = _section(name, one, parent, facts["order"])
            write_folders(settings, paths, paths.milestones / name, scratch / name, section)
            parent = f"the branch `{name}`"
        write_manifest(scratch, milestones=list(seen))
    print(f"export: {folder}: {', '.join(seen)}")
    return folder


def _section(name: str, seen: dict[str, int], parent: str, order: dict[str, Any]) -> str:
    return (
        f"## Checkpoint {name}\n\n"
        f"- step: {seen['step']:,} of {order['num_steps']:,}\n"
        f"- seen: {seen['tokens']:,} tokens, {seen['words']:,} words, {seen['examples']:,} examples, with repetitions\n"
        f"- parent: {parent}, from which this run was trained on\n"
        "- final weights: the branch `main`\n\n"
        f'`from_pretrained(..., revision="{name}")` loads it. Sizes and steps below are those of the whole run.\n'
    )
