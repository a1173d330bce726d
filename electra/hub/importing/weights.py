"""Shared parts of all imports: shapes, parameter names, tokenizer files, writing.

All imports use the names of ``transformers`` (modeling_electra.py); TensorFlow's are translated to them first.
"""

import json
import re
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import ValidationError
from tokenizers import Tokenizer
from torch import Tensor

from electra import config
from electra.common.artifacts import (
    MANIFEST,
    Manifest,
    building,
    read_manifest,
    refuse_inside_artefact,
    refuse_strange,
    write_manifest,
)
from electra.common.errors import ConfigError, DataError
from electra.common.paths import Paths
from electra.common.tensors import FETCH_AGAIN
from electra.hub.export.names import DISCRIMINATOR_HEAD, WORD_HEADS, embedding_names, encoder_names, imported
from electra.model.pretrained import fill, save_pretrained
from electra.model.shape import EncoderConfig
from electra.objectives.base import Objective, build_objective
from electra.objectives.electra import Electra
from electra.text.tokenizer.wordpiece import normalizer_facts, transformers_config

SEED = 1  # of weights that the source lacks
ORIGINS = {"imported_from", "resized_from"}  # keys of the manifests of folders written here
# fields in which a generator's shape must equal the one implied by the discriminator's
SHAPE_FIELDS = (
    "vocab_size", "embedding_size", "hidden_size", "num_layers", "num_heads", "intermediate_size", "max_positions",
    "num_segments", "layer_norm_eps",
)  # fmt: skip


@dataclass(frozen=True)
class Tensors:
    """Tensors of one model by the names of ``transformers``, and their origin."""

    by_name: dict[str, Tensor]
    where: str

    def take(self, name: str) -> Tensor:
        """Return one tensor.

        Raises:
            DataError: it is missing.
        """
        if name not in self.by_name:
            raise DataError(
                f"there is no tensor {name}",
                where=self.where,
                next_step="check that this is the half of an ELECTRA model (discriminator, generator) it is given as",
            )
        return self.by_name[name]

    def holds(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self.by_name)

    def sizes(self) -> dict[str, Any]:
        """Return the fields of :class:`EncoderConfig` that the tensors determine: all sizes except the number of heads.

        ``max_positions`` is left out without a table of positions.
        """
        positions = "electra.embeddings.position_embeddings.weight"
        vocab_size, embedding_size = self.take("electra.embeddings.word_embeddings.weight").shape
        numbers = [re.match(r"electra\.encoder\.layer\.(\d+)\.", name) for name in self.by_name]
        first = "electra.encoder.layer.0"
        return {
            "vocab_size": vocab_size,
            "embedding_size": embedding_size,
            "hidden_size": self.take(f"{first}.attention.self.query.weight").shape[0],
            "num_layers": 1 + max(int(number[1]) for number in numbers if number),
            "intermediate_size": self.take(f"{first}.intermediate.dense.weight").shape[0],
            **({"max_positions": len(self.by_name[positions])} if positions in self.by_name else {}),
            "num_segments": self.take("electra.embeddings.token_type_embeddings.weight").shape[0],
        }


@contextmanager
def fitting_tensors(where: Path) -> Iterator[None]:
    """Convert errors of torch and the encoder about impossible tensor shapes to a message.

    Raises:
        DataError: the tensors do not fit together.
    """
    try:
        yield
    except (ValueError, RuntimeError, IndexError, TypeError, ZeroDivisionError) as error:
        what = f"the tensors do not fit together: {error}"
        raise DataError(what, where=str(where), next_step=FETCH_AGAIN) from None


@dataclass(frozen=True)
class Half:
    """A discriminator or a generator of the source."""

    tensors: Tensors
    shape: EncoderConfig

    def embeddings(self) -> dict[str, Tensor]:
        """Return the tensors that a generator shares with its discriminator, by the names of ``transformers``."""
        names = [f"electra.{theirs}" for (theirs,) in embedding_names(self.shape).values()]
        return {name: self.tensors.take(name) for name in names}

    def discriminator_head(self) -> dict[str, Tensor] | None:
        """Return the head's tensors by the project's names; None if there is no head."""
        if not self.tensors.holds("discriminator_predictions."):
            return None
        return imported(self.tensors.take, DISCRIMINATOR_HEAD)

    def generator_head(self) -> dict[str, Tensor]:
        return imported(self.tensors.take, WORD_HEADS["Electra"])

    def encoder(self) -> dict[str, Tensor]:
        """Return the encoder's tensors, named as the parameters of :class:`electra.model.encoder.Encoder`."""
        return imported(self.tensors.take, encoder_names(self.shape), "electra.")


