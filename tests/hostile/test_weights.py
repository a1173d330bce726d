"""Weights are checked by every loader: numbers of a floating type, finite, readable, of the right shapes."""

import io
import json
import pickle
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import ElectraConfig, ElectraForPreTraining

from electra.common.artifacts import write_manifest
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.common.tensors import LARGEST, check_tensors, read_tensors
from electra.config import Method, Model, Pretrain
from electra.config.text import SPECIAL_TOKENS
from electra.finetune.encoders import EncoderSource, load_transformers_encoder
from electra.finetune.features import Vocabulary
from electra.finetune.model import TaskModel
from electra.finetune.saved import load_model, save_model
from electra.hub.importing.huggingface import import_huggingface
from electra.hub.importing.tensorflow import import_tensorflow
from electra.model.encoder import Encoder
from electra.model.pretrained import load_encoder, save_pretrained
from electra.model.shape import EncoderConfig
from electra.objectives.base import build_objective
from electra.objectives.saved import load_objective
from electra.predict.run import predict_file
from electra.pretrain.checkpoint import Checkpoints
from electra.pretrain.inputs import load_initial_weights
from electra.tasks.catalogue import TASKS
from electra.text.tokenizer.wordpiece import make_tokenizer
from tests.fixtures import LABELLED
from tests.foreign_encoders import write_encoder
from tests.small_tasks import make_settings

VOCABULARY = [*SPECIAL_TOKENS, *(f"word{number}" for number in range(15))]
TINY = Model(
    num_layers=1, hidden_size=16, num_heads=2, intermediate_size=32, embedding_size=8, generator_width=0.5,
    max_positions=16, initializer_range=0.01,
)  # fmt: skip
SHAPE = {
    "vocab_size": 20, "embedding_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 16, "max_position_embeddings": 8,
}  # fmt: skip


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        yield


