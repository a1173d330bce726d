"""The report names its data, is one file, and has stable bytes."""

import dataclasses
import re
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from electra.common.artifacts import write_json
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.config import Corpus, Settings
from electra.hub.export.pretrained import model_card
from electra.results.report.build import build_report
from electra.results.report.curves import draw_curves
from electra.results.report.facts import read_curves, read_scores
from electra.tasks.catalogue import TaskSpec

from .example import DATA, TASKS, write_example_results, write_scores


@pytest.fixture(scope="module")
def built(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Paths:
    paths = Paths(tmp_path_factory.mktemp("run"))
    write_example_results(paths)
    build_report(settings, paths)
    return paths


@pytest.mark.parametrize("name", ["report.md", "report.html"])
def test_report_says_which_data_before_any_score(built: Paths, name: str) -> None:
    text = (built.results / name).read_text()
    body = text[text.index("</style>") :] if name.endswith("html") else text
    assert DATA in body
    assert body.index(DATA) < body.index("81.4")


@pytest.mark.parametrize("name", ["report.md", "report.html"])
def test_report_has_the_same_bytes_again(settings: Settings, built: Paths, tmp_path: Path, name: str) -> None:
    again = Paths(tmp_path)
    write_example_results(again)
    build_report(settings, again)
    assert (again.results / name).read_bytes() == (built.results / name).read_bytes()


def test_page_loads_nothing_from_elsewhere_and_runs_nothing(built: Paths) -> None:
    page = (built.results / "report.html").read_text()
    assert not re.search(r"<(script|link|img|iframe|object|embed)\b|@import|\bon\w+=", page)
    targets = re.findall(r'(?:src|href)\s*=\s*"([^"]*)"|url\(([^)]*)\)', page)
    assert all((a or b).startswith("#") for a, b in targets)


def test_page_has_curves_with_the_loss_of_guessing_and_unique_ids(built: Paths) -> None:
    page = (built.results / "report.html").read_text()
    assert page.count("<svg") == 3  # generator loss, discriminator loss, AUC
    assert "guessing by word frequency" in page
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]*)', page)) <= set(ids)
    assert not re.search(r"#0[1-6]0[1-6]0[1-6]", page)  # every drawing colour became a theme colour


def test_report_escapes_text_and_prints_figures_it_does_not_know(built: Paths) -> None:
    page, text = (built.results / "report.html").read_text(), (built.results / "report.md").read_text()
    assert "few &lt;documents&gt; repeat" in page and "few <documents> repeat" not in page
    assert "something new" in page and "| something new | 1.5 |" in text


