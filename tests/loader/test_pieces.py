"""Short examples cut from long ones, and the curriculum that trains on them first."""

import numpy as np

from electra.config import Pretrain
from electra.pretrain.data.batches import DataParallel, ExampleDrawer, heldout_batches, training_steps
from electra.pretrain.data.dataset import CutExamples
from electra.text.shards.layout import Shards
from tests.workspace import Workspace

CLS, SEP = 2, 3


class Examples:
    """Shards in memory: [CLS] a [SEP] b [SEP] of running numbers, so that a token shows its position."""

    max_length, vocab_size = 32, 1000

    def __init__(self, *segments: tuple[int, int]):
        self.segments = segments

    def __len__(self) -> int:
        return len(self.segments)

    def gather(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        tokens, spans = np.zeros((len(indices), 32), dtype=np.int64), np.zeros((len(indices), 2), dtype=np.int64)
        for row, index in enumerate(indices):
            first, second = self.segments[index]
            text = 100 * (index + 1) + np.arange(first + second)
            parts = [[CLS], text[:first], [SEP]] + ([text[first:], [SEP]] if second else [])
            flat = np.concatenate(parts).astype(np.int64)
            tokens[row, : len(flat)], spans[row] = flat, (len(flat), first + 2)
        return tokens, spans


def text_of(tokens: np.ndarray) -> list[int]:
    return [token for token in tokens.tolist() if token >= 100]


def test_full_examples_give_full_pieces_in_the_order_of_their_text() -> None:
    pieces = CutExamples(Examples((15, 14), (30, 0)), 8)  # type: ignore[arg-type]
    assert len(pieces) == 8
    tokens, spans = pieces.gather(np.arange(8))
    assert (spans[:, 0] == 8).all()
    assert [text_of(row) for row in tokens[:4]] == [list(range(100 + 5 * n, 105 + 5 * n)) for n in range(4)]
    assert [text_of(row) for row in tokens[4:]] == [list(range(200 + 6 * n, 206 + 6 * n)) for n in range(4)]
    for row, (length, first) in zip(tokens, spans, strict=True):
        assert row[0] == CLS and row[first - 1] == SEP and row[length - 1] == SEP
        assert (row == SEP).sum() == (1 if length == first else 2)


def test_a_piece_keeps_the_examples_own_border_where_it_is_near_its_middle() -> None:
    pieces = CutExamples(Examples((13, 16), (11, 18)), 16)  # type: ignore[arg-type]
    _, spans = pieces.gather(np.arange(4))
    assert spans[:, 1].tolist() == [8, 8, 8, 8], "13 and 11 are far from 6 and 19: halves"
    near = CutExamples(Examples((8, 21)), 16)  # type: ignore[arg-type]
    assert near.gather(np.array([0]))[1][0].tolist() == [16, 10]


def test_a_short_example_gives_as_many_pieces_as_it_has_text_for() -> None:
    pieces = CutExamples(Examples((4, 3)), 8)  # type: ignore[arg-type]
    tokens, spans = pieces.gather(np.arange(4))
    assert spans[:, 0].tolist() == [8, 5, 0, 0] and not tokens[2:].any()
    assert text_of(tokens.flatten()) == list(range(100, 107))


def drawers(workspace: Workspace) -> tuple[ExampleDrawer, ExampleDrawer]:
    recipe = Pretrain(num_steps=8, batch_size=8, learning_rate=1e-3, warmup_steps=0, eval_every=8)
    train = Shards(workspace.paths.shards, "train")
    return tuple(ExampleDrawer(shards, [0, 2, 3, 4], recipe) for shards in (train, CutExamples(train, 16)))  # type: ignore


def rows(batches: list) -> list[tuple]:
    return sorted(
        tuple(map(int, [*row[:16], *batch.mask_positions_BK[n]]))
        for batch in batches
        for n, row in enumerate(batch.input_ids_BT)
    )


def test_curriculum_resumes_and_splits_over_processes_into_the_same_batches(prepared: Workspace) -> None:
    long, short = drawers(prepared)

    def steps(data_parallel: DataParallel, first: int = 0) -> list[list]:
        return list(training_steps(long, data_parallel, first, 5, short=short, num_short_steps=3))

    whole = steps(DataParallel(0, 1, 8))
    assert [batches[0].input_ids_BT.shape[1] for batches in whole] == [16, 16, 16, 32, 32]
    assert all(8 < len(batches[0].input_ids_BT) <= 16 for batches in whole[:3]), "as many tokens as before, at most"
    for one, again in zip(whole[2:], steps(DataParallel(0, 1, 8), first=2), strict=True):
        assert rows(one) == rows(again)
    halves = [steps(DataParallel(rank, 2, 2)) for rank in range(2)]
    for number in range(3):
        assert rows(whole[number]) == rows(halves[0][number] + halves[1][number])


def test_without_a_curriculum_nothing_changes(prepared: Workspace) -> None:
    long, short = drawers(prepared)
    plain = list(training_steps(long, DataParallel(0, 1, 8), 0, 2))
    for one, other in zip(plain, training_steps(long, DataParallel(0, 1, 8), 0, 2, short=short), strict=True):
        assert rows(one) == rows(other)


def test_all_processes_have_as_many_held_out_batches_and_every_example_counts_once(workspace: Workspace) -> None:
    """At ZeRO 3 every forward pass takes all processes: one with fewer would leave the others waiting."""
    heldout = Shards(workspace.paths.shards, "heldout")
    drawer = ExampleDrawer(heldout, [0, 2, 3, 4], workspace.settings().pretrain)
    for size, micro, num_examples in ((2, 4, 9), (3, 2, 7), (4, 2, 3), (1, 4, 8)):
        found = [list(heldout_batches(drawer, DataParallel(rank, size, micro), num_examples)) for rank in range(size)]
        assert len({len(batches) for batches in found}) == 1
        counted = [batch for batches in found for batch, counts in batches if counts]
        assert sum(len(batch.mask_BT) for batch in counted) == num_examples
