"""The export stage: discriminator and generator as folders that ``transformers`` loads."""

import shutil
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from electra.artifacts import building, write_json, write_manifest, write_text
from electra.config import Settings
from electra.model.encoder import EncoderConfig
from electra.model.huggingface import discriminator_weights, generator_weights, huggingface_config
from electra.model.pretrained import load_electra, special_token_ids
from electra.paths import Paths

TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")


def export_model(settings: Settings, paths: Paths) -> None:
    """Write ``models/export/{discriminator,generator}``: config, weights, tokenizer and model card.

    Raises:
        DataError: there is no pre-trained model, or its weights do not fit its config.
    """
    from electra.report.model_card import model_card

    electra = load_electra(paths.pretrained)
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

    with building(paths.export) as scratch:
        write(
            scratch / "discriminator",
            discriminator_weights(electra),
            electra.discriminator.config,
            "ElectraForPreTraining",
        )
        write(scratch / "generator", generator_weights(electra), electra.generator.config, "ElectraForMaskedLM")
        write_manifest(scratch)
    print(f"export: {paths.export}/discriminator and /generator, loadable with transformers' from_pretrained")
