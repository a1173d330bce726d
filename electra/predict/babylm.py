"""BabyLM's evaluation files: the sentence of each minimal pair that the weights prefer, as its pipeline writes it.

As in the backend ``mlm`` of evaluation-pipeline-2025, a sentence's score is its pseudo-log-likelihood, the sum over its
tokens, each masked in a copy; of two equal scores the grammatical sentence's wins.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from electra.common.artifacts import read_json, read_manifest, sha256, verify_folder, write_json
from electra.common.errors import ConfigError, DataError
from electra.common.paths import Paths
from electra.results.probe.scores import Probe, read_pairs
from electra.tasks.matrix import read_lines

RUN = "run.json"  # which weights a folder of predictions is of
_NEXT = "name a folder with .jsonl files of sentence_good and sentence_bad, or one above such folders"


@dataclass(frozen=True)
class PairFolder:
    """A folder of minimal pairs, such as ``blimp_fast``: its .jsonl files."""

    path: Path
    files: list[Path]

    @property
    def name(self) -> str:
        """Name in the layout of the predictions."""
        return self.path.absolute().stem


def find_pairs(folder: Path) -> tuple[list[PairFolder], list[str]]:
    """Return the folder itself or those below it that hold minimal pairs, and the names of those with other files.

    Raises:
        DataError: there are no minimal pairs.
    """
    if not folder.is_dir():
        raise DataError("is no folder", where=str(folder), next_step=_NEXT)
    if own := _pair_files(folder):
        return [PairFolder(folder, own)], []
    below = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    found = [PairFolder(path, files) for path in below if (files := _pair_files(path))]
    others = [path.name for path in below if path not in [one.path for one in found]]
    if not found:
        raise DataError("there are no minimal pairs in it", where=str(folder), next_step=_NEXT)
    return found, others


def _pair_files(folder: Path) -> list[Path]:
    """Return the .jsonl files of a folder; none where one of them is of another task."""
    files = sorted(folder.glob("*.jsonl"))
    return files if all(map(_has_pairs, files)) else []


def _has_pairs(file: Path) -> bool:
    with open(file, "rb") as opened:
        return b'"sentence_good"' in opened.readline(1 << 20)


def write_predictions(
    paths: Paths, data: Path, name: str, device: torch.device, *, final_only: bool = False
) -> tuple[Path, list[str]]:
    """Write ``<model>/<revision>/zero_shot/mlm/blimp/<data>/predictions.json`` below ``models/exported/babylm``.

    The revisions are ``main``, the final weights, and the milestones of ``pretrain.milestones``.

    Args:
        data: folder of :func:`find_pairs`.
        name: of the model on the hub, or its folder; ``-generator`` or ``-encoder`` is added as by ``electra publish``.
        final_only: leave out the milestones.

    Returns:
        The model's folder, and lines for the user: the mean accuracy over the rules of each folder and revision.

    Raises:
        ConfigError: the method trains no masked language model.
        DataError: weights or pairs are missing or damaged, the milestones are of another run, or the predictions
            that are there already are of other weights.
    """
    folders, others = find_pairs(data)
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
    lines = [f"left out, other tasks than minimal pairs: {', '.join(others)}"] if others else []
    for revision, weights in revisions.items():
        if revision != "main":
            probe = Probe(paths, device, bf16=False, weights=weights)
        for folder in folders:
            predicted = _predict(probe, folder.files)
            write_json(target / revision / "zero_shot/mlm/blimp" / folder.name / "predictions.json", predicted[0])
            lines.append(f"{revision:<12} {folder.name:<24} {100 * predicted[1]:.1f}")
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
def _predict(probe: Probe, files: list[Path]) -> tuple[dict[str, dict[str, list[dict[str, str]]]], float]:
    """Return the preferred sentences by rule, and the mean over the rules of the share of grammatical ones.

    As in the pipeline, the rule is the file's name for rows without ``field`` (BLiMP's supplement).
    """
    found: dict[str, dict[str, list[dict[str, str]]]] = {}
    right: dict[str, list[bool]] = {}
    for file in files:
        pairs, rows = read_pairs([file]), read_lines(file, _NEXT)
        texts = [pair[side] for side in ("sentence_good", "sentence_bad") for pair in pairs]
        scores = probe.masked([probe.ids(text) for text in texts]) or []
        for number, (pair, row) in enumerate(zip(pairs, rows, strict=True)):
            rule = pair["UID"] if "field" in row else file.stem
            is_right = scores[number] >= scores[len(pairs) + number]
            entries = found.setdefault(rule, {"predictions": []})["predictions"]
            chosen = pair["sentence_good" if is_right else "sentence_bad"]
            entries.append({"id": f"{rule}_{len(entries)}", "pred": chosen})
            right.setdefault(rule, []).append(is_right)
    return found, sum(sum(hits) / len(hits) for hits in right.values()) / len(right)
