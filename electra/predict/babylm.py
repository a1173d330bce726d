"""BabyLM's evaluation files: which candidate sentence of each row the weights prefer, as its pipeline writes it.

As in the backend ``mlm`` of evaluation-pipeline-2025, a candidate's score is a pseudo-log-likelihood, the sum over the
tokens of its completion, each masked in a copy of the sentence; of equal scores the first candidate's wins.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from electra.common.artifacts import read_json, read_manifest, sha256, verify_folder, write_json
from electra.common.errors import ConfigError, DataError
from electra.common.paths import Paths
from electra.kinds.regression import spearman
from electra.results.probe.scores import Probe
from electra.tasks.format import Row
from electra.tasks.matrix import read_lines

RUN = "run.json"  # which weights a folder of predictions is of
_TEXTS = 64  # sentences whose masked copies are in memory at once


class Choice(NamedTuple):
    """Candidates of one row, each a prefix and the completion that is scored after it; the first one is right.

    ``rule`` is the key of its prediction; ``ratio``, in WUG alone, the share of people who chose the first candidate,
    where none is right.
    """

    rule: str
    candidates: list[tuple[str, str]]
    ratio: float | None = None


@dataclass(frozen=True)
class Task:
    """A task of the pipeline: the fields by which its rows are recognized, and how a row gives a choice.

    Attributes:
        name: the pipeline's ``--task``, a folder in the layout of the predictions.
        choice: a row and the name of its file, without suffix, to the choice.
        writes_sentence: predictions are whole sentences, not completions.
        folder: how the name of the folder begins.
    """

    name: str
    fields: tuple[str, ...]
    choice: Callable[[Row, str], Choice]
    writes_sentence: bool = True
    folder: str = ""


def _blimp(row: Row, file: str) -> Choice:
    rule = row.get("UID", file) if "field" in row else file  # rows of BLiMP's supplement have no field
    return Choice(str(rule), [("", row["sentence_good"]), ("", row["sentence_bad"])])


def _ewok(row: Row, file: str) -> Choice:
    return Choice(row["Domain"], [(row["Context1"], " " + row[target]) for target in ("Target1", "Target2")])


def _entity_tracking(row: Row, file: str) -> Choice:
    if not isinstance(row["options"], list):
        raise TypeError
    return Choice(f"{file}_{row['numops']}_ops", [(row["input_prefix"], option) for option in row["options"]])


def _comps(row: Row, file: str) -> Choice:
    prefixes = (row["prefix_acceptable"] + " ", row["prefix_unacceptable"] + " ")
    rule = file.removeprefix("comps_").replace("-", "_")
    return Choice(rule, [(prefix, row["property_phrase"]) for prefix in prefixes])


def _wug(name: str) -> Task:
    def choice(row: Row, file: str) -> Choice:
        return Choice(name, [("", sentence) for sentence in row["sentences"].split("\t")], float(row["ratio"]))

    return Task(name, ("sentences", "ratio"), choice, folder=name)


TASKS = (
    Task("blimp", ("sentence_good", "sentence_bad"), _blimp),
    Task("ewok", ("Domain", "Context1", "Target1", "Target2"), _ewok, writes_sentence=False),
    Task("entity_tracking", ("input_prefix", "options", "numops"), _entity_tracking, writes_sentence=False),
    Task("comps", ("prefix_acceptable", "prefix_unacceptable", "property_phrase"), _comps),
    _wug("wug_adj"),
    _wug("wug_past"),
)
_NEXT = "name a folder with .jsonl files of one of BabyLM's tasks (docs/babylm.md), or one above such folders"


@dataclass(frozen=True)
class TaskFolder:
    """A folder of a task's data, such as ``blimp_fast``: its .jsonl files."""

    path: Path
    files: list[Path]
    task: Task

    @property
    def name(self) -> str:
        """Name in the layout of the predictions."""
        return self.path.absolute().stem

    def read(self) -> list[Choice]:
        """Return the choices of all rows.

        Raises:
            DataError: a file is not JSONL, or a row is not one of the task.
        """
        choices = []
        for file in self.files:
            for number, row in enumerate(read_lines(file, _NEXT), 1):
                try:
                    choice = self.task.choice(row, file.stem)
                    texts = [choice.rule, *(completion for _, completion in choice.candidates)]
                    is_valid = len(texts) > 2 and all(text.strip() for text in texts)
                    is_valid &= all(isinstance(prefix, str) for prefix, _ in choice.candidates)
                except (AttributeError, KeyError, TypeError, ValueError):
                    is_valid = False
                if not is_valid:
                    raise DataError(
                        f"is no row of {self.task.name}, which has {', '.join(self.task.fields)}",
                        where=f"{file}:{number}",
                        next_step="restore the file from the challenge's data",
                    )
                choices.append(choice)
        return choices


