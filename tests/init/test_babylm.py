"""`electra init --babylm`: the challenge's folder in, words counted, epochs and checkpoints by its rules."""

import subprocess
from pathlib import Path

import pytest
import yaml

from electra.common.artifacts import read_manifest
from electra.common.corpus_file import read_documents
from electra.common.errors import ConfigError, DataError
from electra.common.paths import Paths
from electra.config.loading import load_settings
from electra.config.milestones import named_amounts
from electra.init import babylm
from electra.init.babylm import TRACKS, count_words, training_text
from electra.init.project import describe_project, plan_project, write_project
from electra.preflight import check_run
from electra.text.corpus.build import build_corpus
from tests.project import copy_project

FILES = {
    "bnc_spoken": "Yeah.\nMm.\nI don't know, it was café {} or something.\n",
    "childes": "*MOT:\tyou want {} balls ?\n*CHI:\tball .\n*MOT:\tyes , the ball .\n*CHI:\tyes .\n",
    "simple_wiki": "= = = April {} = = =\n\nApril is the fourth month\u00a0of the year.  It has 30 days.\n\n",
}
FILES = {name: "".join(text.format(number) for number in range(500)) for name, text in FILES.items()}


@pytest.fixture
def challenge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone's settings beside the challenge's folder, in small."""
    copy_project(tmp_path, "dvc.yaml", ".gitignore", "Makefile")
    (tmp_path / "text/train_10M").mkdir(parents=True)
    (tmp_path / "text/dev").mkdir()
    (tmp_path / "text/dev/childes.dev").write_text("*CHI:\tno .\n")
    for name, text in FILES.items():
        (tmp_path / f"text/train_10M/{name}.train").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def wc(*files: Path) -> list[int]:
    """Words by `wc -w`."""
    environment = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    lines = subprocess.run(["wc", "-w", *files], env=environment, capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in lines.splitlines()][: len(files)]


@pytest.mark.parametrize("folder", ["text", "text/train_10M"])
def test_the_challenges_folder_gives_a_profile_that_follows_its_rules(challenge: Path, folder: str) -> None:
    plan = plan_project([folder], babylm="strict-small")
    write_project(plan)
    settings = load_settings(challenge)
    assert settings.profile == "babylm-strict-small" and settings.cells.tasks == [] and settings.tasks.source is None
    source = settings.corpus.sources[0].model_dump()
    assert (source["paths"], source["documents"]) == (["text/train_10M/*.train"], "lines")
    assert (settings.corpus.max_words, settings.pretrain.epochs) == (10_000_000, 10)
    assert settings.pretrain.milestones == TRACKS["strict-small"].milestones
    counted = wc(*(challenge / f"text/train_10M/{name}.train" for name in FILES))
    shown = describe_project(plan, None)
    for name, words in zip(FILES, counted, strict=True):
        assert f"{words:,} words  {name}.train\n" in shown
    assert f"{sum(counted):,} words in all; strict-small allows 10,000,000\n" in shown and "10 epochs" in shown
    assert "profile babylm-strict-small" in check_run(challenge)


def test_names_of_the_release_of_2026_are_read_too(challenge: Path) -> None:
    for path in (challenge / "text/train_10M").iterdir():
        path.rename(f"{path}.txt")
    plan = plan_project(["text/train_10M"], babylm="strict-small")
    assert plan.texts.patterns == ["text/train_10M/*.train.txt"] and len(plan.texts.files) == len(FILES)


def test_files_of_the_challenge_are_text_for_a_run_of_ones_own_too(challenge: Path) -> None:
    plan = plan_project(["text/train_10M"])
    assert plan.texts.patterns == ["text/train_10M/*.train"] and plan.settings.corpus.max_words is None


@pytest.mark.parametrize("chunk", [3, 7, 1 << 24])
def test_words_are_those_of_wc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """At every size of the parts in which a file is read, also where they cut a letter of several bytes."""
    monkeypatch.setattr(babylm, "CHUNK", chunk)
    texts = [*(text[:400] for text in FILES.values()), "", " \n", "word", "two words ", " é è\n"]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.train").write_text(text, encoding="utf-8")
    files = [tmp_path / f"{number}.train" for number in range(len(texts))]
    assert [count_words(file) for file in files] == wc(*files)


def test_more_words_than_the_track_allows_are_refused_before_anything_is_written(challenge: Path) -> None:
    (challenge / "text/train_10M/more.train").write_text("a " * 10_000_000 + "\n")
    before = sorted(challenge.rglob("*"))
    with pytest.raises(DataError, match=r"more than the track strict-small allows") as refused:
        plan_project(["text"], babylm="strict-small")
    assert "--babylm strict" in str(refused.value) and sorted(challenge.rglob("*")) == before
    assert training_text("text/train_10M", TRACKS["strict"], challenge).total > 10_000_000


@pytest.mark.parametrize(
    ("texts", "options", "said"),
    [
        (["text/dev"], {}, "no training text in it"),
        (["nowhere"], {}, "is no folder"),
        (["text", "text"], {}, "takes one folder"),
        (["text"], {"steps": 100}, "its rules decide the steps"),
    ],
)
def test_what_is_not_the_challenges_folder_is_refused(
    challenge: Path, texts: list[str], options: dict[str, int], said: str
) -> None:
    with pytest.raises((ConfigError, DataError), match=said):
        plan_project(texts, babylm="strict-small", **options)  # type: ignore[arg-type]


def test_the_corpus_has_every_word_and_refuses_text_that_was_added_later(challenge: Path) -> None:
    write_project(plan_project(["text"], babylm="strict-small"))
    settings, paths = load_settings(challenge), Paths(challenge)
    build_corpus(settings, paths)
    counted = sum(wc(*(challenge / f"text/train_10M/{name}.train" for name in FILES)))
    files = sorted(paths.corpus.glob("*.parquet"))
    texts = [text for file in files for _, texts in read_documents(file) for text in texts]
    assert sum(len(text.split()) for text in texts) == counted == read_manifest(paths.corpus)["raw_words"]
    assert all(len(text) < 10_100 for text in texts), "documents of consecutive lines"
    assert read_manifest(paths.corpus)["dropped"] == {"duplicate": 0, "too_short": 0}

    profile = challenge / "params/babylm-strict-small.yaml"
    values = yaml.safe_load(profile.read_text())
    values["corpus"]["max_words"] = counted
    profile.write_text(yaml.safe_dump(values))
    build_corpus(load_settings(challenge), paths)  # exactly the budget
    with open(challenge / "text/train_10M/childes.train", "a") as file:
        file.write("*CHI:\tmore .\n")
    with pytest.raises(DataError, match=rf"the text has {counted + 3:,} words, 3 more than corpus.max_words"):
        build_corpus(load_settings(challenge), paths)


@pytest.mark.parametrize(("track", "last"), [("strict-small", 100), ("strict", 1_000)])
def test_checkpoints_have_the_names_that_the_evaluation_pipeline_reads(track: str, last: int) -> None:
    millions = [*range(1, 10), *range(10, 100, 10), *range(100, last + 1, 100)]
    full = named_amounts(TRACKS[track].milestones, {"tokens": 1, "words": last * 1_000_000, "steps": 1})
    assert full == {f"chck_{number}M": ("words", number * 1_000_000) for number in millions}
    seen = last * 995_000  # with some text held out, the last one is the end of the run
    almost = named_amounts(TRACKS[track].milestones, {"tokens": 1, "words": seen, "steps": 1})
    assert list(almost) == list(full) and almost[f"chck_{last}M"] == ("words", seen)
    short = named_amounts(TRACKS[track].milestones, {"tokens": 1, "words": 45_000_000, "steps": 1})
    assert list(short) == [f"chck_{number}M" for number in (*range(1, 10), *range(10, 50, 10))]