def model_of_pair(discriminator: Half, generator: Half | None, initializer_range: float = 0.02) -> config.Model:
    """Return the project's settings for a pair; without a generator, its size is the settings' default.

    Raises:
        ConfigError: the two do not belong together; the message names the numbers that differ.
    """
    shape = discriminator.shape
    fields: dict[str, Any] = {name: value for name, value in vars(shape).items() if name in config.Model.model_fields}
    if generator is not None:
        for name in ("hidden_size", "num_layers"):
            if getattr(generator.shape, name) > getattr(shape, name):
                raise ConfigError(
                    f"{name} of the generator is {getattr(generator.shape, name)}, larger than the discriminator's "
                    f"{getattr(shape, name)}",
                    where=generator.tensors.where,
                    next_step="check that discriminator and generator are not swapped",
                )
        # profiles write a third of the width with five digits
        fields["generator_width"] = round(generator.shape.hidden_size / shape.hidden_size, 5)
        fields["generator_depth"] = round(generator.shape.num_layers / shape.num_layers, 5)
        fields["embedding_sharing"] = _sharing(discriminator, generator)
    try:
        return config.Model(**fields, initializer_range=initializer_range)
    except ValidationError as error:
        complaints = [f"{'.'.join(map(str, e['loc']))} {e['msg']}".strip() for e in error.errors()]
        raise ConfigError("; ".join(complaints), where=discriminator.tensors.where) from None


def electra_of_pair(discriminator: Half, generator: Half | None, model: config.Model, mask_id: int) -> Electra:
    """Return the pair with its weights. Parts missing in the source are initialised as for pre-training.

    Raises:
        ConfigError: ``model`` has other shapes than the tensors.
        DataError: a tensor is missing or has the wrong shape.
    """
    vocab_size = discriminator.shape.vocab_size
    _check_shape(discriminator, EncoderConfig.discriminator(model, vocab_size), "the discriminator")
    electra = Electra(model, vocab_size, mask_id)
    electra.initialize(model.initializer_range, SEED)
    weights = {f"discriminator.{name}": tensor for name, tensor in discriminator.encoder().items()}
    missing: list[str] = []
    if (head := discriminator.discriminator_head()) is not None:
        weights |= {f"discriminator_head.{name}": tensor for name, tensor in head.items()}
    else:
        missing.append("discriminator_head.")
        print("import: there is no discriminator head; it starts from random weights")
    if generator is not None:
        _check_shape(generator, EncoderConfig.generator(model, vocab_size), "the generator")
        weights |= {f"generator.{name}": tensor for name, tensor in generator.encoder().items()}
        weights |= {f"generator_head.{name}": tensor for name, tensor in generator.generator_head().items()}
    else:
        missing += ["generator.", "generator_head."]
        print("import: there is no generator; it starts from random weights")
    drawn = {name: tensor for name, tensor in electra.named_parameters() if name.startswith(tuple(missing))}
    fill(electra, drawn | weights, discriminator.tensors.where)
    return electra


def language_model_of(half: Half, model: config.Model, mask_id: int) -> Objective:
    """Return a masked language model with its weights.

    Raises:
        DataError: a tensor is missing or has the wrong shape.
    """
    objective = build_objective(model, half.shape.vocab_size, mask_id, config.Method(objective="bert"))
    weights = {f"encoder.{name}": tensor for name, tensor in half.encoder().items()}
    weights |= {f"head.{name}": tensor for name, tensor in half.generator_head().items()}
    fill(objective, weights, half.tensors.where)
    return objective


def differing_embeddings(discriminator: Half, generator: Half) -> list[str]:
    """Return the names of the embedding tensors that differ between the halves."""
    others = generator.embeddings()
    return [name for name, ours in discriminator.embeddings().items() if not torch.equal(ours, others[name])]


