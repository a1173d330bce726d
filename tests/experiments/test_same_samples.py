"""Discriminators on the same generators' samples: equality with a run's validation, and the averages."""

import json
import statistics
from pathlib import Path

import pytest

from electra.common.errors import ConfigError
from experiments import same_samples
from tests.workspace import Workspace


def test_a_run_judged_on_its_own_samples_has_the_figures_of_its_validation(
    uninterrupted: Workspace, tmp_path: Path
) -> None:
    for name in ("paper-x4-1", "paper-x4-2", "other-x4-1", "paper-x1-1"):
        (tmp_path / name).symlink_to(uninterrupted.root)
    runs = same_samples.found_runs(tmp_path, 4, ["paper", "other"])
    rows = same_samples.compare(runs, ["paper"])

    assert len(rows) == 6, "three generators, two discriminators"
    facts = json.loads((uninterrupted.root / "results/pretrain.json").read_text())
    for row in rows:
        assert row["auc"] == pytest.approx(facts["disc_auc"], abs=2e-3)
        assert row["mlm_loss"] == pytest.approx(facts["mlm_loss"], abs=2e-3)
        assert row["share"] == pytest.approx(facts["disc_loss"] / facts["fake_rate_entropy"], abs=2e-3)
    with pytest.raises(ConfigError, match="no finished run of 'modern' at budget 4"):
        same_samples.found_runs(tmp_path, 4, ["paper", "modern"])


def test_a_discriminators_figure_leaves_out_its_own_generator() -> None:
    def row(generator: str, generator_seed: int, seed: int, auc: float) -> same_samples.Row:
        return {
            **{"budget": 4, "generator": generator, "generator_seed": generator_seed, "mlm_loss": 5.0},
            **{"discriminator": "paper", "seed": seed, "share": 0.5, "auc": auc},
        }

    rows = [row("paper", 1, 1, 0.9), row("paper", 1, 2, 0.7), row("paper", 2, 1, 0.6), row("paper", 2, 2, 0.9)]
    rows += [row("other", 1, 1, 0.8), row("other", 1, 2, 0.6), row("other", 2, 1, 0.7), row("other", 2, 2, 0.6)]

    assert same_samples.by_seed(rows, "paper", "paper", "auc") == [0.6, 0.7]
    assert same_samples.by_seed(rows, "other", "paper", "auc") == pytest.approx([0.75, 0.6])
    assert "| 4 | `other`, 2 | 5.000 ± 0.000 | 0.500 ± 0.000 | 0.675 ± 0.106 |" in same_samples.as_table(rows)


def test_modern_blocks_tell_more_than_the_papers_on_everybodys_samples() -> None:
    """docs/options.md says so: by more than twice the larger spread over seeds, at each budget."""
    every = json.loads((same_samples.RESULTS / "same_samples.json").read_text())
    rows = [row for row in every if row["options"] == ["baseline", "modern@2"]]
    assert {row["budget"] for row in rows} == {1, 4, 16}
    for budget in (1, 4, 16):
        own = [row for row in rows if row["budget"] == budget]
        for generator in ("baseline", "modern@2", "rotary@1.5"):
            paper, modern = (same_samples.by_seed(own, generator, judge, "share") for judge in ("baseline", "modern@2"))
            assert len(paper) == len(modern) == 3
            difference = statistics.fmean(paper) - statistics.fmean(modern)
            assert difference > 2 * max(statistics.stdev(paper), statistics.stdev(modern)), (budget, generator)