def find_tasks(folder: Path) -> tuple[list[TaskFolder], list[str]]:
    """Return the folder itself or those below it that hold data of :data:`TASKS`, and the names of the others.

    Raises:
        DataError: there are none.
    """
    if not folder.is_dir():
        raise DataError("is no folder", where=str(folder), next_step=_NEXT)
    if own := _task_folder(folder):
        return [own], []
    below = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    found = [one for path in below if (one := _task_folder(path))]
    others = [path.name for path in below if path not in [one.path for one in found]]
    if not found:
        names = ", ".join(task.name for task in TASKS)
        raise DataError(f"there is no data of {names} in it", where=str(folder), next_step=_NEXT)
    return found, others


def _task_folder(path: Path) -> TaskFolder | None:
    """Return the folder with the task that all its .jsonl files are of, by their first lines; None without one."""
    files, lines = sorted(path.glob("*.jsonl")), []
    for file in files:
        with open(file, "rb") as opened:
            lines.append(opened.readline(1 << 20))
    for task in TASKS:
        names = [f'"{field}"'.encode() for field in task.fields]
        if path.absolute().name.startswith(task.folder) and all(name in line for line in lines for name in names):
            return TaskFolder(path, files, task) if files else None
    return None


def write_predictions(
    paths: Paths, data: Path, name: str, device: torch.device, *, final_only: bool = False
) -> tuple[Path, list[str]]:
    """Write ``<model>/<revision>/zero_shot/mlm/<task>/<data>/predictions.json`` below ``models/exported/babylm``.

    The revisions are ``main``, the final weights, and the milestones of ``pretrain.milestones``.

    Args:
        data: folder of :func:`find_tasks`.
        name: of the model on the hub, or its folder; ``-generator`` or ``-encoder`` is added as by ``electra publish``.
        final_only: leave out the milestones.

    Returns:
        The model's folder, and lines for the user: the figure of each revision and folder, as of :func:`_predict`.

    Raises:
        ConfigError: the method trains no masked language model.
        DataError: weights or data are missing or damaged, the milestones are of another run, or the predictions
            that are there already are of other weights.
    """
    folders, others = find_tasks(data)
    choices = [folder.read() for folder in folders]
    final = sha256(_verified(paths.pretrained) / "model.safetensors")
    revisions = {"main": paths.pretrained} | ({} if final_only else _milestones(paths, final))
    probe = Probe(paths, device, bf16=False)
    if probe.objective.language_model() is None:
        raise ConfigError(
            f"objective {probe.objective.method.objective} with this generator has no masked language model",
            where=str(paths.pretrained),
            next_step="pre-train by another method, such as pretrain.objective: bert",
        )
    role = "generator" if probe.objective.generator is not None else "encoder"
    target = paths.exported("babylm") / Path(f"{name}-{role}").stem
    if (target / RUN).exists() and read_json(target / RUN)["final"] != final:
        raise DataError(
            "predictions of other weights are there already",
            where=str(target),
            next_step="move or remove this folder, or give another --name",
        )
    write_json(target / RUN, {"final": final})
    lines = [f"left out, other tasks: {', '.join(others)}"] if others else []
    for revision, weights in revisions.items():
        if revision != "main":
            probe = Probe(paths, device, bf16=False, weights=weights)
        for folder, rows in zip(folders, choices, strict=True):
            found, figure, num_cut = _predict(probe, folder.task, rows)
            write_json(target / revision / "zero_shot/mlm" / folder.task.name / folder.name / "predictions.json", found)
            cut = f"  ({num_cut} candidates are too long for the model: scored without their beginning)"
            lines.append(f"{revision:<12} {folder.name:<24} {100 * figure:.1f}{cut if num_cut else ''}")
    return target, lines


