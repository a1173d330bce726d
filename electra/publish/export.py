"""The export stage: discriminator and generator as folders that ``transformers`` loads."""

import shutil
from pathlib import Path
from typing import cast

from safetensors.torch import save_file
from torch import Tensor

from electra.common.artifacts import building, write_json, write_manifest, write_text
from electra.common.paths import Paths
from electra.config import Settings
from electra.model.generator import WithGenerator
from electra.model.heads import DiscriminatorHead, VocabularyHead
from electra.model.pretrained import load_objective, special_token_ids
from electra.model.shape import EncoderConfig
from electra.publish.huggingface import discriminator_weights, huggingface_config, masked_language_model_weights

TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")


def export_model(settings: Settings, paths: Paths) -> None:
    """Write ``models/export/{discriminator,generator}``: config, weights, tokenizer and model card.

    A method without a discriminator has ``encoder`` instead, one without a trained generator has no ``generator``.

    Raises:
        DataError: there is no pre-trained model, or its weights do not fit its config.
    """
    from electra.publish.model_card import model_card

    objective = load_objective(paths.pretrained)
    pad_id = special_token_ids(paths.tokenizer)[0]
    card = model_card(settings, paths)

    def write(folder: Path, weights: dict[str, Tensor], shape: EncoderConfig, architecture: str) -> None:
        folder.mkdir()
        tensors = {name: tensor.detach().contiguous().clone() for name, tensor in weights.items()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        write_json(
            folder / "config.json",
            huggingface_config(shape, architecture, settings.model.initializer_range, pad_id),
        )
        for name in TOKENIZER_FILES:
            shutil.copyfile(paths.tokenizer / name, folder / name)
        write_text(folder / "README.md", card)

    encoder = objective.encoder_to_publish()
    with building(paths.export) as scratch:
        main = scratch / objective.main
        if isinstance(head := getattr(objective, "discriminator_head", None), DiscriminatorHead):
            write(main, discriminator_weights(encoder, head), encoder.config, "ElectraForPreTraining")
        else:
            weights = masked_language_model_weights(encoder, cast(VocabularyHead, objective.head))
            write(main, weights, encoder.config, "ElectraForMaskedLM")
        if isinstance(objective, WithGenerator) and objective.generator is not None:
            generator, generator_head = objective.generator, cast(VocabularyHead, objective.generator_head)
            weights = masked_language_model_weights(generator, generator_head)
            write(scratch / "generator", weights, generator.config, "ElectraForMaskedLM")
        folders = ", ".join(sorted(path.name for path in scratch.iterdir()))
        write_manifest(scratch)
    print(f"export: {paths.export}: {folders}, loadable with transformers' from_pretrained")
