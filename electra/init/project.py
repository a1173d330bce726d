"""`electra init`: writes settings for a user's texts and table, and estimates the duration of a run.

All inputs are checked before anything is written, and no file is overwritten.
"""

import fnmatch
import glob
import io
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString
from yaml import ScalarNode
from yaml.resolver import Resolver

from electra.common.artifacts import write_text
from electra.common.errors import ConfigError, DataError
from electra.common.lines import open_input
from electra.common.parsing import read_yaml
from electra.config import FilesCorpus, Settings
from electra.config.loading import parse_settings
from electra.config.text import MANY_PARAGRAPHS, PARAGRAPH_CHARS
from electra.init.script import Script, scripts_of
from electra.init.table import OWN, Table, check_name, read_labelled
from electra.text.corpus.compression import SUFFIXES
from electra.text.corpus.files import FORMATS, FilePart, InputFile, find_files

SAMPLE = 1 << 18  # bytes sampled from a text file
LOOKED_AT = 20  # text files sampled from a corpus
COUNTED = 16_000_000  # maximum bytes of text for counting words
BYTES_PER_ENTRY = 120  # bytes of text per entry of the vocabulary
COMPRESSION = 3.5  # approximate compression ratio of English text
BYTES_PER_TOKEN = 4.5
PASSES = 20  # passes over the text, for profiles whose steps are not a published recipe
MIN_ENTRIES = 100  # minimum of tokenizer.vocab_size
EXAMPLES = (32_000, 384_000)  # minimum and maximum number of pre-training examples


@dataclass(frozen=True)
class Texts:
    """Text files that were found.

    Attributes:
        patterns: paths for ``corpus.sources``.
        num_bytes: bytes of text; estimated for compressed files.
        documents: separator of documents in text files; ``reason``: why it was chosen.
        scripts: scripts in a sample of the local files.
        vocabulary: number of vocabulary entries for which the text is large enough.
    """

    patterns: list[str]
    field: str
    files: list[InputFile]
    num_bytes: int
    documents: str
    reason: str
    scripts: list[Script]
    vocabulary: int

    @property
    def keeps_marks(self) -> bool:
        """Whether stripping marks would change letters of a script in which they are regular."""
        return any(script.keeps_marks for script in self.scripts)

    @property
    def size(self) -> str:
        """Number of files and their size, as text for the user."""
        size = self.num_bytes
        shown = f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size:,} bytes"
        about = "about " if any(file.compression for file in self.files) else ""
        return f"{len(self.files)} {'file' if len(self.files) == 1 else 'files'}, {about}{shown}"


@dataclass(frozen=True)
class Plan:
    """Files to write with their contents, and the texts and table they are based on."""

    files: dict[Path, str]
    settings: Settings
    texts: Texts
    table: Table | None


def plan_project(
    texts: list[str],
    *,
    root: Path = Path("."),
    name: str | None = None,
    like: str = "tiny",
    table: Path | None = None,
    dev: Path | None = None,
    text_columns: list[str] | None = None,
    label: str | None = None,
    cased: bool = False,
    field: str = "text",
    encoding: str = "utf-8",
    steps: int | None = None,
) -> Plan:
    """Inspect texts and table and return the files of ``electra init``, without writing them.

    Args:
        texts: files, folders, globs or URLs; relative to ``root``.
        name: name of the profile; None: derived from the first text.
        like: the profile whose recipe and model sizes are used.
        table, dev: labelled tables; without ``dev``, a part of ``table`` is held out for development.
        text_columns: text columns of the table; two for tasks on pairs of texts.
        label: column of the table with the label or the score.
        field: field of .jsonl and .parquet files with the text.
        steps: steps of pre-training; None: by the size of the text.

    Raises:
        ConfigError: a file would be overwritten, a name cannot be used, or columns are missing.
        DataError: there is no text, or a file cannot be read.
    """
    profile = name or _name_of(texts[0])
    check_name(profile, "--name")
    _template(root, like)  # a wrong --like is refused before the texts are read
    found = _find_texts(texts, root, field, encoding)
    target = Path("params") / f"{profile}.yaml"
    labelled = read_labelled(root, table, dev, text_columns or [], label, encoding) if table else None
    values = _profile(root, like, profile, found, labelled, cased, encoding, steps)
    files = {target: _header(profile, like, found, cased) + _yaml(values)}
    if labelled:
        files[OWN / f"{labelled.name}.yaml"] = _yaml(labelled.description)
        files |= {OWN / labelled.name / f"{split}.jsonl": lines for split, lines in labelled.splits.items()}
    if there := [str(path) for path in files if (root / path).exists()]:
        raise ConfigError(
            f"already there, and not written over: {', '.join(there)}",
            next_step=f"choose another name: electra init ... --name {profile}-2, or remove it first",
        )
    common = _common(root, profile, [labelled.name] if labelled else [])
    files[Path("params.yaml")] = common
    if lines := _ignored(root, found, table, dev, labelled):
        files[Path(".gitignore")] = lines
    merged: dict[str, Any] = YAML(typ="safe").load(common)
    merged |= {key: {**merged.get(key, {}), **value} for key, value in values.items()}
    return Plan(files, parse_settings(merged, where=str(target)), found, labelled)


