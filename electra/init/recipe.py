"""The new profile: the recipe of an existing one, with the texts, the tasks and what depends on their size."""

import math
from pathlib import Path
from typing import Any

from electra.cluster.estimate.text_size import BYTES_PER_TOKEN
from electra.common.errors import ConfigError
from electra.common.parsing import read_yaml
from electra.config import FilesCorpus
from electra.config.loading import parse_settings, with_method
from electra.config.methods import METHODS
from electra.init.babylm import EPOCHS, TrainingText, adapt
from electra.init.table import OWN, Table
from electra.init.texts import Texts
from electra.init.yaml_text import with_tasks
from electra.tasks.catalogue import TASKS

PASSES = 20  # passes over the text, for profiles whose steps are not a published recipe
MIN_ENTRIES = 100  # minimum of tokenizer.vocab_size
EXAMPLES = (32_000, 384_000)  # minimum and maximum number of pre-training examples
FINETUNING_STEPS = 500  # tables of 1,500 to 2,600 rows were not learned to the end with 141 to 325 (experiments)
MOST_EPOCHS = 16
# Tokens of pre-training from which replaced token detection follows masked language modelling: at 6 million this is
# level with masked language modelling alone, at 12 million ahead of it even with twice the FLOPs (docs/results.md)
RTD_TOKENS = 12_000_000
# Learning rate of both methods below with the shape of `tiny`, at 6 million tokens against the 5e-4 of `tiny`: held-out
# loss of masked language modelling 4.61 against 4.82, mean of tasks with `mlm_then_rtd` 63.2 against 62.3
# (experiments/README.md)
RATE = 1.5e-3
WHY_RATE = "the best of those tried, at 6 million tokens"
WHY_METHOD = {
    "bert": "masked language modelling: with so little text it is ahead of replaced token detection",
    "mlm_then_rtd": "masked language modelling, then replaced token detection: "
    "ahead of the former alone at 12M and 24M tokens, on tags, chunks and questions",
}


