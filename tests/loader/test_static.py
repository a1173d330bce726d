"""Batches for CUDA: few shapes, the fields that the method reads, and the ends of examples."""

from pathlib import Path
from typing import get_args

import pytest
import torch

from electra.cluster.estimate.memory import placeholder_batch
from electra.config import Model, ObjectiveName, Pretrain
from electra.model.attention import CuSeqlens, example_ends
from electra.objectives.base import Batch, build_objective, objective_class
from electra.objectives.bert import Bert
from electra.objectives.electric import Electric
from electra.pretrain.data.batches import DataParallel, ExampleDrawer, heldout_batches, training_steps
from electra.pretrain.data.dataset import CutExamples
from electra.pretrain.data.packing import StaticShapes, packed
from electra.text.shards.layout import Shards
from tests.workspace import Workspace

SHAPES = StaticShapes(pinned=False)
SHAPE = Model(num_layers=1, hidden_size=16, num_heads=2, intermediate_size=32, embedding_size=8, max_positions=64)
RECIPE = Pretrain(num_steps=4, batch_size=8, learning_rate=1e-3, warmup_steps=1, eval_every=4, eval_examples=20)


def ragged(objective: str, lengths: list[int]) -> Batch:
    """Examples of these lengths with one masked token each, cut to the longest."""
    recipe = RECIPE.model_copy(update={"objective": objective})
    batch = placeholder_batch(recipe, len(lengths), max(lengths))
    generator = torch.Generator().manual_seed(1)
    batch.input_ids_BT = torch.randint(5, 50, batch.input_ids_BT.shape, generator=generator)
    batch.mask_BT = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    batch.input_ids_BT *= batch.mask_BT
    places = torch.arange(max(lengths))
    batch.candidate_BT = (places > 0) & (places < torch.tensor(lengths)[:, None] - 1)  # [CLS] and [SEP] are none
    batch.mask_positions_BK[:] = 1
    batch.mask_weights_BK[:, 1:] = 0
    batch.uniforms_BK = torch.rand(batch.uniforms_BK.shape, generator=generator)
    return batch


@pytest.mark.parametrize("objective", get_args(ObjectiveName))
def test_padding_to_a_static_shape_changes_no_loss_and_no_count(objective: str) -> None:
    recipe = RECIPE.model_copy(update={"objective": objective})
    shape = SHAPE.model_copy(update={"dropout": 0.0, "attention_dropout": 0.0})
    model = build_objective(shape, 60, 4, recipe).initialize(0.2, seed=1)
    plain = ragged(objective, [9, 5, 7])
    static = StaticShapes(objective_class(objective).batch_fields, with_ends=True, pinned=False).apply(plain, 4, 16)
    assert static.input_ids_BT.shape == (4, 16) and static.mask_positions_BK.shape[0] == 4
    for term, count in model.counts(plain).items():
        assert model.counts(static)[term] == count, term
    expected, found = model(plain).loss_sums, model(static).loss_sums
    assert found.keys() == expected.keys()
    for term, value in expected.items():
        assert torch.allclose(found[term], value, rtol=1e-4), term


def test_only_fields_that_the_method_reads_are_kept() -> None:
    assert SHAPES.apply(ragged("electra", [8]), 1, 8).candidate_BT is None
    assert (
        StaticShapes(Electric.batch_fields, pinned=False).apply(ragged("electric", [8]), 1, 8).candidate_BT is not None
    )
    assert StaticShapes(Bert.batch_fields, pinned=False).apply(ragged("bert", [8]), 1, 8).random_BK is not None


def test_ends_are_those_of_examples_and_of_their_padding() -> None:
    static = SHAPES.apply(ragged("electra", [8, 3]), 4, 8)
    assert static.ends_N is not None and static.ends_N.dtype == torch.int32
    assert static.ends_N.tolist() == [0, 8, 11, 16, 24, 32, 32, 32, 32]
    assert isinstance(static.attended_BT, CuSeqlens)
    rows = torch.tensor([[1, 1, 2, 2, 2, 0], [3, 3, 3, 3, 3, 3]])
    assert example_ends(rows).tolist() == [0, 2, 5, 6, 12]


def test_examples_that_fill_a_row_exactly_share_it() -> None:
    whole = packed(ragged("electra", [16, 8, 5, 8, 11]), 16)
    assert whole.mask_BT.shape == (3, 16) and whole.mask_BT.all()


@pytest.mark.parametrize("num_packed", [3, 8])
def test_packed_rows_come_in_four_heights_and_one_number_of_slots(num_packed: int) -> None:
    lengths = [5, 11, 6, 4, 9, 16, 3, 12][:num_packed]
    static = SHAPES.apply(packed(ragged("electra", lengths), 16), 8, 16)
    assert len(static.input_ids_BT) in (2, 4, 6, 8)
    assert static.mask_positions_BK.shape[1] % 4 == 0
    assert static.ends_N is not None and len(static.ends_N) == 16 + len(static.input_ids_BT) + 1


def test_mixed_widths_evaluation_and_the_curriculum_make_three_graphs(workspace: Workspace) -> None:
    """With torch.compile's eager backend: the shapes decide about recompilation, not what is compiled."""
    settings = workspace.settings()
    train, heldout = Shards(Path(workspace.paths.shards), "train"), Shards(Path(workspace.paths.shards), "heldout")
    full = ExampleDrawer(train, [0, 2, 3, 4], settings.pretrain)
    short = ExampleDrawer(CutExamples(train, 8), [0, 2, 3, 4], settings.pretrain)
    share = DataParallel(0, 1, 4, shapes=SHAPES)
    model = build_objective(settings.model, train.vocab_size, 4, settings.pretrain).initialize(0.02, seed=1)
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    forward = torch.compile(model.forward, backend=backend, dynamic=False, fullgraph=True)
    for batches in training_steps(full, share, 0, 12, short=short, num_short_steps=4):
        for batch in batches:
            forward(batch)
    model.eval()
    with torch.no_grad():
        for batch, _ in heldout_batches(full, share, 30):
            forward(batch)
    assert len(heldout) > 30
    assert len(graphs) == 3