def tokenizer_files(tokenizer: Tokenizer, vocabulary: list[str], *, lowercase: bool, max_length: int) -> dict[str, str]:
    """Return ``vocab.txt``, ``tokenizer.json`` and ``tokenizer_config.json`` as the tokenizer stage writes them."""
    strip_accents = normalizer_facts(tokenizer).get("strip_accents")
    facts = transformers_config(
        lowercase=lowercase,
        strip_accents=strip_accents,
        max_length=max_length,
        add_prefix_space=getattr(tokenizer.pre_tokenizer, "add_prefix_space", None),
    )
    return {
        "vocab.txt": "\n".join(vocabulary) + "\n",
        "tokenizer.json": tokenizer.to_str(pretty=True),
        "tokenizer_config.json": json.dumps(facts, indent=2, ensure_ascii=False) + "\n",
    }


def check_target(target: Path, *inputs: Path | None, origins: Set[str] = ORIGINS, allowed: Path | None = None) -> None:
    """Refuse a target folder unless it is new or an earlier output of the same command.

    Args:
        inputs: files and folders that the command reads.
        origins: keys of the manifest that identify the command's folders.
        allowed: a folder of the pipeline in which ``target`` may be nevertheless.

    Raises:
        ConfigError: the folder holds other files or an input, is inside an artefact, or is written by a stage of the
            pipeline.
    """
    refuse_strange(target)
    refuse_inside_artefact(target)
    next_step, place = "name a folder that does not exist yet", target.resolve()
    places = [path for path in Paths().taken if path != allowed]
    if any(taken.resolve() in (place, *place.parents) for taken in places):
        raise ConfigError(f"{target} is where the pipeline writes, and what it removes", next_step=next_step)
    if read := [path for path in inputs if path and place in (path.resolve(), *path.resolve().parents)]:
        what = "is what is read" if read[0].resolve() == place else f"holds {read[0]}, which is read"
        raise ConfigError(f"{target} {what}", next_step="name another folder to write")
    if not (target / MANIFEST).is_file():
        return
    facts = read_manifest(target, Manifest)
    if not origins & facts.keys():
        raise ConfigError(f"{target} is another kind of artefact, and would be lost", next_step=next_step)
    listed = {MANIFEST, *(entry["path"] for entry in facts["files"])}
    found = {path.relative_to(target).as_posix() for path in target.rglob("*") if not path.is_dir()}
    if strange := sorted(found - listed):
        raise ConfigError(
            f"{target} would be replaced, and holds what was put there later: {', '.join(strange[:3])}",
            next_step=next_step,
        )


def write_pretrained(
    target: Path, objective: Objective, model: config.Model, vocab_size: int, tokenizer: Mapping[str, str], **facts: Any
) -> None:
    """Write a folder in the project's format with its tokenizer in ``tokenizer/``, completely or not at all.

    Args:
        tokenizer: file name -> content; includes ``tokenizer.json``.
        facts: entries of the manifest about the origin.

    Raises:
        ConfigError: ``target`` holds something that would be lost; see :func:`check_target`.
    """
    check_target(target)
    weights = {name: parameter.detach() for name, parameter in objective.named_parameters()}
    with building(target) as scratch:
        folder, inner = scratch / "tokenizer", scratch / "model"
        folder.mkdir()
        for name, content in tokenizer.items():
            (folder / name).write_text(content, encoding="utf-8", newline="")
        # written by save_pretrained, then moved up beside the tokenizer
        save_pretrained(inner, weights, model, vocab_size, folder, objective.method)
        facts = {key: value for key, value in read_manifest(inner).items() if key != "files"} | facts
        (inner / MANIFEST).unlink()
        for path in inner.iterdir():
            path.rename(scratch / path.name)
        inner.rmdir()
        write_manifest(scratch, **facts)


def _sharing(discriminator: Half, generator: Half) -> Literal["none", "embeddings", "all"]:
    """Return the value of ``model.embedding_sharing`` that describes the two halves."""
    if generator.shape == discriminator.shape:
        ours, theirs = discriminator.encoder(), generator.encoder()
        if all(torch.equal(ours[name], theirs[name]) for name in ours):
            return "all"
    shape = generator.shape
    if differing_embeddings(discriminator, generator) and shape.embedding_size == shape.hidden_size:
        return "none"
    return "embeddings"


def _check_shape(half: Half, expected: EncoderConfig, name: str) -> None:
    differences = [
        f"{field} of {name} is {getattr(half.shape, field)}, expected {getattr(expected, field)}"
        for field in SHAPE_FIELDS
        if getattr(half.shape, field) != getattr(expected, field)
    ]
    if differences:
        raise ConfigError(
            "; ".join(differences),
            where=half.tensors.where,
            next_step="discriminator and generator must come from one pre-training run (and fit the settings given)",
        )