def write_tokenizer(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    make_tokenizer(VOCABULARY, lowercase=True).save(str(folder / "tokenizer.json"))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return folder


def pretrained(folder: Path) -> None:
    objective = build_objective(TINY, len(VOCABULARY), 4, Method()).initialize(0.02, seed=1)
    weights = {name: parameter.detach() for name, parameter in objective.named_parameters()}
    save_pretrained(folder, weights, TINY, len(VOCABULARY), write_tokenizer(folder.parent / "tokenizer"))


def fine_tuned(folder: Path) -> None:
    vocabulary = Vocabulary.read(write_tokenizer(folder) / "tokenizer.json")
    encoder = Encoder(EncoderConfig.discriminator(TINY, len(VOCABULARY)))
    model = TaskModel(TASKS["CoLA"], encoder, torch.Generator(), vocabulary.inputs.layout)
    for parameter in model.parameters():
        parameter.data.normal_()
    save_model(folder, model, TASKS["CoLA"], vocabulary, make_settings(LABELLED, ["CoLA"]).finetune)


def electra_folder(folder: Path) -> None:
    ElectraForPreTraining(ElectraConfig(**SHAPE)).save_pretrained(write_tokenizer(folder))


def bin_folder(folder: Path) -> None:
    electra_folder(folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def start(folder: Path) -> None:
    recipe = make_settings(LABELLED, ["CoLA"]).pretrain.model_copy(
        update={"initialize_from": str(folder), **Method().model_dump()}
    )
    assert isinstance(recipe, Pretrain)
    load_initial_weights(
        build_objective(TINY, len(VOCABULARY), 4, Method()),
        recipe,
        SimpleNamespace(tokenizer=folder.parent / "tokenizer"),
    )  # type: ignore[arg-type]


# what writes a folder, what reads it, its file of weights, and a tensor of them
Loader = tuple[Callable[[Path], Any], Callable[[Path], Any], str, str]
TABLE = "embeddings.word_embeddings.weight"
OURS = "discriminator.layers.0.attention.qkv.weight"
LOADERS: dict[str, Loader] = {
    "import-huggingface": (
        electra_folder,
        lambda folder: import_huggingface(folder, None, folder.parent / "imported"),
        "model.safetensors",
        f"electra.{TABLE}",
    ),
    "import-huggingface, a pickle of tensors": (
        bin_folder,
        lambda folder: import_huggingface(folder, None, folder.parent / "imported"),
        "pytorch_model.bin",
        f"electra.{TABLE}",
    ),
    "finetune --encoder": (
        lambda folder: write_encoder(folder, "bert"),
        lambda folder: load_transformers_encoder(EncoderSource.named(folder, "e"), 16),
        "model.safetensors",
        TABLE,
    ),
    "finetune": (pretrained, load_encoder, "model.safetensors", OURS),
    "probe, score, resize and export": (pretrained, load_objective, "model.safetensors", OURS),
    "initialize_from": (pretrained, start, "model.safetensors", OURS),
    "predict": (fine_tuned, load_model, "model.safetensors", "encoder.layers.0.attention.qkv.weight"),
}


def spoiled(value: float) -> Callable[[Tensor], Tensor]:
    def change(tensor: Tensor) -> Tensor:
        changed = tensor.double() if value == 1e300 else tensor.clone()
        changed.flatten()[-1] = value
        return changed

    return change


DAMAGE: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "NaN": (spoiled(float("nan")), "NaN"),
    "infinite": (spoiled(float("inf")), "inf"),
    "minus infinite": (spoiled(float("-inf")), "-inf"),
    "1e300": (spoiled(1e300), "inf|1e[+]300"),
    "1e30": (spoiled(-1e30), "-1e[+]30"),
    "integers": (lambda tensor: (100 * tensor).long(), "type (int64|I64)"),
    "booleans": (lambda tensor: tensor > 0, "type (bool|BOOL)"),
    "complex": (lambda tensor: tensor.to(torch.complex64), "type (complex64|C64)"),
    "another shape": (lambda tensor: tensor[:, :-1].clone(), ""),
}


def written(loader: str, folder: Path) -> tuple[Callable[[Path], Any], Path, str]:
    """A folder that the loader reads, its file of weights, and the tensor to be spoiled."""
    write, read, file, name = LOADERS[loader]
    write(folder)
    read(folder)
    return read, folder / file, name


def refused(read: Callable[[Path], Any], path: Path) -> str:
    if (path.parent / "manifest.json").is_file():  # a folder whose writer made the damage itself
        write_manifest(path.parent)
    with pytest.raises(DataError) as caught:
        read(path.parent)
    assert caught.value.exit_code == 3 and caught.value.next_step
    assert str(path.parent) in str(caught.value.where)
    return caught.value.what


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("loader", LOADERS)
def test_weights_that_are_none_are_refused_by_name(loader: str, damage: str, tmp_path: Path) -> None:
    read, path, name = written(loader, tmp_path / "model")
    change, said = DAMAGE[damage]
    tensors = read_tensors(path)
    tensors[name] = change(tensors[name])
    if path.suffix == ".bin":
        torch.save(tensors, path)
    else:
        save_file(tensors, path, metadata={"format": "pt"})
    message = refused(read, path)
    if damage != "another shape":
        assert name in message
        assert re.search(said, message)


CONTENT: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda content: b"",
    "cut short": lambda content: content[: len(content) // 2],
    "a pickle": lambda content: pickle.dumps({"a": 1}),
    "text": lambda content: b"not a model\n" * 100,
    "a header of 2^63 bytes": lambda content: b"\xff" * 8 + content[8:],
    "a header that is a list": lambda content: (2).to_bytes(8, "little") + b"[]",
    "a header of nothing": lambda content: (2).to_bytes(8, "little") + b"{}",
}


@pytest.mark.parametrize("content", CONTENT)
@pytest.mark.parametrize("loader", LOADERS)
def test_a_file_of_weights_that_cannot_be_read_is_named(loader: str, content: str, tmp_path: Path) -> None:
    read, path, _ = written(loader, tmp_path / "model")
    path.write_bytes(CONTENT[content](path.read_bytes()))
    message = refused(read, path)
    assert "trust" not in message and "weights_only" not in message
    if content == "a pickle" and path.suffix == ".safetensors":
        assert "this is a pickle" in message


def compressed_archive(folder: Path) -> bytes:
    file = io.BytesIO()
    torch.save({"a": torch.zeros(1 << 20)}, file)
    packed = io.BytesIO()
    with zipfile.ZipFile(file) as before, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as after:
        for entry in before.infolist():
            after.writestr(entry.filename, before.read(entry))
    return packed.getvalue()


@pytest.mark.parametrize(
    "value",
    [
        [1, 2],
        torch.zeros(3),
        None,
        {1: torch.zeros(3)},
        {"a": torch.zeros(1).expand(1 << 40)},
        {"a": torch.zeros(3).to_sparse()},
        {"a": torch.zeros(3, device="meta")},
        {"state_dict": {"a": torch.zeros(3)}},
        compressed_archive,
    ],
    ids=["list", "tensor", "nothing", "numbers", "one number 2^40 times", "sparse", "meta", "nested", "compressed"],
)
def test_a_bin_file_of_odd_contents_is_refused(value: Any, tmp_path: Path) -> None:
    electra_folder(folder := tmp_path / "model")
    (folder / "model.safetensors").unlink()
    if callable(value):
        (folder / "pytorch_model.bin").write_bytes(value(folder))
    else:
        torch.save(value, folder / "pytorch_model.bin")
    with pytest.raises(DataError) as caught:
        import_huggingface(folder, None, tmp_path / "imported")
    assert str(folder) in str(caught.value)


def test_whole_numbers_that_are_no_weights_may_stand_beside_them(tmp_path: Path) -> None:
    """Older versions of transformers saved the numbers of the positions."""
    for loader in ("import-huggingface", "finetune --encoder"):
        read, path, _ = written(loader, tmp_path / loader.split()[0])
        tensors = load_file(path)
        prefix = "electra." if loader == "import-huggingface" else ""
        tensors[f"{prefix}embeddings.position_ids"] = torch.arange(8)[None]
        save_file(tensors, path, metadata={"format": "pt"})
        read(path.parent)


def test_a_checkpoint_that_is_no_weights_gives_way_to_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = Checkpoints(tmp_path, 2)
    checkpoints.save(2, {"w": torch.ones(2)}, {"m": torch.ones(2)}, {})
    checkpoints.save(4, {"w": torch.ones(2)}, {"m": torch.full((2,), float("nan"))}, {})
    found = checkpoints.load_latest()
    assert found is not None and found[0]["step"] == 2
    assert "m holds NaN" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["NaN", "integers"])
