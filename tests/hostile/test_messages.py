"""Messages: no terminal control sequences, bounded length, no advice from libraries that does not apply here."""

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from electra.common import printing
from electra.common.errors import ConfigError, DataError
from electra.common.parsing import parse_json
from electra.common.printing import PlainStream, listed, printable, shortened
from electra.finetune.encoders import EncoderSource, load_transformers_encoder
from electra.hub.importing.huggingface import import_huggingface
from electra.hub.importing.resize import resize_vocabulary
from electra.predict.inputs import Rows
from electra.readers.tables import read_table
from electra.text.corpus.file_formats import jsonl_documents
from tests.foreign_encoders import write_encoder
from tests.hostile.test_weights import electra_folder

ROOT = Path(__file__).resolve().parents[2]
EVIL = "a\x1b]0;owned\x07\x1b[2Jb\x9b31m\x7f\u202egpj.txt"


@pytest.mark.parametrize("character", [chr(n) for n in (*range(9), *range(11, 32), *range(127, 160), 0x202E, 0xD800)])
def test_characters_that_control_a_terminal_are_shown_as_escapes(character: str) -> None:
    error = DataError(f"a{character}b", where=f"c{character}d", next_step=f"e{character}f")
    assert character not in str(error)
    str(error).encode()
    assert f"\\x{ord(character):02x}" in str(error) or f"\\u{ord(character):04x}" in str(error)


def test_texts_of_all_languages_stay_as_they_are() -> None:
    text = "naïve 日本語 हिन्दी عربي 👩‍👩‍👧 \t\n“quotes”"
    assert printable(text) == text and str(DataError(text)) == text
    assert printable("\udcff") == r"\xff"  # a byte of a name that is not UTF-8


def test_a_message_is_not_endless() -> None:
    error = DataError("x" * 10**6, where="y" * 10**6, next_step="z" * 10**6)
    assert len(str(error)) < 15_000 and "characters left out" in str(error)
    assert shortened("abc", 3) == "abc"
    assert listed(range(3)) == "0, 1, 2"
    assert len(listed("k" * 10**5 for _ in range(10**4))) < 10_000


KEYS = {f"key {number}": number for number in range(20_000)}


def test_20_000_keys_are_not_listed(tmp_path: Path) -> None:
    line = json.dumps(KEYS)
    (tmp_path / "a.jsonl").write_text(line + "\n")
    (tmp_path / "a.csv").write_text(",".join(KEYS) + "\n")
    reading = [
        lambda: list(jsonl_documents(io.BytesIO(line.encode()), "a.jsonl", "text")),
        lambda: list(read_table(tmp_path / "a.jsonl", ["text"])),
        lambda: list(read_table(tmp_path / "a.csv", ["text"])),
        lambda: list(Rows([line.encode()], "jsonl", ("text_a",), ("text",), "a.jsonl")),
        lambda: list(Rows([",".join(KEYS).encode()], "csv", ("text_a",), ("text",), "a.csv")),
    ]
    for read in reading:
        with pytest.raises((DataError, ConfigError)) as caught:
            read()
        assert "text" in str(caught.value) and len(str(caught.value)) < 1500


def on_a_terminal(*command: str, cwd: Path) -> bytes:
    """Everything that a process writes to its terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    output = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            output += chunk
    except OSError:  # the terminal is closed
        pass
    process.wait()
    os.close(ours)
    return output


@pytest.mark.parametrize(
    "command",
    [
        [EVIL],
        ["config", EVIL],
        ["import-huggingface", EVIL, "x"],
    ],
    ids=lambda command: command[0] if command[0] != EVIL else "no command",
)
def test_names_do_not_control_the_terminal(command: list[str], tmp_path: Path) -> None:
    output = on_a_terminal(sys.executable, "-m", "electra", *command, cwd=tmp_path)
    assert b"owned" in output
    text = output.decode()
    assert "\x07" not in text and "\x9b" not in text and "\u202e" not in text
    assert text.replace("\x1b[1m", "").replace("\x1b[0m", "").count("\x1b") == 0


def test_help_is_bold_on_a_terminal(tmp_path: Path) -> None:
    assert b"\x1b[1m" in on_a_terminal(sys.executable, "-m", "electra", "--help", cwd=tmp_path)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_only_a_terminal_is_spared_what_json_may_hold() -> None:
    for stream, expected in [(io.StringIO(), "\x7f\x9b \\x1b[2J"), (Terminal(), "\\x7f\\x9b \\x1b[2J")]:
        print("\x7f\x9b \x1b[2J", file=PlainStream(stream), end="")
        assert stream.getvalue() == expected


def test_a_progress_bar_still_draws() -> None:
    stream = Terminal()
    Console(file=printing.raw_stream(PlainStream(stream)), force_terminal=True).print("[red]x[/red]")  # type: ignore[arg-type]
    assert "\x1b[31m" in stream.getvalue()


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_a_locale_that_is_not_utf_8_ends_no_command(encoding: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "electra", "import-huggingface", "模型", "ziel"],
        cwd=tmp_path, capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding},
    )  # fmt: skip
    assert done.returncode == 2 and b"Traceback" not in done.stderr
    assert rb"\u6a21\u578b" in done.stderr


# ---- what libraries say


def folder_with_config(folder: Path, **changes: object) -> Path:
    write_encoder(folder, "bert")
    facts = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**facts, **changes}))
    return folder


CODE = {"AutoConfig": "configuration.Config", "AutoModel": "modeling.Model"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "mine", "auto_map": CODE}, "custom code, which is never run"),
        ({"model_type": "mine"}, "does not recognize this architecture"),
        ({"vocab_size": 2_000_000_000}, r"\(86, 16\) in the weights, \(2000000000, 16\) by config.json"),
        ({"vocab_size": 10**30}, "cannot load it"),
        ({"max_position_embeddings": 10**12}, "by config.json"),
        ({"hidden_size": -1}, "cannot load it"),
        ({"num_attention_heads": 0}, "cannot load it"),
    ],
)
def test_advice_of_a_library_is_not_passed_on(changes: dict[str, object], said: str, tmp_path: Path) -> None:
    folder = folder_with_config(tmp_path / "encoder", **changes)
    with pytest.raises((ConfigError, DataError), match=said) as caught:
        load_transformers_encoder(EncoderSource.named(folder, "e"), 16)
    message = str(caught.value)
    assert caught.value.next_step and len(message) < 1000
    for advice in ("trust_remote_code", "above report", "pip install", "ignore_mismatched_sizes", "frame #"):
        assert advice not in message


def test_weights_that_no_stage_makes_are_not_said_to_be_made_by_one(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    with pytest.raises(DataError) as caught:
        resize_vocabulary(tmp_path / "none", tmp_path / "vocab.txt", tmp_path / "new")
    assert "run the stage" not in str(caught.value) and "name a folder of pre-trained weights" in str(caught.value)


# ---- encodings


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-16-le"])
@pytest.mark.parametrize("name", ["tokenizer_config.json", "config.json"])
def test_a_json_file_in_another_encoding_is_refused(name: str, encoding: str, tmp_path: Path) -> None:
    electra_folder(folder := tmp_path / "model")
    content = (folder / name).read_text() if (folder / name).is_file() else '{"do_lower_case": true}'
    (folder / name).write_text(content, encoding=encoding)
    with pytest.raises(DataError, match="not UTF-8|not valid JSON") as caught:
        import_huggingface(folder, None, tmp_path / "imported")
    assert name in str(caught.value)
    assert parse_json(b'\xef\xbb\xbf{"a": 1}\n', where="x") == {"a": 1}
