"""The validations accept valid artefacts, and end with exit code 3 at each injected fault, naming its row."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from electra.checks.corpus import corpus_suite, validate_corpus
from electra.checks.shards import validate_shards
from electra.checks.tables import Table
from electra.checks.tasks import validate_tasks
from electra.checks.validate import drift, run_checkpoint
from electra.common.artifacts import read_json, sha256, write_json, write_manifest
from electra.common.errors import DataError
from electra.common.paths import Paths
from electra.config import Corpus
from tests.checks.small import (
    OTHER_ROWS,
    make_small_artefacts,
    renew_manifest,
    small_settings,
    write_corpus,
    write_lines,
)
from tests.fixtures import text_source

SETTINGS = small_settings()


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """Sound artefacts, judged; tests copy them."""
    paths = make_small_artefacts(tmp_path_factory.mktemp("sound"))
    for validate in (validate_corpus, validate_shards, validate_tasks):
        validate(SETTINGS, paths)
    return paths


@pytest.fixture
def paths(sound: Paths, tmp_path: Path) -> Paths:
    """A copy to spoil."""
    shutil.copytree(sound.root / "data", tmp_path / "data")
    return Paths(tmp_path)


def refused(validate: Callable, paths: Paths, suite: str) -> str:
    """The message of the failure; the report is written all the same."""
    with pytest.raises(DataError) as caught:
        validate(SETTINGS, paths)
    assert caught.value.exit_code == 3
    report = read_json(paths.results / "validation" / f"{suite}.json")
    assert not report["success"] and report["failed_critical"] >= 1
    return str(caught.value)


def failed_checks(paths: Paths, suite: str) -> set[str]:
    return {c["check"] for c in read_json(paths.results / f"validation/{suite}.json")["checks"] if not c["success"]}


def corpus_texts(paths: Paths) -> dict[str, list[str]]:
    files = {split: paths.corpus / f"{split}-00000.parquet" for split in ("train", "heldout")}
    return {split: pq.read_table(path)["text"].to_pylist() for split, path in files.items()}


def task_rows(paths: Paths, task: str, split: str) -> list[dict]:
    return [json.loads(line) for line in (paths.tasks / task / f"{split}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("suite", ["corpus", "shards", "tasks"])
def test_sound_artefacts_pass_and_are_counted(sound: Paths, suite: str) -> None:
    report = read_json(sound.results / f"validation/{suite}.json")
    assert report["success"] and report["failed_critical"] == 0
    assert failed_checks(sound, suite) == ({OTHER_ROWS} if suite == "tasks" else set())
    assert report["failed_warning"] == len(failed_checks(sound, suite))
    assert report["expectations"] == len(report["checks"]) > 10
    counted = {"corpus": ("documents", 60), "shards": ("examples", 50), "tasks": ("MRPC", None)}[suite]
    assert counted[0] in report["statistics"]
    if counted[1]:
        assert report["statistics"][counted[0]] == counted[1]


def test_reports_are_the_same_bytes_for_the_same_data(sound: Paths, paths: Paths) -> None:
    validate_corpus(SETTINGS, paths)
    first, second = ((p.results / "validation/corpus.json").read_bytes() for p in (sound, paths))
    assert first == second


def test_report_is_the_same_bytes_by_one_process_and_by_a_process_per_file(paths: Paths) -> None:
    texts = corpus_texts(paths)
    texts["heldout"][4] = texts["train"][9]
    texts["train"][3] = texts["train"][2] + "\x07"
    texts["train"][4] = texts["train"][5].upper()
    texts["heldout"][6] = texts["heldout"][7]
    write_corpus(paths, texts)
    reports = []
    for num_workers in (1, 2):
        cluster = SETTINGS.cluster.model_copy(update={"num_workers": num_workers})
        with pytest.raises(DataError):
            validate_corpus(SETTINGS.model_copy(update={"cluster": cluster}), paths)
        reports.append((paths.results / "validation/corpus.json").read_bytes())
    assert reports[0] == reports[1]
    assert b"row=9" in reports[0] and b"file=heldout-00000.parquet row=6" in reports[0]


def test_corpus_with_a_replacement_character_names_the_document(paths: Paths) -> None:
    texts = corpus_texts(paths)
    texts["train"][17] = "lost\ufffd" + texts["train"][17]
    write_corpus(paths, texts)
    message = refused(validate_corpus, paths, "corpus")
    assert "row=17" in message and "file=train-00000.parquet" in message and "begins=lost" in message
    assert failed_checks(paths, "corpus") == {
        "no replacement characters (U+FFFD): text that was decoded wrongly and is lost"
    }


def test_corpus_with_control_character_duplicate_and_short_document_names_all_three(paths: Paths) -> None:
    texts = corpus_texts(paths)
    texts["train"][3] = texts["train"][2]
    texts["train"][5] += "\x07"
    texts["heldout"][1] = "short"
    write_corpus(paths, texts)
    message = refused(validate_corpus, paths, "corpus")
    for row in ("row=2", "row=3", "row=5", "file=heldout-00000.parquet row=1"):
        assert row in message
    assert {"no document stands twice", "no control characters"} <= failed_checks(paths, "corpus")


def test_corpus_whose_held_out_split_overlaps_train_is_refused(paths: Paths) -> None:
    texts = corpus_texts(paths)
    texts["heldout"][4] = texts["train"][9]
    write_corpus(paths, texts)
    message = refused(validate_corpus, paths, "corpus")
    assert "no held-out document is in the training split" in message
    assert "file=heldout-00000.parquet row=4" in message


def test_corpus_without_held_out_documents_is_refused(paths: Paths) -> None:
    texts = corpus_texts(paths)
    write_corpus(paths, {"train": texts["train"], "heldout": []})
    assert "split=heldout -> documents=0" in refused(validate_corpus, paths, "corpus")


@pytest.mark.parametrize(
    ("share", "fits"), [(0.0049, False), (0.0051, True), (0.02, True), (0.069, True), (0.071, False)]
)
def test_whole_documents_may_make_the_held_out_share_a_quarter_or_some_points_more(
    share: float, fits: bool, tmp_path: Path
) -> None:
    suite = corpus_suite(Corpus.model_validate({"sources": [text_source()], "held_out_fraction": 0.02}))
    rules = [rule for rule in suite["totals"] if rule.column == "held_out_share"]  # type: ignore[attr-defined]
    tables = {"totals": Table(pd.DataFrame([{"held_out_share": share}]), [])}
    (check,) = run_checkpoint("corpus", tables, {"totals": rules}, Paths(tmp_path))
    assert (check.success, check.severity) == (fits, "warning")


def test_corpus_file_that_was_damaged_is_refused_without_a_traceback(paths: Paths) -> None:
    path = paths.corpus / "train-00000.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    assert "file=train-00000.parquet -> state=changed" in refused(validate_corpus, paths, "corpus")


def test_a_file_that_is_no_part_of_the_corpus_is_named(paths: Paths) -> None:
    shutil.copy(paths.corpus / "train-00000.parquet", paths.corpus / "backup-train.parquet")
    said = refused(validate_corpus, paths, "corpus")
    assert "file=backup-train.parquet -> state=not in the manifest" in said


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_vocabulary_that_is_missing_or_no_text_is_refused_with_what_to_do(
    paths: Paths, content: bytes | None
) -> None:
    file = paths.tokenizer / "vocab.txt"
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(DataError, match=r"(?s)vocab\.txt is missing, or is not UTF-8.*dvc repro -f tokenizer"):
        validate_shards(SETTINGS, paths)


def test_warnings_alone_are_printed_and_pass(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    texts = corpus_texts(paths)
    texts["train"][1] = texts["train"][0].upper()  # differs in case only
    write_corpus(paths, texts)
    validate_corpus(SETTINGS, paths)
    report = read_json(paths.results / "validation/corpus.json")
    assert report["success"] and report["failed_warning"] == 1
    assert "warning: expected: little text (by characters) is in another document too" in capsys.readouterr().out


def test_shard_with_a_flipped_byte_names_file_and_example(paths: Paths) -> None:
    path = paths.shards / "train-00000-00000.tokens.npy"
    content = bytearray(path.read_bytes())
    content[-40 * 16 * 2 + 7 * 16 * 2] ^= 0xFF  # the first token of example 7
    path.write_bytes(content)
    message = refused(validate_shards, paths, "shards")
    assert f"file={path.name} -> state=changed since it was written" in message
    assert f"file={path.name} row=7" in message


def test_shards_that_break_a_rule_are_refused_although_the_checksum_fits(paths: Paths) -> None:
    stem = str(paths.shards / "train-00000-00000")
    tokens, spans = np.load(f"{stem}.tokens.npy"), np.load(f"{stem}.spans.npy")
    tokens[1, 2] = 100  # vocabulary: 0..99
    tokens[2, spans[2, 0] - 1] = 9  # was [SEP]
    tokens[3, 1] = 0  # [PAD] inside
    spans[4] = (2, 5)  # first segment longer than the example
    np.save(f"{stem}.tokens.npy", tokens)
    np.save(f"{stem}.spans.npy", spans)
    renew_manifest(paths.shards)
    message = refused(validate_shards, paths, "shards")
    assert all(f"row={row} " in message for row in (1, 2, 3, 4))
    assert failed_checks(paths, "shards") >= {
        "token ids are in the vocabulary",
        "both segments end with [SEP]",
        "padding, and nothing else, is zero",
        "spans fit: 3 <= first segment <= tokens <= max_length",
        "tokens are as many as the manifest says",
    }


def test_an_example_whose_second_segment_has_no_text_is_refused(paths: Paths) -> None:
    stem = str(paths.shards / "train-00000-00000")
    tokens, spans = np.load(f"{stem}.tokens.npy"), np.load(f"{stem}.spans.npy")
    row, separator = tokens[1].copy(), tokens[1, spans[1, 0] - 1]
    tokens[1] = 0
    tokens[1, :5] = [row[0], row[1], row[2], separator, separator]  # [CLS] a b [SEP] [SEP]
    spans[1] = (5, 4)
    np.save(f"{stem}.tokens.npy", tokens)
    np.save(f"{stem}.spans.npy", spans)
    renew_manifest(paths.shards)
    assert "row=1 " in refused(validate_shards, paths, "shards")
    assert "spans fit: 3 <= first segment <= tokens <= max_length" in failed_checks(paths, "shards")


def test_vocabulary_with_an_entry_twice_and_a_space_is_refused(paths: Paths) -> None:
    path = paths.tokenizer / "vocab.txt"
    lines = path.read_text().split("\n")
    lines[50], lines[60] = lines[51], "two words"
    path.write_text("\n".join(lines))
    renew_manifest(paths.tokenizer)
    message = refused(validate_shards, paths, "shards")
    assert f"line=50 -> token={lines[51]}" in message and "line=60 -> token=two words" in message


def test_entries_of_a_given_vocabulary_are_taken_as_they_are(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    """Google's bert-base-chinese has U+2028 in two entries; a line feed in text never becomes one."""
    odd = {50: "\u2028", 51: "##\u2028", 52: "\u3000", 54: "a\rb", 53: "x" * 150}
    path = paths.tokenizer / "vocab.txt"
    lines = path.read_text().split("\n")
    entries = [odd.get(number, entry) for number, entry in enumerate(lines)]
    path.write_text("\n".join(entries))
    ids = {token: number for number, token in enumerate(entries[:100])}
    write_json(paths.tokenizer / "tokenizer.json", {"model": {"type": "WordPiece", "vocab": ids}})
    renew_manifest(paths.tokenizer)
    shards = read_json(paths.shards / "manifest.json")
    write_manifest(paths.shards, **{**shards, "tokenizer_sha256": sha256(paths.tokenizer / "tokenizer.json")})
    assert "line=50" in refused(validate_shards, paths, "shards")
    assert "no entry is longer than 100 characters" in failed_checks(paths, "shards")
    given = SETTINGS.tokenizer.model_copy(update={"vocab_file": "vocab.txt"})
    capsys.readouterr()
    validate_shards(SETTINGS.model_copy(update={"tokenizer": given}), paths)
    assert "no warnings" in capsys.readouterr().out


