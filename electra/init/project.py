"""`electra init`: writes settings for a user's texts and table, and estimates the duration of a run.

All inputs are checked before anything is written, and no file is overwritten.
"""

import codecs
import fnmatch
import glob
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from electra.cluster.estimate.expected import described, expect
from electra.cluster.estimate.text_size import BYTES_PER_TOKEN
from electra.common.artifacts import write_text
from electra.common.errors import ConfigError
from electra.common.lines import CHUNK_BYTES, open_input
from electra.config import Settings
from electra.config.loading import parse_settings
from electra.config.text import known_encoding
from electra.init.babylm import TRACKS, TrackName, TrainingText, summary, training_text
from electra.init.recipe import header, profile_values, read_template, reasons
from electra.init.table import OWN, Table, check_name, read_labelled
from electra.init.texts import Texts, find_texts, relative_to
from electra.init.yaml_text import with_profile, yaml_text

LEAST_BYTES = 100_000  # of text about which something is expected: less is far below the measured runs

FEW_DEV = 50  # fewer development rows are warned of


@dataclass(frozen=True)
class Plan:
    """Files to write with their contents, and the texts and table they are based on.

    Attributes:
        reasons: lines about the settings chosen from the texts.
        babylm: words of the texts.
        kept: files of the table that are there already, with the contents that would be written.
    """

    files: dict[Path, str]
    settings: Settings
    texts: Texts
    table: Table | None
    reasons: list[str]
    babylm: TrainingText | None = None
    kept: tuple[Path, ...] = ()


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
    babylm: TrackName | None = None,
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
        encoding: of the texts and of a table that is not in UTF-8.
        steps: steps of pre-training; None: by the size of the text.
        babylm: track of the BabyLM challenge; ``texts`` is its folder.

    Raises:
        ConfigError: a file would be overwritten, a name or an encoding cannot be used, or columns are missing.
        DataError: there is no text, a file cannot be read, or the text has more words than the track allows.
    """
    if table is None and (options := _of_a_table(dev, text_columns, label)):
        raise ConfigError(
            "describes a labelled table, and none is named",
            where=options,
            next_step="add --table FILE, or leave it out",
        )
    try:
        known_encoding(encoding)
    except ValueError as error:
        raise ConfigError(
            f"{encoding!r} is {error}",
            where="--encoding",
            next_step="name that of your texts: utf-8, cp1252, latin-1, utf-16, shift_jis, gb18030, ...",
        ) from None
    challenge = None
    if babylm:
        if len(texts) > 1 or steps is not None or encoding != "utf-8":
            raise ConfigError(
                "takes one folder of UTF-8 text, and its rules decide the steps",
                where="--babylm",
                next_step=f"run: electra init FOLDER --babylm {babylm}",
            )
        challenge = training_text(texts[0], TRACKS[babylm], root)
        texts, name = challenge.patterns, name or f"babylm-{babylm}"
    profile = name or _name_of(texts[0])
    check_name(profile, "--name")
    base, common = read_template(root, like)
    usual = base["pretrain"].get("objective")
    found = find_texts(texts, root, field, encoding)
    if challenge:
        found = replace(found, documents="lines", reason="consecutive lines, as in transcripts")
    target = Path("params") / f"{profile}.yaml"
    tables = [path for path in (table, dev) if path]
    of_table = encoding
    if codecs.lookup(encoding).name != "utf-8" and _are_utf8([root / path for path in tables]):
        of_table = "utf-8"
    labelled = read_labelled(root, table, dev, text_columns or [], label, of_table) if table else None
    values = profile_values(
        base, common, like, profile, found, labelled, cased=cased, encoding=encoding, steps=steps, babylm=challenge
    )
    why = reasons(found, labelled, values, usual)
    if of_table != encoding:
        why.append(f"{', '.join(map(str, tables))}: read as UTF-8, not as {encoding}, which is that of the texts")
    files = {target: header(profile, like, why) + yaml_text(values)}
    if labelled:
        files[OWN / f"{labelled.name}.yaml"] = yaml_text(labelled.description)
        files |= {OWN / labelled.name / f"{split}.jsonl": lines for split, lines in labelled.splits.items()}
    kept = tuple(path for path, text in files.items() if path != target and _holds(root / path, text))
    files = {path: text for path, text in files.items() if path not in kept}
    if there := [path for path in files if (root / path).exists()]:
        raise ConfigError(
            f"already there, and not written over: {', '.join(map(str, there))}",
            next_step=_other_names(there, target, labelled),
        )
    params = (root / "params.yaml").read_text(encoding="utf-8")
    files[Path("params.yaml")] = with_profile(params, profile, [labelled.name] if labelled else [])
    if lines := _ignored(root, found, table, dev, labelled):
        files[Path(".gitignore")] = lines
    merged = yaml.safe_load(files[Path("params.yaml")])
    merged |= {key: {**(merged.get(key) or {}), **value} for key, value in values.items()}
    return Plan(files, parse_settings(merged, where=str(target)), found, labelled, why, challenge, kept)


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
    times = f"{passes:,.0f}" if passes >= 10 else f"{passes:.1g}"
    lines = [("found", f"{texts.size}{'' if minutes is None else f', about {_duration(minutes)} on this machine'}")]
    lines += [("", texts.left_out)] if texts.left_out else []
    lines += [("", text) for text in plan.reasons]
    lines += [("", text) for text in summary(plan.babylm)] if plan.babylm else []
    if table:
        rows = ", ".join(f"{split} {number:,}" for split, number in table.rows.items())
        lines.append(("", f"{table.path}: {rows} rows, {table.labels}"))
    lines += [
        ("wrote", ", ".join(str(path) for path in plan.files)),
        *([("kept", f"{', '.join(map(str, plan.kept))}: as they are")] if plan.kept else []),
        ("run", f"about {steps:,} steps: {settings.pretrain.epochs:g} epochs of pre-training")
        if settings.pretrain.epochs
        else ("run", f"{steps:,} steps of pre-training, which read the text about {times} times"),
    ]
    expected = expect(settings, texts.num_bytes / BYTES_PER_TOKEN) if texts.num_bytes >= LEAST_BYTES else None
    if expected:
        first, *more = described(expected)
        lines += [("expect", first), *(("", line) for line in more)]
    if minutes is not None and used_by_others >= 0.5:
        lines.append(("load", f"other processes use {used_by_others:.1f} cores now: a run alone is faster"))
    if texts.num_bytes < 1e6:
        lines.append(("warning", "less than 1 MB of text: enough to try the pipeline, too little for a useful encoder"))
    if table and table.rows["dev"] < FEW_DEV:
        lines.append(("warning", few_to_score(table.rows["dev"])))
    lines += [("next", "make run" if Path("Makefile").is_file() else "dvc repro"), ("", "less results/report.md")]
    return "".join(f"{head:<9}{text}\n" for head, text in lines)


def few_to_score(rows: int) -> str:
    """Return a warning with the standard error of the accuracy of so few rows, at its largest (half of them right)."""
    points = 50 / math.sqrt(rows)
    counted = "1 development row" if rows == 1 else f"{rows} development rows"
    return f"{counted}: by chance alone a score is off by about {points:.0f} points; label more rows"


def _are_utf8(paths: list[Path]) -> bool:
    """Return whether all files are text in UTF-8, and one has other characters than ASCII.

    Text in another encoding hardly ever is, and UTF-8 that is read as cp1252 or Latin-1 raises no error.
    """
    has_others = False
    for path in filter(Path.is_file, paths):
        decoder = codecs.getincrementaldecoder("utf-8")()
        with open_input(path) as file:
            try:
                while chunk := file.read(CHUNK_BYTES):
                    if "\0" in decoder.decode(chunk):  # UTF-16
                        return False
                    has_others = has_others or not chunk.isascii()
                decoder.decode(b"", final=True)
            except UnicodeDecodeError:
                return False
    return has_others


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_bytes() == text.encode("utf-8")


def _other_names(there: list[Path], profile: Path, table: Table | None) -> str:
    """Return advice for files in the way: ``--name`` names the profile, and the table's name the task."""
    steps = []
    if profile in there:
        steps.append(f"choose another name: electra init ... --name {profile.stem}-2")
    if table and there != [profile]:
        copy = table.path.with_name(f"{table.name}-2{table.path.suffix}")  # the name of a train.csv is its folder's
        steps.append(f"copy the table to a file of another name, which its task gets: electra init ... --table {copy}")
    return f"{'; '.join(steps)}; or remove what is there first"


def _of_a_table(dev: Path | None, text_columns: list[str] | None, label: str | None) -> str:
    """Return the given options that describe a table, by name."""
    given = {"--text": text_columns, "--label": label, "--dev": dev}
    return ", ".join(option for option, value in given.items() if value)


def _duration(minutes: float) -> str:
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.1f} h"


def _name_of(text: str) -> str:
    path = Path(text.split("://")[-1])
    fixed = [part for part in path.parts if not glob.has_magic(part)]
    stem = (fixed[-1] if fixed else "own").split(".")[0]
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-") or "own"


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
        if path is not None and not Path(shown := relative_to(root / path, root)).is_absolute():
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