def test_score_card_is_printed(settings: Settings, built: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    build_report(settings, built)
    printed = capsys.readouterr().out
    assert all(task in printed for task in TASKS) and "+28.8" in printed and "not the official split" in printed


def test_the_card_shows_how_many_rows_were_cut(settings: Settings, tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    write_example_results(paths)
    scores = read_scores(paths)
    assert scores
    scores["tasks"]["MRPC"]["rows_cut"] = {"train": 704, "dev": 345}
    scores["tasks"]["STS-B"]["rows_cut"] = {"train": 0, "dev": 0}
    scores["tasks"]["SQuAD1.1"] |= {"rows_cut": {"train": 0, "dev": 1}, "answers_not_recoverable": 25}
    scores["tasks"]["CoLA"] |= {"rows_cut": {"train": 0, "dev": 0, "dev_more": 3}, "words_cut": 1200}
    write_scores(paths, scores)
    build_report(settings, paths)
    rows = [line.split(" | ") for line in (paths.results / "report.md").read_text().splitlines()]
    cut = {cells[0].removeprefix("| "): cells[-1].removesuffix(" |") for cells in rows if DATA in cells}
    assert cut == {
        "MRPC": "train 70.4%, dev 69.0%",
        "STS-B": "none",
        "SQuAD1.1": "dev 0.2%, 25 answers of train cannot be learned exactly",
        "CoLA": "dev_more 3, 1,200 words of train",
    }


def test_report_without_scores_names_what_is_missing(settings: Settings, tmp_path: Path) -> None:
    write_example_results(Paths(tmp_path), scores=False)
    with pytest.raises(DataError, match=r"scores\.json"):
        build_report(settings, Paths(tmp_path))


def test_curve_with_a_bad_cell_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "pretrain.tsv"
    path.write_text("step\tmlm_loss\n1\t2.0\n2\tx\n")
    with pytest.raises(DataError, match=r"pretrain\.tsv:3"):
        read_curves(path)


def test_curves_of_training_and_held_out_share_a_panel() -> None:
    curves = {"step": [1.0, 2.0], "train_mlm_loss": [3.0, 2.0], "mlm_loss": [None, 2.5], "lr": [0.1, 0.2]}
    [(title, svg)] = draw_curves(curves, {"unigram_entropy": 5.0})
    assert title == "Loss on masked tokens"
    assert "held-out" in svg and "training" in svg


def test_model_card_works_before_and_after_scoring(settings: Settings, built: Paths, tmp_path: Path) -> None:
    write_example_results(Paths(tmp_path), scores=False)
    early, late = model_card(settings, Paths(tmp_path)), model_card(settings, built)
    for card in (early, late):
        assert card.startswith("---\n") and "- electra\n" in card and "ElectraForPreTraining" in card
        assert "0.853" in card and "including errors and prejudice" in card
    assert "Not fine-tuned yet" in early and "| MRPC | accuracy | 81.4 | 68.4 |" in late


def test_probes_and_sentences_are_shown_and_escaped(settings: Settings, built: Paths) -> None:
    markdown, page = ((built.results / f"report.{kind}").read_text() for kind in ("md", "html"))
    assert "| minimal pairs: discriminator, sum | 75.0 ± 21.2 | agreement 87.5, order 62.5 |" in markdown
    assert "| STS-B without labels: Spearman | 40.2 |" in markdown and "nDCG@10 | 5.8 | 400 questions" in markdown
    assert "the rob ##in [was ##ert] (97) <b> (40) sang ." in markdown and "a cat" in markdown
    assert '<span class="was" style="--p: 0.97" title="replaced: 0.97; was ##ert; proposals: ##in 0.50' in page
    assert "&lt;b&gt;</span>" in page and "><b></span>" not in page
    assert '</span><span class="was"' in page, "no space before the rest of a word"
    assert "## Before fine-tuning" in model_card(settings, built)


def test_without_probes_there_is_no_section(settings: Settings, tmp_path: Path) -> None:
    write_example_results(Paths(tmp_path))
    (tmp_path / "results/probe.json").unlink()
    build_report(settings, Paths(tmp_path))
    text = (tmp_path / "results/report.md").read_text()
    assert "Before fine-tuning" not in text and "What it learned" not in text


def test_cards_have_the_hubs_metadata_and_each_folder_its_own(settings: Settings, built: Paths) -> None:
    cards = {name: ModelCard(model_card(settings, built, folder=name)) for name in ("discriminator", "generator")}
    main, generator = cards["discriminator"].data, cards["generator"].data
    assert (main.language, main.library_name, main.license) == (None, "transformers", None)
    assert (main.pipeline_tag, generator.pipeline_tag) == ("feature-extraction", "fill-mask")
    scores = {result.dataset_type: (result.metric_type, result.metric_value) for result in main.eval_results}
    assert scores["mrpc"] == ("accuracy", 81.4) and scores["sts-b"] == ("spearmanr", 77.25)
    assert generator.eval_results is None and "## Score card" not in cards["generator"].text
    assert "## Score card" in cards["discriminator"].text and "proposed the replacements" in cards["generator"].text
    assert all("FLOPs" in card.text and "## Limits" in card.text for card in cards.values())


@pytest.mark.parametrize(
    ("changes", "main", "family", "there", "absent"),
    [
        ({"objective": "bert"}, "encoder", "Electra",
         ["- masked-language-modeling", "- encoder: ", '"fill-mask", "path/to/encoder"'],
         ["replaced-token-detection", "generator", "iscriminator", "# ELECTRA"]),
        ({"objective": "mlm_then_rtd", "generator": "unigram"}, "discriminator", "ModernBert",
         ["- replaced-token-detection", "- discriminator: ", "path/to/detector"], ["generator"]),
        ({}, "discriminator", "Electra",
         ["- replaced-token-detection", "- generator: ", "ElectraForPreTraining", '"path/to/generator"'], []),
    ],
    ids=["bert", "mlm_then_rtd", "electra"],
)  # fmt: skip
def test_a_card_names_the_parts_that_the_method_has(
    settings: Settings, tmp_path: Path, changes: dict[str, str], main: str, family: str, there: list[str],
    absent: list[str],
) -> None:  # fmt: skip
    changed = settings.model_copy(update={"pretrain": settings.pretrain.model_copy(update=changes)})
    card = model_card(changed, Paths(tmp_path), family=family, main=main)
    assert [text for text in there if text not in card] == [] == [text for text in absent if text in card]


def test_own_tasks_are_of_their_own_kind_in_the_hubs_metadata(settings: Settings, tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    write_example_results(paths)
    scores = read_scores(paths)
    assert scores
    scores["tasks"]["tags"] = scores["tasks"]["MRPC"]
    write_scores(paths, scores)
    spec = TaskSpec(name="tags", kind="tagging", metrics=("accuracy",), labels=("A", "B"), official_rows={})
    (paths.tasks / "tags").mkdir(parents=True)
    write_json(paths.tasks / "tags/task.json", dataclasses.asdict(spec))
    results = ModelCard(model_card(settings, paths)).data.eval_results
    assert {r.dataset_type: r.task_type for r in results}["tags"] == "token-classification"


def test_languages_are_claimed_only_where_the_text_was_cut_to_them(settings: Settings, built: Paths) -> None:
    own = {"kind": "files", "name": "letters", "paths": ["letters/*.txt"]}
    for steps, languages in [
        ([], None),
        ([{"kind": "language", "languages": ["hu", "de"]}], ["de", "hu"]),
    ]:
        corpus = Corpus.model_validate({"sources": [own], "cleaning": steps})
        card = ModelCard(model_card(settings.model_copy(update={"corpus": corpus}), built))
        assert card.data.language == languages


def test_a_card_says_from_which_weights_training_went_on_and_never_a_local_path(
    settings: Settings, built: Paths, tmp_path: Path
) -> None:
    hub = {"repository": "google/electra-small-discriminator", "revision": "0" * 40}
    for name, facts in {"imported": {"imported_from": {"discriminator": hub}}, "mine": {"resized_from": {}}}.items():
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "manifest.json", facts)

    def card(start: str | None, folder: str = "discriminator") -> ModelCard:
        recipe = settings.pretrain.model_copy(update={"initialize_from": start})
        return ModelCard(model_card(settings.model_copy(update={"pretrain": recipe}), built, folder=folder))

    plain, imported, mine = card(None), card(str(tmp_path / "imported")), card(str(tmp_path / "mine/"))
    assert "went on from" not in plain.content and plain.data.base_model is None
    assert f"Training went on from {hub['repository']} at {hub['revision']}." in imported.text
    assert imported.data.base_model == hub["repository"]
    assert "Training went on from earlier weights (mine)." in mine.text and mine.data.base_model is None
    assert card(str(tmp_path / "imported"), "generator").data.base_model is None
    assert not any(str(tmp_path) in one.content for one in (imported, mine))
