"""`electra predict` over files and pipes."""

import csv
import io
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from electra.common.errors import ConfigError, DataError
from electra.common.paths import Paths
from electra.predict.inputs import Rows, impatient_windows, windows
from electra.predict.run import predict_file, writing
from tests.small_tasks import CPU, predict

ROOT = Path(__file__).resolve().parents[2]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


def command(*arguments: str, paths: Paths, **options) -> subprocess.Popen:
    full = [sys.executable, "-m", "electra", "predict", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(full, cwd=paths.root, env=environment, text=True, **{**streams, **options})


def test_all_formats_of_input_say_the_same(paths, kept, tmp_path):
    cell = kept("STS-B")
    pairs = [("the cat", 'a "big", red dog'), ("mary ran", "john sat\nin the park"), ("good", "bad")]
    plain = [(a, b.replace("\n", " ")) for a, b in pairs]
    jsonl = "".join(json.dumps({"text_a": a, "text_b": b}) + "\n" for a, b in pairs)
    table = tmp_path / "in.csv"
    with open(table, "w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows([("text_b", "x", "text_a"), *((b, "1", a) for a, b in pairs)])
    tabs = "premise\thypothesis\n" + "".join(f"{a}\t{b}\n" for a, b in plain)
    found = predict(paths, cell, write(tmp_path / "in.jsonl", jsonl))
    assert [record["id"] for record in found] == [1, 2, 3]
    assert predict(paths, cell, table) == found
    columns = ("premise", "hypothesis")
    assert predict(paths, cell, write(tmp_path / "in.tsv", tabs), text_columns=columns) == found
    assert predict(paths, cell, write(tmp_path / "x.dat", jsonl), input_format="jsonl") == found


@pytest.mark.parametrize(
    ("format", "content"),
    [
        ("jsonl", '\n{"t": "a"}\n \n\n{"t": "b"}\r\n\n'),
        ("csv", "\nt\n\na\n\nb\n\n\n"),
        ("tsv", "t\na\r\nb\r\n\r\n\n"),
        ("lines", "a\nb\n\n\n"),
    ],
)
def test_blank_lines_are_no_rows(format, content):
    rows = Rows(io.BytesIO(content.encode()), format, ("t",), ("t",), "here")
    assert list(rows) == [{"id": 1, "t": "a"}, {"id": 2, "t": "b"}]


@pytest.mark.parametrize("text", ["a\rb", "a\r\nb", "a\nb", 'a"b', "a,b"])
def test_a_text_in_csv_output_is_read_back_as_it_was(text, tmp_path):
    records = [{"id": 0, "choice": "plain"}, {"id": 1, "choice": text}, {"id": 2, "choice": None}]
    with writing(tmp_path / "out.csv", "csv") as write:
        write(records)
        write(records[:1])
    with open(tmp_path / "out.csv", encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [["id", "choice"], ["0", "plain"], ["1", text], ["2", ""], ["0", "plain"]]
    assert (tmp_path / "out.csv").read_bytes().startswith(b"id,choice\n0,plain\n")


def test_ids_in_csv_output_may_be_objects_with_different_keys(tmp_path):
    ids = [{"a": 1}, {"b": [2]}, 3, [4]]
    with writing(tmp_path / "out.csv", "csv") as write:
        write([{"id": id, "label": "x"} for id in ids])
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [(json.loads(row["id"]), row["label"]) for row in rows] == [(id, "x") for id in ids]


def test_csv_output_has_a_column_for_each_probability(paths, kept, tmp_path):
    cell = kept("CoLA")
    source = write(tmp_path / "in.txt", "the cat is good\nthe dog is bad\r\n")
    records = predict(paths, cell, source)
    predict_file(CPU, paths, cell, source, tmp_path / "out.csv", format="csv")
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert list(rows[0]) == ["id", "label", "probabilities.0", "probabilities.1"]
    for row, record in zip(rows, records, strict=True):
        assert (row["id"], row["label"]) == (str(record["id"]), record["label"])
        assert float(row["probabilities.1"]) == record["probabilities"]["1"]


MALFORMED = {
    "broken.jsonl": (b'{"text_a": "a"}\n{"text_a": "b"\n', 2, "not valid JSON"),
    "array.jsonl": (b'["a"]\n', 1, "not a JSON object"),
    "missing.jsonl": (b'{"text_a": "a"}\n{"text": "b"}\n', 2, "'text_a' is missing"),
    "number.jsonl": (b'{"text_a": 5}\n', 1, "'text_a' holds no text"),
    "empty.txt": (b"a\n\nb\n", 2, "is empty"),
    "gap.txt": (b"a\n\n\nb\n", 2, "is empty"),
    "gap.tsv": (b"text_a\tlabel\na\t1\n\nb\t1\n", 3, "is empty"),
    "latin.txt": (b"a\nb\n\xe9t\xe9\n", 3, "not UTF-8"),
    "long.csv": (b"text_a,label\na,1\nb,1,2\n", 3, "3 cells, the header has 2"),
    "quote.csv": (b'text_a\na\n"b\n', 3, "not valid CSV"),
    "short.tsv": (b"text_a\tlabel\na\n", 2, "1 cells, the header has 2"),
    "column.csv": (b"text,label\na,1\n", 1, "no column text_a; the columns are: text, label"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_line_is_named_with_its_number_and_nothing_is_written(paths, kept, tmp_path, name):
    content, line, message = MALFORMED[name]
    (tmp_path / name).write_bytes(content)
    output = write(tmp_path / "out.jsonl", "what was there before\n")
    with pytest.raises(DataError, match=message) as caught:
        predict_file(CPU, paths, kept("CoLA"), tmp_path / name, output)
    assert f"{name}:{line}\n" in str(caught.value)
    assert output.read_text() == "what was there before\n"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".out")]


def test_json_on_standard_input_is_read_as_json_and_never_labelled_as_text(paths, kept, tmp_path, monkeypatch, capsys):
    cell = kept("CoLA")

    def piped(content: str) -> list[dict]:
        with open(write(tmp_path / "pipe", content), "rb") as file:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
            predict_file(CPU, paths, cell, None)
        return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]

    texts = ["the cat is good", "the dog is bad"]
    plain = piped("".join(f"{text}\n" for text in texts))
    rows = "".join(json.dumps({"id": f"n{i}", "text_a": text}) + "\n" for i, text in enumerate(texts))
    assert piped(rows) == [{**record, "id": f"n{i}"} for i, record in enumerate(plain)]
    assert [r["id"] for r in piped("\ufeff" + rows)] == ["n0", "n1"]
    assert len(piped("{the cat} is good\n[the dog] is bad\n")) == 2, "brackets in a text"
    for content, message in (
        ('{"sentence": "the cat"}\n', "'text_a' is missing"),
        ('[{"text_a": "the cat"}]\n', "not a JSON object"),
        ('{\n  "text_a": "the cat"\n}\n', "not valid JSON"),
    ):
        with pytest.raises(DataError, match=message):
            piped(content)
    assert piped("") == []


def test_wrong_command_lines_are_refused(paths, kept, tmp_path):
    cell = kept("STS-B")
    source = write(tmp_path / "in.txt", "the cat\n")
    with pytest.raises(ConfigError, match="plain lines hold one text"):
        predict(paths, cell, source, input_format="lines")
    with pytest.raises(ConfigError, match="has 2 texts"):
        predict(paths, cell, source, text_columns=("a",))
    with pytest.raises(ConfigError, match=r"no fine-tuning run and no folder 'CoLA-9'[\s\S]*STS-B-1-scratch"):
        predict(paths, "CoLA-9", source)
    with pytest.raises(DataError, match="cannot be read"):
        predict(paths, cell, tmp_path / "nothing.jsonl")
    with pytest.raises(DataError, match="there is no folder"):
        predict_file(CPU, paths, cell, source, tmp_path / "no/where.jsonl")


def test_the_length_of_texts_does_not_change_the_order(paths, kept, tmp_path):
    cell = kept("CoLA")
    texts = [" ".join(["the cat is", ("good", "bad")[i % 2]] * (1 + i * 7 % 3)) for i in range(10_000)]
    source = write(
        tmp_path / "in.jsonl", "".join(json.dumps({"id": f"n{i}", "text_a": t}) + "\n" for i, t in enumerate(texts))
    )
    found = predict(paths, cell, source, batch_size=256)
    assert [record["id"] for record in found] == [f"n{i}" for i in range(10_000)]
    by_text: dict[str, list[float]] = {}
    for text, record in zip(texts, found, strict=True):
        by_text.setdefault(text, []).append(record["probabilities"]["1"])
    assert len(by_text) == 6
    for values in by_text.values():
        assert max(values) - min(values) < 1e-4
    assert len({round(values[0], 3) for values in by_text.values()}) > 1


def test_output_comes_before_a_slow_input_ends(paths, kept):
    process = command(kept("CoLA"), "-", paths=paths)
    try:
        process.stdin.write("the cat is good\nthe dog is bad\n")
        process.stdin.flush()
        first = [json.loads(process.stdout.readline()) for _ in range(2)]  # the pipe is still open
        assert [record["id"] for record in first] == [1, 2]
        process.stdin.write("the dog is good\n")
        out, err = process.communicate(timeout=240)
        assert json.loads(out)["id"] == 3
        assert process.returncode == 0 and "predict: 3 rows" in err
    finally:
        process.kill()


def test_the_command_ends_with_3_for_bad_data_and_2_for_a_bad_command(paths, kept):
    cell = kept("CoLA")
    process = command(cell, "-", "--input-format", "jsonl", paths=paths)
    out, err = process.communicate('{"text_a": "the cat"}\n{"text": 1}\n', timeout=240)
    assert process.returncode == 3
    assert "standard input:2" in err and "Traceback" not in err
    assert json.loads(out)["id"] == 1
    process = command("nothing", "-", paths=paths)
    assert process.wait(240) == 2


def test_a_reader_that_has_had_enough_is_no_error(paths, kept):
    process = command(kept("CoLA"), "-", paths=paths)

    def feed():
        try:
            for _ in itertools.repeat(None, 200_000):
                process.stdin.write("the cat is good\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass

    threading.Thread(target=feed, daemon=True).start()
    assert json.loads(process.stdout.readline())["id"] == 1
    process.stdout.close()
    assert process.wait(240) == 0
    assert "Traceback" not in (text := process.stderr.read()) and "Fatal" not in text


def test_an_output_that_is_the_input_is_refused_and_the_input_is_whole(paths, kept):
    """By its name, by a link, as standard input, and as what the shell appends to."""
    cell, text = kept("CoLA"), "the cat is good\n" * 3
    source = write(paths.root / "in.txt", text)
    os.link(source, paths.root / "hard.txt")
    (paths.root / "link.txt").symlink_to("in.txt")
    for output in ("in.txt", "hard.txt", "link.txt"):
        with pytest.raises(ConfigError, match=f"{output} is .* would be lost"):
            predict_file(CPU, paths, cell, source, paths.root / output)
    with open(source, "rb") as opened:
        process = command(cell, "-", "--output", "link.txt", paths=paths, stdin=opened)
        assert "link.txt is standard input" in process.communicate(timeout=240)[1] and process.returncode == 2
    with open(source, "ab") as appended:
        process = command(cell, "in.txt", paths=paths, stdout=appended)
        assert "standard output is" in process.communicate(timeout=240)[1] and process.returncode == 2
    assert source.read_text() == text


def test_standard_output_by_its_path_goes_through_a_pipe_whose_reader_may_leave(paths, kept):
    cell = kept("CoLA")
    write(paths.root / "in.txt", "the cat is good\n" * 20_000)
    process = command(cell, "in.txt", "--output", "/dev/stdout", paths=paths)
    assert json.loads(process.stdout.readline())["id"] == 1
    process.stdout.close()
    assert process.wait(240) == 0
    assert "Traceback" not in (text := process.stderr.read()) and "Exception" not in text, text
    write(paths.root / "in.txt", "the cat is good\n" * 2)
    out, _ = command(cell, "in.txt", "--output", "/dev/stdout", paths=paths).communicate(timeout=240)
    plain, _ = command(cell, "in.txt", paths=paths).communicate(timeout=240)
    assert out == plain and out.count("\n") == 2


def test_a_window_waits_for_rows_that_come_at_once_and_not_for_those_that_do_not():
    def rows():
        yield from ({"id": i} for i in range(5))
        time.sleep(0.6)
        yield {"id": 5}
        raise DataError("broken")

    sizes = []
    with pytest.raises(DataError, match="broken"):
        for window in impatient_windows(rows(), 3):
            sizes.append(len(window))
    assert sizes == [3, 2, 1]


def test_reading_keeps_no_more_than_it_has_to():
    endless = (f'{{"text_a": "line {i}"}}\n'.encode() for i in itertools.count())
    rows = iter(Rows(endless, "jsonl", ("text_a",), ("text_a",), "x"))
    assert [next(rows)["text_a"] for _ in range(3)] == ["line 0", "line 1", "line 2"]
    taken = []
    counted = ({"id": taken.append(i) or i} for i in itertools.count())
    assert len(next(windows(counted, 100))) == 100 == len(taken)
    waiting = ({"id": taken.append(i) or i} for i in itertools.count())
    next(impatient_windows(waiting, 100))
    time.sleep(0.2)
    assert len(taken) <= 100 + 100 + 101  # the window, what waits behind it, and one in the hand
