"""Entity tasks in the format of their published files: CoNLL-2003, CoNLL-2002 and WNUT-17."""

import pytest

from electra.common.artifacts import read_manifest
from electra.common.errors import DataError
from electra.readers.build import prepare_tasks
from electra.readers.conll import encoding_of
from electra.readers.official import OfficialSource
from electra.tasks.catalogue import TASKS, TaskSpec
from tests.small_tasks import make_settings, refused, write_file

ENGLISH = "-DOCSTART- -X- -X- O\n\nMary NNP I-NP I-PER\nsat VBD I-VP O\n\n"
SPANISH = "Sao B-LOC\nPaulo I-LOC\n( O\n\nEspaña B-LOC\n"
DUTCH = "-DOCSTART- -DOCSTART- O\nDe Art O\nIndonesië N B-LOC\n\n"
TWEETS = "i\tO\nlike\tO\nNew\tB-creative-work\nYork\tI-creative-work\n\t\n#\tO\nMary\tB-person\n"


def words_and_tags(folder, task, split):
    rows = OfficialSource(conll=folder).read(TASKS[task], split)
    return [(" ".join(row["words"]), " ".join(row["tags"])) for row in rows]


@pytest.mark.parametrize("place", ["conll2003/train.txt", "conll2003/eng.train", "eng.train"])
def test_conll_2003_is_read_under_its_official_name_too(tmp_path, place):
    write_file(tmp_path / place, ENGLISH)
    assert words_and_tags(tmp_path, "CoNLL-2003", "train") == [("Mary sat", "B-PER O")]


def test_every_split_of_conll_2003_has_its_official_name(tmp_path):
    for name in ("eng.train", "eng.testa", "eng.testb"):
        write_file(tmp_path / name, ENGLISH.replace("Mary", name))
    source, spec = OfficialSource(conll=tmp_path), TASKS["CoNLL-2003"]
    assert source.splits(spec) == ["train", "dev", "test"]
    first = [next(source.read(spec, split))["words"][0] for split in source.splits(spec)]
    assert first == ["eng.train", "eng.testa", "eng.testb"]
    assert [file["name"] for file in source.describe(spec)["files"]] == first
    assert "encoding" not in source.describe(spec)["files"][0]


@pytest.mark.parametrize("place", ["conll2002/", ""])
@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
@pytest.mark.parametrize(
    ("task", "name", "text", "expected"),
    [
        ("CoNLL-2002-esp", "esp", SPANISH, [("Sao Paulo (", "B-LOC I-LOC O"), ("España", "B-LOC")]),
        ("CoNLL-2002-esp", "esp", "España NP B-LOC\n", [("España", "B-LOC")]),  # copies with parts of speech
        ("CoNLL-2002-ned", "ned", DUTCH, [("De Indonesië", "O B-LOC")]),
    ],
)
def test_conll_2002_is_read_in_latin_1_as_released_and_in_utf_8(tmp_path, place, encoding, task, name, text, expected):
    write_file(tmp_path / f"{place}{name}.testa", text, encoding)
    assert words_and_tags(tmp_path, task, "dev") == expected


def test_the_manifest_says_in_which_encoding_a_file_was_read(tmp_path, paths):
    for split, encoding in [("train", "latin-1"), ("testa", "utf-8")]:
        write_file(tmp_path / f"esp.{split}", SPANISH, encoding)
    prepare_tasks(make_settings({"kind": "files", "conll": str(tmp_path)}, ["CoNLL-2002-esp"]), paths)
    files = read_manifest(paths.tasks)["tasks"]["CoNLL-2002-esp"]["files"]
    assert [(file["name"], file["encoding"]) for file in files] == [("esp.train", "latin-1"), ("esp.testa", "utf-8")]
    assert "España" in (paths.tasks / "CoNLL-2002-esp/train.jsonl").read_text("utf-8")


def test_other_tasks_stay_utf_8(tmp_path):
    write_file(tmp_path / "eng.train", ENGLISH.replace("Mary", "José"), "latin-1")
    with pytest.raises(DataError, match="not UTF-8"):
        words_and_tags(tmp_path, "CoNLL-2003", "train")


def test_wnut_17_is_read_with_tabs_and_blank_lines_that_hold_one(tmp_path):
    for name in ("wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"):
        write_file(tmp_path / "wnut17" / name, TWEETS)
    for split in ("train", "dev", "test"):
        assert words_and_tags(tmp_path, "WNUT-17", split) == [
            ("i like New York", "O O B-creative-work I-creative-work"),
            ("# Mary", "O B-person"),
        ]


@pytest.mark.parametrize(
    ("task", "name", "text", "said"),
    [
        ("CoNLL-2002-esp", "esp.train", "a NP O\nb O\n", "expected 3 columns (word POS ner), found 2"),
        ("CoNLL-2002-esp", "esp.train", "a O\nb NP O\n", "expected 2 columns (word ner), found 3"),
        ("CoNLL-2002-ned", "ned.train", "a b c O\nb O\n", "expected 3 columns (word POS ner), found 4"),
        ("WNUT-17", "wnut17train.conll", "a\tO\nb\tB-LOC\n", "tag 'B-LOC' is not O or B-, I-, E- or S- with one of"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, task, name, text, said):
    write_file(tmp_path / name, text)
    with refused(said, f"{name}:{1 if 'found 4' in said else 2}"):
        words_and_tags(tmp_path, task, "train")


def test_a_missing_file_is_named_with_all_its_names(tmp_path):
    with pytest.raises(DataError, match=r"conll2003/train\.txt does not exist, nor conll2003/eng\.train or eng\.train"):
        words_and_tags(tmp_path, "CoNLL-2003", "train")


def test_one_entry_in_the_catalogue_makes_a_task_that_can_be_chosen(monkeypatch):
    monkeypatch.setitem(TASKS, "WNLI-2", TaskSpec("WNLI-2", "classification", ("accuracy",), {}, labels=("0", "1")))
    settings = make_settings({"kind": "files"}, ["WNLI-2"], task_epochs={"WNLI-2": 1})
    assert settings.cells.tasks == ["WNLI-2"]
    with pytest.raises(ValueError, match=r"WNLI-2 is the name of a built-in task"):
        type(settings.tasks).model_validate({"source": {"kind": "files"}, "own": ["a/WNLI-2.yaml"]})


def test_a_file_that_ends_inside_a_character_is_not_of_that_encoding(tmp_path):
    file = tmp_path / "words"
    for content, encoding in [("café".encode(), "utf-8"), ("café".encode()[:-1], "latin-1"), (b"caf\xe9", "latin-1")]:
        file.write_bytes(content)
        assert encoding_of(file, ("utf-8", "latin-1")) == encoding