def write_project(plan: Plan, root: Path = Path(".")) -> None:
    """Write the planned files; ``params.yaml`` last, so that it never names a missing profile."""
    for path in sorted(plan.files, key=lambda path: path == Path("params.yaml")):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        write_text(root / path, plan.files[path])


def describe_project(plan: Plan, minutes: float | None, used_by_others: float = 0.0) -> str:
    """Return a summary for the user: inputs, files written, estimated duration of a run, next commands.

    Args:
        minutes: estimated duration of the run; None: not shown.
        used_by_others: cores that other processes used during the measurement.
    """
    settings, texts, table = plan.settings, plan.texts, plan.table
    steps = settings.pretrain.num_steps
    tokens = steps * settings.pretrain.batch_size * settings.shards.max_length
    passes = tokens * BYTES_PER_TOKEN / texts.num_bytes
    lines = [("found", f"{texts.size}{'' if minutes is None else f', about {_duration(minutes)} on this machine'}")]
    lines += [("", text) for text in _choices(texts, not settings.tokenizer.lowercase)]
    if table:
        rows = ", ".join(f"{split} {number:,}" for split, number in table.rows.items())
        lines.append(("", f"{table.path}: {rows} rows, {table.labels}"))
    lines += [
        ("wrote", ", ".join(str(path) for path in plan.files)),
        ("run", f"{steps:,} steps of pre-training, about {passes:,.0f} passes over the text"),
    ]
    if minutes is not None and used_by_others >= 0.5:
        lines.append(("load", f"other processes use {used_by_others:.1f} cores now: a run alone is faster"))
    if texts.num_bytes < 1e6:
        lines.append(("warning", "less than 1 MB of text: enough to try the pipeline, too little for a useful encoder"))
    lines += [("next", "make run"), ("", "less results/report.md")]
    return "".join(f"{head:<9}{text}\n" for head, text in lines)


def _duration(minutes: float) -> str:
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def _find_texts(given: list[str], root: Path, field: str, encoding: str) -> Texts:
    patterns = [pattern for text in given for pattern in _patterns(text, root)]
    files = find_files([pattern if "://" in pattern else str(root / pattern) for pattern in patterns])
    sizes = {file.name: file.filesystem.size(file.path) or 0 for file in files}
    num_bytes = sum(int(sizes[file.name] * (COMPRESSION if file.compression else 1)) for file in files)
    plain = [file for file in files if file.is_local and not file.compression and file.format == ".txt"]
    if not num_bytes:
        raise DataError("the files are empty", where=", ".join(given), next_step="name files with text")
    looked = [_look(Path(file.path), encoding) for file in _spread(plain)]
    documents, reason = _documents(looked, len(plain))
    scripts = scripts_of("\n".join(_beginning(file, field, encoding) for file in _spread(files) if file.is_local))
    return Texts(
        patterns, field, files, num_bytes, documents, reason, scripts, _vocabulary(files, plain, num_bytes, encoding)
    )