def test_variables_of_tensorflow_are_checked(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change, said = DAMAGE[damage]
    value = change(torch.zeros(2, 2)).numpy()
    reader = SimpleNamespace(get_variable_to_shape_map=lambda: {"electra/x": [2, 2]}, get_tensor=lambda _: value)
    module = SimpleNamespace(
        train=SimpleNamespace(load_checkpoint=lambda _: reader), errors=SimpleNamespace(OpError=OSError)
    )
    monkeypatch.setitem(sys.modules, "tensorflow", module)
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    with pytest.raises(DataError, match="electra/x"):
        import_tensorflow("model", tmp_path / "vocab.txt", tmp_path / "target")


def test_numbers_are_checked_without_a_copy_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass over each tensor, whatever its size; half precision as it is."""
    for name in ("float", "isfinite", "abs", "double"):
        monkeypatch.setattr(Tensor, name, lambda self: pytest.fail("the tensor was copied"))
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        check_tensors({"a": torch.ones(3, 4, dtype=dtype), "none": torch.ones(0, dtype=dtype)}, "x")
    check_tensors({"a": torch.tensor([-LARGEST / 2, LARGEST / 2])}, "x")


def test_an_encoders_config_of_another_shape_says_which(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "bert", "bert")
    facts = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**facts, "intermediate_size": 48}))
    with pytest.raises(DataError, match=r"bias: \(32,\) in the weights, \(48,\) by config.json"):
        load_transformers_encoder(EncoderSource.named(folder, "e"), 16)


def test_outputs_that_are_no_numbers_are_not_written(tmp_path: Path) -> None:
    """Finite weights may be so large that their products are not: NaN is no JSON."""
    fine_tuned(folder := tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    save_file({name: 1e18 * torch.randn_like(value) for name, value in tensors.items()}, folder / "model.safetensors")
    (tmp_path / "in.txt").write_text("word1 word2\n")
    settings = make_settings(LABELLED, ["CoLA"])
    with pytest.raises(DataError, match="outputs are NaN"):
        predict_file(settings.cluster, Paths(tmp_path), str(folder), tmp_path / "in.txt", tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()
