"""Checkpoints by the variable names of google-research/electra come in whole, kernels transposed."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from electra.common.artifacts import read_json
from electra.common.errors import ConfigError, DataError
from electra.config import Model
from electra.config.text import SPECIAL_TOKENS
from electra.hub.importing.tensorflow import import_tensorflow, split_variables
from electra.model.encoder import Encoder
from electra.objectives.electra import Electra
from electra.objectives.saved import load_electra

needs_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="tensorflow is not installed (pip install tensorflow-cpu)"
)
VOCABULARY = [*SPECIAL_TOKENS, *(f"word{number}" for number in range(35))]
TOKENS = torch.randint(5, 40, (3, 12), generator=torch.Generator().manual_seed(0))
SEGMENTS = (torch.arange(12) >= 6).long().expand(3, -1)
# two heads of 64, so that a wrong number of heads or a swapped pair of square kernels changes the logits
SHAPE = Model(
    num_layers=2, hidden_size=128, num_heads=2, intermediate_size=512, embedding_size=32, generator_width=0.5,
    generator_depth=0.5, max_positions=24,
)  # fmt: skip


def random_electra(model: Model) -> Electra:
    """All parameters away from their start."""
    torch.manual_seed(1)
    electra = Electra(model, vocab_size=40, mask_id=4)
    electra.initialize(0.2, seed=1)
    with torch.no_grad():
        for parameter in electra.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return electra.eval()


def dense(name: str, weight: Tensor, bias: Tensor) -> Iterator[tuple[str, Tensor]]:
    yield f"{name}/kernel", weight.T
    yield f"{name}/bias", bias


def norm(name: str, module: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield f"{name}/LayerNorm/gamma", module.weight
    yield f"{name}/LayerNorm/beta", module.bias


def embedding_variables(scope: str, encoder: Encoder) -> Iterator[tuple[str, Tensor]]:
    embeddings = encoder.embeddings
    yield f"{scope}/embeddings/word_embeddings", embeddings.word.weight
    yield f"{scope}/embeddings/position_embeddings", embeddings.position.weight
    yield f"{scope}/embeddings/token_type_embeddings", embeddings.segment.weight
    yield from norm(f"{scope}/embeddings", embeddings.norm)


def layer_variables(scope: str, encoder: Encoder) -> Iterator[tuple[str, Tensor]]:
    if isinstance(encoder.projection, torch.nn.Linear):
        yield from dense(f"{scope}/embeddings_project", encoder.projection.weight, encoder.projection.bias)
    for number, layer in enumerate(encoder.layers):
        place, attention = f"{scope}/encoder/layer_{number}", layer.attention
        weights, biases = attention.qkv.weight.chunk(3), attention.qkv.bias.chunk(3)
        for part, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
            yield from dense(f"{place}/attention/self/{part}", weight, bias)
        yield from dense(f"{place}/attention/output/dense", attention.output.weight, attention.output.bias)
        yield from norm(f"{place}/attention/output", layer.attention_norm)
        yield from dense(f"{place}/intermediate/dense", layer.feed_forward_in.weight, layer.feed_forward_in.bias)
        yield from dense(f"{place}/output/dense", layer.feed_forward_out.weight, layer.feed_forward_out.bias)
        yield from norm(f"{place}/output", layer.feed_forward_norm)


def variables(electra: Electra) -> dict[str, Tensor]:
    """The checkpoint that google-research/electra would write of this pair, optimizer slots included."""
    made = dict(embedding_variables("electra", electra.discriminator))
    made |= dict(layer_variables("electra", electra.discriminator))
    assert electra.generator is not None and electra.generator_head is not None
    if electra.generator is not electra.discriminator:
        made |= dict(layer_variables("generator", electra.generator))
    if electra.generator.embeddings is not electra.discriminator.embeddings:
        made |= dict(embedding_variables("generator", electra.generator))
    for name, layer in (
        ("dense", electra.discriminator_head.transform),
        ("dense_1", electra.discriminator_head.output),
    ):
        made |= dict(dense(f"discriminator_predictions/{name}", layer.weight, layer.bias))
    head = electra.generator_head
    made |= dict(dense("generator_predictions/dense", head.transform.weight, head.transform.bias))
    made |= dict(norm("generator_predictions", head.norm)) | {"generator_predictions/output_bias": head.bias}
    slots = {
        f"{name}/{slot}": torch.ones_like(tensor) for name, tensor in made.items() for slot in ("adam_m", "adam_v")
    }
    return made | slots | {"global_step": torch.tensor(1000)}


Write = Callable[[dict[str, Tensor]], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes variables as a checkpoint; returns its prefix."""

    def save(tensors: dict[str, Tensor]) -> str:
        import tensorflow

        prefix = str(tmp_path / "model.ckpt-1000")
        tensorflow.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=[np.ascontiguousarray(tensor.detach().numpy()) for tensor in tensors.values()],
        )
        return prefix

    return save


@pytest.fixture
def vocab_file(tmp_path: Path) -> Path:
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return tmp_path / "vocab.txt"


