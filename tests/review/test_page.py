"""Curves, cost and flipped examples of a comparison, and the page that shows them."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from electra.results.review.compare import compare
from electra.results.review.render import render_markdown, render_page, render_text
from electra.results.review.sides import Side, open_side
from tests.review.runs import Run

PROJECT = Path(__file__).resolve().parents[2]
ROWS = 40
EVIL = "<img src=x onerror=alert(1)>"


def write_predictions(run: Run, wrong: range) -> None:
    """Write 40 predictions of SST-2 for rows of label 1: 0 for the rows in ``wrong``, else 1."""
    rows = [
        {"id": str(n), "text_a": f"{EVIL} @user row {n} | x\u2028", "text_b": None, "label": "1"} for n in range(ROWS)
    ]
    lines = [{"split": "dev", "id": str(n), "label": "0" if n in wrong else "1"} for n in range(ROWS)]
    for path, content in (("data/tasks/SST-2/dev.jsonl", rows), ("models/finetuned/SST-2-1/predictions.jsonl", lines)):
        file = run.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in content), encoding="utf-8")


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Side, Side]:
    folder = tmp_path_factory.mktemp("sides")
    before = Run(folder / "before", random=1).write()
    after = before.copy(folder / f"after {EVIL.replace('/', '')}")
    after.draw(1, 2, gain=3)
    after.machine["pretrain"] |= {"minutes": 4.5, "tokens": 2_662_400, "flops": 7.76e12}
    after.write()
    header = "step\ttrain_disc_loss\tdisc_loss\tdisc_auc\n10\t0.7\t\t\n"
    (before.folder / "results/pretrain.tsv").write_text(header + "650\t0.3\t0.25\t0.7\n1300\t0.2\t0.2\t0.8\n")
    (after.folder / "results/pretrain.tsv").write_text(header + "650\t0.3\t0.24\t0.75\n1300\t0.2\t0.19\t0.9\n")
    write_predictions(before, range(0, 12))
    write_predictions(after, range(8, 14))
    return open_side(str(before.folder)), open_side(str(after.folder))


def test_held_out_curves_of_both_are_in_the_comparison(sides: tuple[Side, Side]) -> None:
    found = compare(*sides)
    assert found.curves[0] == {"step": [650, 1300], "disc_loss": [0.25, 0.2], "disc_auc": [0.7, 0.8]}
    assert found.as_json()["curves"][1]["disc_auc"] == [0.75, 0.9]
    page = render_markdown(found)
    assert "| step | AUC, before | after | discriminator loss, before | after |" in page
    assert "| 1,300 | 0.8 | 0.9 | 0.2 | 0.19 |" in page


def test_the_held_out_curves_have_no_column_of_what_neither_method_has(sides: tuple[Side, Side]) -> None:
    """`bert` has a loss of its own, but no discriminator, whose columns of the file are empty."""
    for side in sides:
        rows = "step\tmlm_loss\tdisc_loss\tdisc_auc\n650\t5.25\t\t\n1300\t4.75\t\t\n"
        (side.folder / "results/pretrain.tsv").write_text(rows)
    page = render_markdown(compare(*(open_side(str(side.folder)) for side in sides)))
    assert "| step | MLM loss, before | after |" in page and "| 650 | 5.25 | 5.25 |" in page


def test_the_cost_of_both_is_told_and_what_is_not_known(sides: tuple[Side, Side]) -> None:
    found = compare(*sides)
    assert (found.cost[1].minutes, found.cost[1].tokens, found.cost[1].flops) == (4.5, 2_662_400, 7.76e12)
    assert "cost        pre-training 3 min -> 4.5 min, 2.7M tokens, 7.76e+12 FLOPs, Processor A" in render_text(found)
    assert found.cost[0].tokens == 2_662_400, "83,200 examples of 32 tokens, where the run noted none"


def test_a_run_without_a_note_of_its_machine_says_so(sides: tuple[Side, Side], tmp_path: Path) -> None:
    run = Run(tmp_path / "run").write()
    (run.folder / "results/machine.json").unlink()
    told = render_text(compare(sides[0], open_side(str(run.folder))))
    assert "pre-training 3 min, 2.7M tokens, minutes of after unknown" in told


def test_examples_that_flipped_are_counted_and_shown(sides: tuple[Side, Side]) -> None:
    found = compare(*sides)
    (flips,) = [flips for flips in found.flips if flips.task == "SST-2"]
    assert (flips.num_examples, flips.fixed, flips.broken) == (ROWS, 8, 2)
    assert [(one.id, one.before, one.after, one.fixed) for one in flips.shown] == [
        *((str(n), "0", "1", True) for n in range(4)),
        *((str(n), "1", "0", False) for n in (12, 13)),
    ]
    assert "flipped     of 40 dev rows 8 became right and 2 wrong; most in SST-2 +8 -2" in render_text(found)
    assert found.flips[0].why_not == f"no predictions of {sides[0].name} on this machine"


def test_predictions_that_are_not_on_this_machine_are_said_to_be_missing(tmp_path: Path) -> None:
    run = Run(tmp_path / "run").write()
    told = render_text(compare(open_side(str(run.folder)), open_side(str(run.folder))))
    assert f"flipped     not known: no predictions of {run.folder}"[:90] in told


def test_predictions_of_other_rows_are_not_compared(sides: tuple[Side, Side], tmp_path: Path) -> None:
    run = Run(tmp_path / "run").write()
    write_predictions(run, range(3))
    file = run.folder / "models/finetuned/SST-2-1/predictions.jsonl"
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:-1]))
    found = compare(sides[0], open_side(str(run.folder)))
    assert [flips.why_not for flips in found.flips if flips.task == "SST-2"] == ["its predictions are of other rows"]


def test_predictions_of_a_revision_are_taken_from_dvcs_cache(sides: tuple[Side, Side], tmp_path: Path) -> None:
    import subprocess

    run = Run(tmp_path / "run", random=1)
    objects = {"aa": "rows", "bb": "predictions", "cc": "tasks.dir", "dd": "cell.dir"}
    run.set_hash("data/tasks", "cc" * 16 + ".dir")
    run.set_hash("models/finetuned/SST-2-1", "dd" * 16 + ".dir")
    run.write()
    (run.folder / ".dvc").mkdir()
    (run.folder / ".dvc/config").write_text("[core]\n    analytics = false\n[cache]\n    dir = ../../shared\n")
    content = {
        "rows": (sides[0].folder / "data/tasks/SST-2/dev.jsonl").read_text(),
        "predictions": (sides[0].folder / "models/finetuned/SST-2-1/predictions.jsonl").read_text(),
        "tasks.dir": json.dumps([{"relpath": "SST-2/dev.jsonl", "md5": "aa" * 16}]),
        "cell.dir": json.dumps([{"relpath": "predictions.jsonl", "md5": "bb" * 16}]),
    }
    for start, name in objects.items():
        file = tmp_path / "shared/files/md5" / start / (start * 15 + (".dir" if name.endswith(".dir") else ""))
        file.parent.mkdir(parents=True)
        file.write_text(content[name])
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.name=x", "-c", "user.email=x@y", "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=run.folder, check=True)
    found = compare(open_side("HEAD", run.folder), sides[1])
    assert [flips.fixed for flips in found.flips if flips.task == "SST-2"] == [8]


class Page(HTMLParser):
    """Tags, ids and everything that a browser would fetch or run."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), (tag, name)
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href", "srcset", "action", "data", "poster"):
                self.targets.append(value or "")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_has_curves_table_and_verdict_and_asks_for_nothing_from_elsewhere(sides: tuple[Side, Side]) -> None:
    found = compare(*sides)
    source = render_page(found)
    page = Page(source)
    told = " ".join(page.text)
    assert page.tags.count("svg") == 2, "the discriminator's loss and its AUC"
    assert "before" in told and "guessing" in told and found.verdict in told
    assert all(row.name in told and row.verdict in told for row in found.rows)
    assert "row 13" in told and "8 became right, 2 wrong" in told
    assert not set(page.tags) & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    assert page.targets and all(target.startswith("#") and target[1:] in page.ids for target in page.targets)
    assert len(page.ids) == len(set(page.ids))
    style = source.partition("<style>")[2].partition("</style>")[0]
    assert "@import" not in source and all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", source))
    assert "prefers-color-scheme: dark" in style and "max-width: 480px" in style
    assert 'name="viewport"' in source
    assert EVIL not in source and "&lt;img src=x onerror" in source, "names and rows are text, never markup"
    assert render_page(found) == source, "the same runs give the same bytes"