def test_tasks_with_wrong_label_and_wrong_score_name_the_lines(paths: Paths) -> None:
    rows = task_rows(paths, "MRPC", "dev")
    rows[6]["label"] = "7"
    write_lines(paths, "MRPC", "dev", rows)
    rows = task_rows(paths, "STS-B", "train")
    rows[2]["label"], rows[3]["text_b"], rows[5]["id"] = 5.5, " ", rows[4]["id"]
    write_lines(paths, "STS-B", "train", rows)
    renew_manifest(paths.tasks)
    message = refused(validate_tasks, paths, "tasks")
    assert "file=MRPC/dev.jsonl line=7 id=dev-6" in message and "label=7" in message
    assert all(f"file=STS-B/train.jsonl line={line}" in message for line in (3, 4, 6))


def test_tasks_with_wrong_answer_offset_and_broken_line_name_the_lines(paths: Paths) -> None:
    rows = task_rows(paths, "SQuAD1.1", "train")
    rows[11]["answers"][0]["start"] += 1
    write_lines(paths, "SQuAD1.1", "train", rows)
    path = paths.tasks / "SQuAD1.1/dev.jsonl"
    path.write_text(path.read_text().replace('{"id": "q3"', '{"id": q3'))
    renew_manifest(paths.tasks)
    message = refused(validate_tasks, paths, "tasks")
    assert "file=SQuAD1.1/train.jsonl line=12 id=q11" in message and "for the answer" in message
    assert "file=SQuAD1.1/dev.jsonl line=4" in message and "record=not JSON" in message


