"""Data of an earlier run is not validated in place of missing output of this run."""

from pathlib import Path

import pytest

from electra.checks.corpus import validate_corpus
from electra.checks.shards import validate_shards
from electra.checks.tasks import validate_tasks
from electra.common.artifacts import building, renews, write_manifest
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.config import Corpus, Settings
from electra.readers.build import prepare_tasks
from tests.fixtures import text_source
from tests.small_tasks import make_settings, write_tasks

GATES = {"corpus": validate_corpus, "tokenizer": validate_shards, "shards": validate_shards, "tasks": validate_tasks}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    write_tasks(tmp_path / "official")
    return make_settings({"kind": "files", "glue": str(tmp_path / "official")}, ["CoLA"])


def test_tasks_that_could_not_be_read_again_are_not_validated(tmp_path: Path, settings: Settings) -> None:
    paths, file = Paths(tmp_path), tmp_path / "official/CoLA/train.tsv"
    prepare_tasks(settings, paths)
    validate_tasks(settings, paths)
    content = file.read_text()
    file.write_text(content + "one column\n")
    with pytest.raises(DataError, match="expected 4 tab-separated columns"):
        prepare_tasks(settings, paths)
    with pytest.raises(DataError, match="the last `electra tasks` did not end well"):
        validate_tasks(settings, paths)
    file.write_text(content)
    prepare_tasks(settings, paths)
    validate_tasks(settings, paths)


def made(paths: Paths, artefact: str, number: int) -> None:
    with building(getattr(paths, artefact)) as folder:
        write_manifest(folder, number=number)


@pytest.mark.parametrize("artefact", GATES)
@pytest.mark.parametrize("end", [DataError("no"), KeyboardInterrupt(), MemoryError()])
def test_however_a_stage_ends_early_its_gate_is_closed(
    tmp_path: Path, settings: Settings, artefact: str, end: BaseException
) -> None:
    paths = Paths(tmp_path)
    made(paths, artefact, 1)

    @renews(artefact)
    def stage(settings: Settings, paths: Paths) -> None:
        raise end

    with pytest.raises(type(end)):
        stage(settings, paths)
    with pytest.raises(DataError, match=f"the last `electra {artefact}` did not end well"):
        GATES[artefact](settings, paths)
    made(paths, artefact, 2)  # as `dvc checkout` brings back the artefact of other settings
    with pytest.raises(DataError, match="does not have the expected content|does not exist"):
        GATES[artefact](settings, paths)


@pytest.mark.parametrize("stage", ["corpus", "tokenizer", "shards"])
def test_every_text_stage_closes_its_gate_when_it_begins(tmp_path: Path, settings: Settings, stage: str) -> None:
    from electra.text.corpus.build import build_corpus
    from electra.text.shards.build import build_shards
    from electra.text.tokenizer.build import build_tokenizer

    paths = Paths(tmp_path)
    (tmp_path / "one.txt").write_text("One document, and no second one.")
    settings = settings.model_copy(update={"corpus": Corpus(sources=[text_source(str(tmp_path / "one.txt"))])})
    made(paths, stage, 1)
    build = {"corpus": build_corpus, "tokenizer": build_tokenizer, "shards": build_shards}[stage]
    with pytest.raises(DataError):  # one document cannot be split, and there is nothing to read
        build(settings, paths)
    with pytest.raises(DataError, match="did not end well"):
        GATES[stage](settings, paths)