@needs_tensorflow
@pytest.mark.parametrize(
    "model",
    [
        SHAPE,
        SHAPE.model_copy(update={"embedding_size": 128}),
        SHAPE.model_copy(update={"embedding_sharing": "none"}),
        SHAPE.model_copy(update={"embedding_sharing": "all", "generator_width": 1.0, "generator_depth": 1.0}),
    ],
    ids=["projected", "unprojected", "untied embeddings", "tied"],
)
@torch.no_grad()
def test_every_tensor_arrives_and_logits_are_equal(
    model: Model, write: Write, vocab_file: Path, tmp_path: Path
) -> None:
    electra = random_electra(model)
    import_tensorflow(write(variables(electra)), vocab_file, tmp_path / "ours")
    ours = load_electra(tmp_path / "ours")
    assert Model(**read_json(tmp_path / "ours/config.json")["model"]) == model
    expected = dict(electra.named_parameters())
    found = dict(ours.named_parameters())
    assert found.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []

    logits = [m.discriminator_head(m.discriminator(TOKENS, SEGMENTS)) for m in (ours, electra)]
    assert torch.equal(*logits)
    states = [
        m.generator_head(m.generator(TOKENS, SEGMENTS)) for m in (ours, electra) if m.generator and m.generator_head
    ]
    assert len(states) == 2 and torch.equal(*states)
    assert (tmp_path / "ours/tokenizer/vocab.txt").read_text().split() == VOCABULARY


@needs_tensorflow
def test_a_checkpoint_without_generator_gets_a_random_one(
    write: Write, vocab_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    electra = random_electra(SHAPE)
    kept = {n: t for n, t in variables(electra).items() if not n.startswith(("generator", "discriminator_predictions"))}
    import_tensorflow(write(kept | {"task_specific/cola/logits/bias": torch.zeros(2)}), vocab_file, tmp_path / "ours")
    printed = capsys.readouterr().out
    assert "no generator" in printed and "no discriminator head" in printed
    found, expected = load_electra(tmp_path / "ours").discriminator, electra.discriminator
    assert all(torch.equal(a, b) for a, b in zip(found.parameters(), expected.parameters(), strict=True))


@needs_tensorflow
def test_settings_given_must_fit_and_say_what_tensors_cannot(write: Write, vocab_file: Path, tmp_path: Path) -> None:
    prefix = write(variables(random_electra(SHAPE)))
    asked = SHAPE.model_copy(update={"num_heads": 4, "dropout": 0.0, "layer_norm_eps": 1e-6})
    import_tensorflow(prefix, vocab_file, tmp_path / "ours", asked)
    assert Model(**read_json(tmp_path / "ours/config.json")["model"]) == asked
    with pytest.raises(ConfigError, match=r"hidden_size of the generator is 64, expected 32"):
        import_tensorflow(prefix, vocab_file, tmp_path / "other", SHAPE.model_copy(update={"generator_width": 0.25}))
    with pytest.raises(ConfigError, match=r"num_layers of the discriminator is 2, expected 3"):
        import_tensorflow(prefix, vocab_file, tmp_path / "other", SHAPE.model_copy(update={"num_layers": 3}))


@needs_tensorflow
def test_lost_variables_and_wrong_files_are_named(write: Write, vocab_file: Path, tmp_path: Path) -> None:
    made = variables(random_electra(SHAPE))
    del made["electra/encoder/layer_1/output/dense/bias"]
    prefix = write(made)
    with pytest.raises(DataError, match=r"there is no tensor electra\.encoder\.layer\.1\.output\.dense\.bias"):
        import_tensorflow(prefix, vocab_file, tmp_path / "ours")
    with pytest.raises(DataError, match="cannot be read"):
        import_tensorflow(f"{prefix}-of-nothing", vocab_file, tmp_path / "ours")
    with pytest.raises(ConfigError, match="there is no file"):
        import_tensorflow(prefix, tmp_path / "none.txt", tmp_path / "ours")
    vocab_file.write_text("\n".join(VOCABULARY[:-1]) + "\n")
    with pytest.raises(DataError, match="39 entries, the word table 40 rows"):
        import_tensorflow(prefix, vocab_file, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_without_tensorflow_the_message_says_what_to_install(
    vocab_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ConfigError, match="pip install tensorflow-cpu"):
        import_tensorflow("somewhere", vocab_file, tmp_path / "ours")


def test_a_generator_without_layers_of_its_own_is_the_discriminator() -> None:
    """As google-research/electra writes it with ``untied_generator=false``; naming variables needs no TensorFlow."""
    for sharing, width, depth in (("all", 1.0, 1.0), ("embeddings", 0.5, 0.5)):
        model = SHAPE.model_copy(
            update={"embedding_sharing": sharing, "generator_width": width, "generator_depth": depth}
        )
        discriminator, generator = split_variables(variables(random_electra(model)), "x")
        assert generator is not None
        names = {name for name in discriminator.by_name if name.startswith("electra.encoder.")}
        same = {name for name in names & set(generator.by_name) if generator.take(name) is discriminator.take(name)}
        assert same == (names if sharing == "all" else set()), sharing
        table = "electra.embeddings.word_embeddings.weight"
        assert torch.equal(generator.take(table), discriminator.take(table))