def test_task_with_one_class_only_is_refused_and_overlap_warned_of(
    paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    write_lines(paths, "MRPC", "dev", [{**row, "label": "1"} for row in task_rows(paths, "MRPC", "train")][:10])
    renew_manifest(paths.tasks)
    message = refused(validate_tasks, paths, "tasks")
    assert "file=MRPC/dev.jsonl" in message and "labels_absent=0" in message
    assert "warning: expected: few texts of dev and test are in train" in capsys.readouterr().out


def test_a_class_that_nearly_all_rows_have_and_a_tiny_development_set_are_warned_of(
    paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = task_rows(paths, "MRPC", "dev")
    write_lines(
        paths, "MRPC", "dev", [{**row, "label": "1" if number else "0"} for number, row in enumerate(rows[:99])]
    )
    facts = read_json(paths.tasks / "manifest.json")
    facts["tasks"]["MRPC"]["rows"]["dev"] = 99
    write_json(paths.tasks / "manifest.json", facts)
    renew_manifest(paths.tasks)
    validate_tasks(SETTINGS, paths)
    printed = capsys.readouterr().out
    assert "file=MRPC/dev.jsonl rows=99 official_rows=408 -> dev_rows=99" in printed
    assert "no class has more than nine tenths of a split" in printed and "majority_share=0.98" in printed
    statistics = read_json(paths.results / "validation/tasks.json")["statistics"]
    assert statistics["MRPC"]["dev_majority_share"] == pytest.approx(98 / 99, abs=1e-6)
    assert "dev_majority_share" not in statistics["SQuAD1.1"]


def test_what_has_moved_since_the_last_commit_is_told_and_not_in_the_report(
    paths: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    validate_corpus(SETTINGS, paths)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(paths.root)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "results"], check=True)
    subprocess.run([*git, "commit", "-qm", "before"], check=True)
    assert "at the last commit" not in capsys.readouterr().out
    texts = corpus_texts(paths)
    texts["train"] = [f"{text} {number} and more words" * 2 for number, text in enumerate(texts["train"])]
    write_corpus(paths, texts)
    validate_corpus(SETTINGS, paths)
    printed = capsys.readouterr().out
    assert "validate_corpus: characters_per_document was " in printed and "at the last commit and is " in printed
    assert "documents was 60" not in printed, "what has not moved is not told"
    assert "last commit" not in (paths.results / "validation/corpus.json").read_text()


def test_shares_drift_by_a_point_and_counts_by_a_tenth() -> None:
    before = {"rows": 100, "pad_share": 0.001, "MRPC": {"dev_rows": 50, "new": 3}, "zero": 0}
    now = {"rows": 109, "pad_share": 0.009, "MRPC": {"dev_rows": 44}, "zero": 2, "more": 1}
    assert drift(now, before) == [
        "MRPC.dev_rows was 50 at the last commit and is 44 now (-12%)",
        "zero was 0 at the last commit and is 2 now",
    ]


def test_entries_that_training_never_shows_are_counted_without_the_special_ones(sound: Paths, paths: Paths) -> None:
    tokens = np.load(paths.shards / "train-00000-00000.tokens.npy")
    share = 1 - len(set(tokens.ravel().tolist()) - set(range(5))) / 95
    report = read_json(sound.results / "validation/shards.json")
    assert report["statistics"]["unused_entries_share"] == pytest.approx(share, abs=1e-6)
    tokens[tokens > 40] = 40
    np.save(paths.shards / "train-00000-00000.tokens.npy", tokens)
    renew_manifest(paths.shards)
    validate_shards(SETTINGS, paths)
    assert failed_checks(paths, "shards") == {"most entries of the vocabulary occur in the training text"}
