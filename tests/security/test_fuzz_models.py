"""External model folders with any content are read as weights or end in a documented error."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from safetensors.torch import load_file, save
from transformers import ElectraConfig, ElectraForPreTraining

from electra.common.errors import ConfigError, DataError
from electra.config.text import SPECIAL_TOKENS
from electra.finetune.encoders import EncoderSource, load_transformers_encoder
from electra.hub.importing.huggingface import import_huggingface
from electra.text.tokenizer.wordpiece import make_tokenizer
from tests.foreign_encoders import write_encoder
from tests.security.fuzzing import fuzz, json_bytes, mutated, only_documented

FEW = 15  # of each file: a model is built from every example that can be read
VOCABULARY = [*SPECIAL_TOKENS, *(f"word{number}" for number in range(15))]
SHAPE = {
    "vocab_size": 20, "embedding_size": 8, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 16, "max_position_embeddings": 8,
}  # fmt: skip


@pytest.fixture(scope="module")
def electra_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("electra")
    torch.manual_seed(1)
    ElectraForPreTraining(ElectraConfig(**SHAPE)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    make_tokenizer(VOCABULARY, lowercase=True).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "strip_accents": None}))
    return folder


@pytest.fixture(scope="module")
def bert_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("bert"), "bert")


FILES = ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]
Check = Callable[[Path], Any]


@pytest.fixture
def quiet() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        yield


def examples(folder: Path, name: str) -> st.SearchStrategy[bytes]:
    content = (folder / name).read_bytes()
    if name.endswith(".json"):
        return json_bytes(json.loads(content))
    tensors = load_file(folder / name)

    def other(edit: tuple[int, int]) -> bytes:
        key = sorted(tensors)[edit[0] % len(tensors)]
        changed = {
            0: {k: v for k, v in tensors.items() if k != key},
            1: {**tensors, key: tensors[key].flatten()[:1].clone()},
            2: {**tensors, key: tensors[key].half()},
            3: {**tensors, key: torch.zeros(2, 2, 2)},
            4: {**tensors, f"more.{key}": tensors[key].clone()},
            5: {**tensors, key: torch.zeros_like(tensors[key], dtype=torch.int64)},
        }
        return save(changed[edit[1]], metadata={"format": "pt"})

    return st.tuples(st.integers(0, 1000), st.integers(0, 5)).map(other) | mutated(content)


def tried(folder: Path, name: str, tmp_path: Path, read: Check) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    read(copy)  # what is changed is a valid folder

    def check(data: bytes) -> None:
        (copy / name).write_bytes(data)
        only_documented(lambda: read(copy))

    fuzz(examples(folder, name), check, FEW)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", [*FILES, "vocab.txt"])
def test_folders_to_import(name: str, electra_folder: Path, tmp_path: Path) -> None:
    def read(folder: Path) -> None:
        import_huggingface(folder, None, tmp_path / "imported")

    if name == "vocab.txt":
        alone = tmp_path / "alone"
        shutil.copytree(electra_folder, alone)
        (alone / "tokenizer.json").unlink()
        electra_folder = alone
        fuzzed = mutated((alone / name).read_bytes())

        def check(data: bytes) -> None:
            (alone / name).write_bytes(data)
            only_documented(lambda: read(alone))

        fuzz(fuzzed, check, FEW)
        return
    tried(electra_folder, name, tmp_path, read)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("name", FILES)
def test_encoders_of_other_makes(name: str, bert_folder: Path, tmp_path: Path) -> None:
    tried(bert_folder, name, tmp_path, lambda folder: load_transformers_encoder(EncoderSource.named(folder, "e"), 16))


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("config.json", b"null", "not have the expected content"),
        ("config.json", b'{"model_type": "electra", "num_attention_heads": "2"}', "num_attention_heads"),
        ("tokenizer.json", b"", "the tokenizer cannot be read"),
        ("tokenizer_config.json", b"null", "not have the expected content"),
        ("model.safetensors", None, "the tensors do not fit together"),
    ],
)
def test_folders_that_a_fuzzer_made(
    name: str, data: bytes | None, said: str, electra_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(electra_folder, tmp_path / "copy")
    if data is None:  # a table of one dimension
        tensors = load_file(folder / name)
        key = "electra.embeddings.word_embeddings.weight"
        data = save({**tensors, key: tensors[key].flatten()[:1].clone()}, metadata={"format": "pt"})
    (folder / name).write_bytes(data)
    with pytest.raises(DataError, match=said):
        import_huggingface(folder, None, tmp_path / "imported")


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("is_said", [True, False])
def test_a_folder_without_its_table_of_positions(is_said: bool, electra_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(electra_folder, tmp_path / "copy")
    tensors = load_file(folder / "model.safetensors")
    del tensors["electra.embeddings.position_embeddings.weight"]
    (folder / "model.safetensors").write_bytes(save(tensors, metadata={"format": "pt"}))
    if not is_said:
        facts = json.loads((folder / "config.json").read_text())
        del facts["max_position_embeddings"]
        (folder / "config.json").write_text(json.dumps(facts))
    with pytest.raises(DataError, match="max_positions 8 but the tensors have none" if is_said else "position"):
        import_huggingface(folder, None, tmp_path / "imported")


@pytest.mark.usefixtures("quiet")
def test_an_encoders_config_that_is_null(bert_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(bert_folder, tmp_path / "copy")
    (folder / "config.json").write_text("null")
    with pytest.raises(ConfigError, match="transformers cannot load it: TypeError"):
        load_transformers_encoder(EncoderSource.named(folder, "e"), 16)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("layers", [101, 2**40])
def test_an_encoders_config_with_more_layers_than_tensors(layers: int, bert_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(bert_folder, tmp_path / "copy")
    facts = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**facts, "num_hidden_layers": layers}))
    with pytest.raises(ConfigError, match=f"num_hidden_layers = {layers:,}, but the weights have"):
        load_transformers_encoder(EncoderSource.named(folder, "e"), 16)