def _verified(folder: Path) -> Path:
    verify_folder(folder)
    return folder


def _milestones(paths: Paths, final: str) -> dict[str, Path]:
    facts = read_manifest(_verified(paths.milestones))
    if facts.get("final", final) != final:
        raise DataError(
            "the milestones are of another run than models/pretrained",
            where=str(paths.milestones),
            next_step="run: dvc repro pretrain",
        )
    return {name: paths.milestones / name for name in facts.get("seen", {})}


@torch.inference_mode()
def _predict(probe: Probe, task: Task, choices: list[Choice]) -> tuple[dict[str, Any], float, int]:
    """Return the predictions by rule, a figure, and the number of candidates that are longer than the model's inputs.

    The figure is the mean over the rules of the share of right choices; in WUG, the rank correlation of the first
    candidate's probability with the share of people who chose it.
    """
    room, num_cut = probe.encoder.config.max_positions - 2, 0
    texts: list[tuple[list[int], int]] = []
    for prefix, completion in (candidate for choice in choices for candidate in choice.candidates):
        encoding = probe.tokenizer.encode(prefix + completion, add_special_tokens=False)
        first = sum(end <= len(prefix) for _, end in encoding.offsets)
        excess = max(0, len(encoding.ids) - room)
        texts.append((encoding.ids[excess:], max(0, first - excess)))
        num_cut += excess > 0
    scores = iter(_scores(probe, texts))
    found: dict[str, Any] = {}
    right: dict[str, list[bool]] = {}
    ratios, probabilities = [], []
    for rule, candidates, ratio in choices:
        values = [next(scores) for _ in candidates]
        best = values.index(max(values))
        entries = found.setdefault(rule, {"predictions": []})["predictions"]
        prefix, completion = candidates[best]
        entries.append({"id": f"{rule}_{len(entries)}", "pred": prefix * task.writes_sentence + completion})
        right.setdefault(rule, []).append(best == 0)
        if ratio is not None:
            entries[-1]["prob"] = float(torch.tensor(values).softmax(0)[0])
            ratios.append(ratio)
            probabilities.append(entries[-1]["prob"])
    if ratios:
        return found, spearman(ratios, probabilities), num_cut
    return found, sum(sum(hits) / len(hits) for hits in right.values()) / len(right), num_cut


def _scores(probe: Probe, texts: list[tuple[list[int], int]]) -> list[float]:
    """Return pseudo-log-likelihoods (nats) of texts: wordpieces, and how many at the beginning are not scored.

    Equal texts are computed once: in two batches their last digits would differ, and they would not be a tie.
    """
    distinct = list(dict.fromkeys((tuple(ids), first) for ids, first in texts))
    model = probe.objective.language_model()
    assert model is not None
    encoder, head = model
    found, order = [0.0] * len(distinct), sorted(range(len(distinct)), key=lambda text: len(distinct[text][0]))
    for start in range(0, len(order), _TEXTS):
        here = [(text, *distinct[text]) for text in order[start : start + _TEXTS]]
        masked = [(text, ids, place) for text, ids, first in here for place in range(first, len(ids))]
        rows = [[probe.cls, *ids[:place], probe.mask, *ids[place + 1 :], probe.sep] for _, ids, place in masked]
        left = iter(masked)
        for hidden_BTD in probe.hidden(encoder, rows):
            part = [next(left) for _ in hidden_BTD]
            places = torch.tensor([place + 1 for *_, place in part], device=probe.device)
            numbers = torch.arange(len(part), device=probe.device)
            logits_BV = head(hidden_BTD[numbers, places][:, None])[:, 0]
            targets = torch.tensor([ids[place] for _, ids, place in part], device=probe.device)
            values = logits_BV.float().log_softmax(-1)[numbers, targets].tolist()
            for (text, *_), value in zip(part, values, strict=True):
                found[text] += value
    known = dict(zip(distinct, found, strict=True))
    return [known[tuple(ids), first] for ids, first in texts]