def _spread(files: list[InputFile]) -> list[InputFile]:
    """Return at most ``LOOKED_AT`` of the files, evenly spaced."""
    return files[:: -(-len(files) // LOOKED_AT) or 1]


def _beginning(file: InputFile, field: str, encoding: str) -> str:
    """Return the first ``SAMPLE`` characters of a file's lines or documents.

    Raises:
        DataError: the file cannot be read, or does not have the field.
    """
    source = FilesCorpus(
        kind="files", name="sample", paths=[file.path], text_field=field, encoding=encoding, documents="line"
    )
    texts, size = [], 0
    try:
        for text in FilePart(file, source, None).texts():
            texts.append(text[: SAMPLE - size])
            size += len(texts[-1])
            if size >= SAMPLE:
                break
    except DataError as error:
        if "text_field" not in (error.next_step or ""):
            raise
        step = "name the one with the text: electra init ... --field NAME"
        raise DataError(error.what, where=error.where, next_step=step) from None
    return "\n".join(texts)


def _vocabulary(files: list[InputFile], plain: list[InputFile], num_bytes: int, encoding: str) -> int:
    """Return a lower bound on the entries of a vocabulary of these texts: each word that occurs twice becomes one.

    A fifth is subtracted for text that cleaning removes. Large texts and files other than plain .txt are estimated by
    their size.
    """
    if len(plain) < len(files) or num_bytes > COUNTED:
        return num_bytes // BYTES_PER_ENTRY
    words: Counter[str] = Counter()
    for file in plain:
        words.update(re.findall(r"\w+", Path(file.path).read_text(encoding, errors="ignore").lower()))
    characters = {character for word in words for character in word}
    return len(characters) + int(0.8 * sum(count > 1 for count in words.values()))


def _patterns(text: str, root: Path) -> list[str]:
    """Return globs for the formats of the files in a folder, or any other path or URL as one pattern.

    Paths in the workspace become relative to it.
    """
    if "://" in text:
        return [text]
    if not glob.has_magic(text) and not (root / text).exists():
        raise ConfigError(f"no file matches {text}", where="the texts", next_step="correct the path of your texts")
    path = _shown(root / text, root)
    if not (root / text).is_dir():
        return [path]
    found: set[str] = set()
    for file in (root / text).rglob("*"):
        suffixes = file.suffixes[-2:] if file.suffix in SUFFIXES else file.suffixes[-1:]
        if file.is_file() and suffixes and suffixes[0] in FORMATS:
            found.add(f"{glob.escape(path)}/**/*{''.join(suffixes)}")
    if not found:
        raise DataError(
            f"no text in it: no file ends in {', '.join(FORMATS)}",
            where=text,
            next_step="name the files, or convert them; labelled tables go to --table",
        )
    if all(file.parent == root / text for file in (root / text).rglob("*") if file.is_file()):
        return sorted(pattern.replace("/**/", "/") for pattern in found)
    return sorted(found)


def _shown(path: Path, root: Path) -> str:
    """Return a path in the workspace relative to it, any other path as absolute."""
    absolute = Path(os.path.abspath(path))
    inside = absolute.is_relative_to(root.absolute())
    return str(absolute.relative_to(root.absolute()) if inside else absolute)


@dataclass(frozen=True)
class Look:
    """Statistics of the beginning of a text file.

    Attributes:
        documents: separator of documents, estimated from this file alone.
        blocks: number of blocks between blank lines, estimated for the whole file.
        block_characters: mean characters of a block.
    """

    documents: str
    blocks: int
    block_characters: float


def _documents(looked: list[Look], num_files: int) -> tuple[str, str]:
    """Return the separator of documents in the text files, and the reason; many short blocks count as paragraphs."""
    if not looked:
        return "blank_line", ""
    most = Counter(look.documents for look in looked).most_common(1)[0][0]
    chosen = sorted((look for look in looked if look.documents == most), key=lambda look: look.blocks)
    middle = chosen[len(chosen) // 2]
    blocks, characters = middle.blocks, middle.block_characters
    if most == "line":
        return most, "long lines, without blank lines between them: a line is a document"
    if most == "file":
        return most, "no blank lines, and lines are short: a file is a document"
    what = f"{blocks:,} blocks of {characters:,.0f} characters between blank lines"
    is_short = blocks >= MANY_PARAGRAPHS and characters < PARAGRAPH_CHARS
    if is_short and num_files > 1:
        return "file", f"files have about {what}, which look like paragraphs: a file is a document"
    if is_short:
        return most, f"about {what}: each is a document; if they are the paragraphs of one text, set file"
    return most, f"about {what}" + (" in a file" if num_files > 1 else "") + ": each is a document"


def _look(path: Path, encoding: str) -> Look:
    """Return statistics of the beginning of a text file.

    Raises:
        DataError: the file is not in the encoding.
    """
    with open_input(path) as file:
        head = file.read(SAMPLE)
    try:
        text = head.decode(encoding) if len(head) < SAMPLE else head.decode(encoding, "ignore")
        if len(head) == SAMPLE:
            head[: SAMPLE // 2].rpartition(b"\n")[0].decode(encoding)
    except (UnicodeDecodeError, LookupError) as error:
        raise DataError(
            f"no text in {encoding}: {error}",
            where=str(path),
            next_step="say its encoding: electra init ... --encoding cp1252 (or latin-1, utf-16, shift_jis, ...)",
        ) from None
    blocks = [block for block in re.split(r"\n(?:[ \t\r]*\n)+", text) if block.strip()]
    whole = round(len(blocks) * path.stat().st_size / max(1, len(head)))
    mean = sum(map(len, blocks)) / max(1, len(blocks))
    if len(blocks) > 1:
        return Look("blank_line", whole, mean)
    lines = sorted(len(line) for line in text.splitlines())
    return Look("line" if lines and lines[len(lines) // 2] >= 120 else "file", whole, mean)


def _name_of(text: str) -> str:
    path = Path(text.split("://")[-1])
    fixed = [part for part in path.parts if not glob.has_magic(part)]
    stem = (fixed[-1] if fixed else "own").split(".")[0]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-") or "own"


def _template(root: Path, like: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of the profile ``like``, and those of ``params.yaml``.

    Raises:
        ConfigError: there is no such profile.
    """
    try:
        return read_yaml(root / "params" / f"{like}.yaml"), read_yaml(root / "params.yaml")
    except FileNotFoundError as error:
        known = ", ".join(sorted(path.stem for path in (root / "params").glob("*.yaml")))
        raise ConfigError(
            f"{error.filename} does not exist",
            where="--like" if known else "this folder",
            next_step=f"choose one of: {known}" if known else "run from the project's root, beside dvc.yaml",
        ) from None


def _profile(
    root: Path,
    like: str,
    name: str,
    texts: Texts,
    table: Table | None,
    cased: bool,
    encoding: str,
    steps: int | None,
) -> dict[str, Any]:
    """Return the values of the new profile: those of ``like``, except texts, tasks and what depends on their size."""
    base, common = _template(root, like)
    source = FilesCorpus(
        kind="files",
        name=name,
        paths=texts.patterns,
        text_field=texts.field,
        encoding=encoding,
        documents=texts.documents,
        weight=1.0,
    )
    base["corpus"] |= {"sources": [source.model_dump(mode="json")], "documents_per_file": 5000}
    if table is None:
        base["corpus"]["decontamination"] = None
    base["tokenizer"]["vocab_size"] = min(base["tokenizer"]["vocab_size"], max(MIN_ENTRIES, texts.vocabulary))
    if cased:
        base["tokenizer"]["lowercase"] = False
    if texts.keeps_marks:
        base["tokenizer"]["strip_accents"] = False
    recipe = base["pretrain"]
    tokens = texts.num_bytes / BYTES_PER_TOKEN
    if steps is None and like in ("tiny", "books"):
        examples = min(max(PASSES * tokens / base["shards"]["max_length"], EXAMPLES[0]), EXAMPLES[1])
        steps = int(examples / recipe["batch_size"] // 100 * 100)
    if steps is not None:
        recipe |= {
            "num_steps": steps,
            "eval_every": max(1, steps // 10),
            "warmup_steps": min(recipe["warmup_steps"], max(1, steps // 10)),
        }
    base["tasks"] = {"source": None, "own": [str(OWN / f"{table.name}.yaml")] if table else []}
    cells = {**common["cells"], "tasks": [table.name] if table else [], "intermediate": [], "from_intermediate": []}
    merged = {**common, "profile": name, "cells": cells}
    merged |= {key: {**(common.get(key) or {}), **value} for key, value in base.items()}
    settings = parse_settings(merged, where=f"params/{like}.yaml with your texts").model_dump(mode="json")
    elsewhere = {
        key: {name for name, value in section.items() if value is not None} if isinstance(section, dict) else set()
        for key, section in common.items()
    }
    return {
        section: {key: value for key, value in settings[section].items() if key not in elsewhere.get(section, ())}
        for section in base
    }


def _common(root: Path, profile: str, tasks: list[str]) -> str:
    """Return ``params.yaml`` with the new profile and its tasks, and with its comments."""
    round_trip = YAML()  # keeps comments; creates only plain values
    round_trip.preserve_quotes = True
    values = round_trip.load((root / "params.yaml").read_text(encoding="utf-8"))
    values["profile"] = _quoted(profile)
    if "share_cores" in values.get("cluster", {}):
        values["cluster"]["share_cores"] = False  # only useful for runs of minutes, as with the default profile
    cells = values["cells"]
    for key, wanted in {"tasks": tasks, "intermediate": [], "from_intermediate": []}.items():
        if list(cells[key]) != wanted:
            cells[key] = CommentedSeq(_quoted(wanted))
            cells[key].fa.set_flow_style()  # ruamel would write an empty list in block style at column 0
    text = io.StringIO()
    round_trip.dump(values, text)
    return text.getvalue()


def _ignored(root: Path, texts: Texts, table: Path | None, dev: Path | None, labelled: Table | None) -> str:
    """Return ``.gitignore`` with lines for the user's files in the workspace; empty if it already has them."""
    wanted = []
    for pattern in texts.patterns:
        if "://" not in pattern and not Path(pattern).is_absolute():
            parts = Path(pattern).parts
            fixed = [part for part in parts if not glob.has_magic(part)]
            folder = len(fixed) < len(parts) and fixed
            wanted.append("/" + "/".join(fixed) + "/" if folder else f"/{pattern}")
    for path in (table, dev):
        if path is not None and not Path(shown := _shown(root / path, root)).is_absolute():
            wanted.append(f"/{shown}")
    if labelled and labelled.splits:
        wanted.append(f"/{OWN}/{labelled.name}/")
    file = root / ".gitignore"
    before = file.read_text(encoding="utf-8") if file.is_file() else ""
    known = [line for line in before.splitlines() if line and not line.startswith("#")]
    new = [line for line in dict.fromkeys(wanted) if not any(fnmatch.fnmatch(line, rule) for rule in known)]
    if not new:
        return ""
    return before + ("" if before.endswith("\n") or not before else "\n") + "# Your own files\n" + "\n".join(new) + "\n"


def _header(profile: str, like: str, texts: Texts, cased: bool) -> str:
    chosen = "".join(f"# {line}\n" for line in _choices(texts, cased))
    return (
        f"# Profile {profile}, written by `electra init` after params/{like}.yaml; every value may be changed here.\n"
        f"# Every key in a line: electra config --help-fields\n{chosen}"
    )


def _choices(texts: Texts, cased: bool) -> list[str]:
    """Return the settings chosen from the texts, one line each: key, value, reason."""
    lines = [f"corpus.sources documents: {texts.documents}: {texts.reason}"] if texts.reason else []
    names = ", ".join(f"{script.name} {script.share:.0%}" for script in texts.scripts)
    kept = next((script for script in texts.scripts if script.keeps_marks), None)
    if kept:
        word, left = kept.example
        lost = f": stripped, {word} would be {left}" if word else ""
        lines.append(f"tokenizer.strip_accents: false: the text is {names}, and marks belong to its letters{lost}")
    elif names and not cased:
        lines.append(f"tokenizer.lowercase: true, which strips accents: the text is {names}, and has few marks")
    return lines


def _quoted(value: Any) -> Any:
    """Return the value with quotes around strings that YAML 1.1, the version of the settings, reads as other types."""
    if isinstance(value, dict):
        return {_quoted(key): _quoted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_quoted(item) for item in value]
    if isinstance(value, str) and _RESOLVER.resolve(ScalarNode, value, (True, False)) != "tag:yaml.org,2002:str":
        return DoubleQuotedScalarString(value)
    return value


_RESOLVER = Resolver()


def _yaml(values: dict[str, Any]) -> str:
    """Return YAML in block style, as DVC writes it, so that `dvc exp run -S` changes single lines."""
    text = io.StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.dump(_quoted(values), text)
    return text.getvalue()
