"""Folders of pre-trained weights (electra/model/pretrained.py) as the module of their method."""

from pathlib import Path

from electra.common.artifacts import verify_folder
from electra.common.errors import DataError
from electra.common.tensors import read_tensors
from electra.model.pretrained import fill, read_config
from electra.objectives.base import Objective, build_objective
from electra.objectives.electra import Electra


def load_objective(folder: Path) -> Objective:
    """Return the pre-training method's module with its weights, in evaluation mode.

    Raises:
        DataError: the folder is missing, a file is not as its manifest says, or its weights do not fit its config.
    """
    verify_folder(folder)
    facts = read_config(folder)
    objective = build_objective(facts.model, facts.vocab_size, facts.mask_id, facts.method)
    path = folder / "model.safetensors"
    fill(objective, read_tensors(path), str(path))
    return objective.eval()


def load_electra(folder: Path) -> Electra:
    """Return the same for what needs a generator and a discriminator.

    Raises:
        DataError: it was pre-trained by a method that has not both.
    """
    objective = load_objective(folder)
    if not isinstance(objective, Electra) or not objective.info.has_discriminator or objective.generator is None:
        raise DataError(
            f"pre-trained with objective {objective.method.objective}, generator {objective.method.generator}: "
            "there is no generator and discriminator",
            where=str(folder),
        )
    return objective