def test_the_page_of_runs_without_curves_and_scores_in_common_says_so(tmp_path: Path) -> None:
    run = Run(tmp_path / "run").write()
    other = run.copy(tmp_path / "other")
    other.results["glue.json"] = other.results["squad.json"] = {}
    other.write()
    page = " ".join(Page(render_page(compare(open_side(str(run.folder)), open_side(str(other.folder))))).text)
    assert "Neither run has results/pretrain.tsv" in page and "no task that both have been scored on" in page


def test_markdown_keeps_markup_and_mentions_out_of_a_pull_request(sides: tuple[Side, Side]) -> None:
    page = render_markdown(compare(*sides))
    assert "<img" not in page and "@user" not in page and "| x" not in page.replace("\\| x", "")
    assert page.count("<details>") == page.count("</details>") == 2


def test_pre_training_notes_its_minutes_tokens_and_flops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from electra.cli.stages import _machine_noted
    from electra.cluster.estimate import cost
    from electra.common.paths import Paths
    from electra.config.loading import load_settings

    settings, paths = load_settings(PROJECT), Paths(tmp_path)
    (tmp_path / "results").mkdir()
    expected = cost.estimate(settings).hardware_training_flops
    # to build a module without memory imports PyTorch's compiler, seconds at the end of each run
    monkeypatch.delattr(cost, "build_objective")
    for stage in ("pretrain", "finetune"):
        with _machine_noted(settings, paths, stage):
            pass
    noted = json.loads((tmp_path / "results/machine.json").read_text())
    assert noted["pretrain"]["tokens"] == settings.pretrain.num_steps * 32 * 32 and noted["pretrain"]["minutes"] == 0
    assert noted["pretrain"]["flops"] == pytest.approx(expected, rel=1e-3)
    assert noted["finetune"].keys() == {"processor", "cores", "device", "torch"}