def read_template(root: Path, like: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of the profile ``like``, and those of ``params.yaml``.

    Raises:
        ConfigError: there is no such profile, or one of the two files has no settings.
    """
    found: list[dict[str, Any]] = []
    try:
        for path, section in ((root / "params" / f"{like}.yaml", "pretrain"), (root / "params.yaml", "cells")):
            found.append(read_yaml(path))
            if not isinstance(found[-1], dict) or not isinstance(found[-1].get(section), dict):
                raise ConfigError(
                    f"no section {section}", where=str(path), next_step="take the file as the project brings it"
                )
    except FileNotFoundError as error:
        known = ", ".join(sorted(path.stem for path in (root / "params").glob("*.yaml")))
        raise ConfigError(
            f"{error.filename} does not exist",
            where="--like" if known else "this folder",
            next_step=f"choose one of: {known}" if known else "run from the project's root, beside dvc.yaml",
        ) from None
    return found[0], found[1]


def profile_values(
    base: dict[str, Any],
    common: dict[str, Any],
    like: str,
    name: str,
    texts: Texts,
    table: Table | None,
    *,
    cased: bool,
    encoding: str,
    steps: int | None,
    babylm: TrainingText | None = None,
) -> dict[str, Any]:
    """Return the values of the new profile: those of ``like``, except texts, tasks and what depends on their size.

    Args:
        base: settings of the profile ``like``.
        common: settings of ``params.yaml``.
        steps: steps of pre-training; None: by the size of the text.
        babylm: the challenge's training text, whose rules decide the length of the run.
    """
    sections = list(base)
    common, base = with_method(common, base)
    is_chosen = bool((common.get("pretrain") or {}).get("objective"))  # in params.yaml, for all profiles

    def parsed(profile: dict[str, Any], tasks: list[str], where: str) -> dict[str, Any]:
        merged = {**common, "profile": name, "cells": {**common["cells"], **with_tasks(common["cells"], tasks)}}
        merged |= {key: {**(common.get(key) or {}), **value} for key, value in profile.items()}
        return parse_settings(merged, where=where).model_dump(mode="json")

    full = parsed(base, [], f"params.yaml + params/{like}.yaml")  # with the defaults of keys that neither file has
    base = {key: value for key, value in full.items() if isinstance(value, dict) and key not in ("cells", "cluster")}
    source = FilesCorpus(
        kind="files",
        name=name,
        paths=texts.patterns,
        text_field=texts.field,
        encoding=encoding,
        documents=texts.documents,
        weight=1.0,
    )
    base["corpus"] |= {"sources": [source.model_dump(mode="json")], "documents_per_file": 5000}
    if table is None:
        base["corpus"]["decontamination"] = None
    base["tokenizer"]["vocab_size"] = min(base["tokenizer"]["vocab_size"], max(MIN_ENTRIES, texts.vocabulary))
    if cased:
        base["tokenizer"]["lowercase"] = False
    if texts.keeps_marks:
        base["tokenizer"]["strip_accents"] = False
    recipe = base["pretrain"]
    tokens = texts.num_bytes / BYTES_PER_TOKEN
    if babylm:
        adapt(base, babylm)
        steps = max(10, int(EPOCHS * tokens / base["shards"]["max_length"] / recipe["batch_size"]))
    elif like in ("tiny", "books"):
        examples = min(max(PASSES * tokens / base["shards"]["max_length"], EXAMPLES[0]), EXAMPLES[1])
        steps = int(examples / recipe["batch_size"] // 100 * 100) if steps is None else steps
        # by the full run, so that a trial has its method
        if METHODS[recipe["objective"]].has_discriminator and not is_chosen:
            if examples * base["shards"]["max_length"] < RTD_TOKENS:
                recipe |= {"objective": "bert", "learning_rate": RATE}
            else:
                recipe |= {"objective": "mlm_then_rtd", "generator": "unigram", "learning_rate": RATE}
    if steps is not None:
        recipe |= {
            "num_steps": steps,
            "eval_every": max(1, steps // 10),
            "warmup_steps": min(recipe["warmup_steps"], max(1, steps // 10)),
        }
    base["tasks"] = {"source": None, "own": [str(OWN / f"{table.name}.yaml")] if table else []}
    for key in (
        "task_learning_rate",
        "task_epochs",
        "task_max_train_examples",
    ):  # the own tasks of ``like`` are not in the new profile
        base["finetune"][key] = {task: value for task, value in (base["finetune"][key] or {}).items() if task in TASKS}
    if table and like in ("tiny", "books"):
        rows_of_steps = FINETUNING_STEPS * base["finetune"]["batch_size"]
        epochs = min(math.ceil(rows_of_steps / table.rows["train"]), MOST_EPOCHS)
        if epochs > base["finetune"]["epochs"]:
            base["finetune"]["task_epochs"][table.name] = epochs
    settings = parsed(base, [table.name] if table else [], f"params/{like}.yaml with your texts")
    elsewhere = {
        key: {name for name, value in section.items() if value is not None} if isinstance(section, dict) else set()
        for key, section in common.items()
    }
    return {
        section: {key: value for key, value in settings[section].items() if key not in elsewhere.get(section, ())}
        for section in sections
    }


def header(profile: str, like: str, lines: list[str]) -> str:
    """Return the comment at the top of the profile."""
    chosen = "".join(f"# {line}\n" for line in lines)
    return (
        f"# Profile {profile}, written by `electra init` after params/{like}.yaml; every value may be changed here.\n"
        f"# Every key in a line: electra config --help-fields\n{chosen}"
    )


def reasons(texts: Texts, table: Table | None, values: dict[str, Any], usual: str) -> list[str]:
    """Return the settings chosen from the texts and the table, one line each: key, value, reason.

    Args:
        values: of the new profile.
        usual: method of the profile that it was made after.
    """
    lines = [f"corpus.sources documents: {texts.documents}: {texts.reason}"] if texts.reason else []
    names = ", ".join(f"{script.name} {script.share:.0%}" for script in texts.scripts)
    kept = next((script for script in texts.scripts if script.keeps_marks), None)
    if kept:
        word, left = kept.example
        lost = f": stripped, {word} would be {left}" if word else ""
        lines.append(f"tokenizer.strip_accents: false: the text is {names}, and marks belong to its letters{lost}")
    elif names and values["tokenizer"].get("lowercase"):
        lines.append(f"tokenizer.lowercase: true, which strips accents: the text is {names}, and has few marks")
    method = values["pretrain"].get("objective", usual)
    if method != usual and method in WHY_METHOD:
        lines.append(f"pretrain.objective: {method}, {WHY_METHOD[method]} (docs/results.md)")
        lines.append(f"pretrain.learning_rate: {RATE:g}: {WHY_RATE} (docs/own-corpus.md)")
    if table and (epochs := values["finetune"].get("task_epochs", {}).get(table.name)):
        rows = table.rows["train"]
        lines.append(f"finetune.task_epochs: {{{table.name}: {epochs:g}}}: few rows ({rows:,}) need more passes")
    return lines
