"""Every number in the settings has bounds: values outside are refused before anything starts."""

import math
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import ValidationError

from electra.config import Settings
from electra.config.loading import load_settings
from electra.config.section import Section
from electra.readers.custom_schema import CustomRegression

ROOT = Path(__file__).resolve().parents[2]
NONSENSE = {"nan": math.nan, "infinity": math.inf, "negative": -1, "zero": 0, "huge": 10**20}
ZERO_HAS_A_MEANING = {
    "Cells.seeds",
    "Cluster.resubmissions",  # none
    "Cluster.zero_stage",
    "Language.min_probability",
    "FineWeb.max_duplicate_line_chars",  # shares of cleaning: none
    "FineWeb.max_short_lines",
    "FineWeb.min_punctuated_lines",
    "Embed.dropout",
    "Embed.min_score",
    "Embed.warmup_fraction",
    "Embed.weight_decay",
    "Finetune.warmup_fraction",
    "Finetune.weight_decay",
    "Gopher.max_bullet_lines",
    "Gopher.max_digits",
    "Gopher.max_ellipsis_lines",
    "Gopher.max_symbol_ratio",
    "Gopher.min_alphabetic_words",
    "Model.attention_dropout",
    "Model.dropout",
    "Pretrain.adam_beta1",  # no momentum
    "Pretrain.adam_beta2",
    "Pretrain.alarm_after",
    "Pretrain.discriminator_weight",  # that part is not trained
    "Pretrain.generator_weight",
    "Pretrain.mask_token_probability",
    "Pretrain.seed",
    "Pretrain.warmup_steps",
    "Pretrain.weight_decay",
    "Repetition.max_duplicate_line_chars",
    "Repetition.max_duplicate_lines",
    "Repetition.max_duplicate_ngram_chars",
    "Repetition.max_top_ngram_chars",
    "Shards.seed",
    "Shards.short_example_probability",
    "Shards.single_segment_probability",
    "Unwrap.min_share",
}
# sections that the default profile has no example of
EXAMPLES: dict[str, dict[str, Any]] = {
    "Decontamination": {},
    "NearDuplicates": {},
    **{
        name: {"kind": kind}
        for name, kind in [
            ("Unwrap", "unwrap"),
            ("RepeatedLines", "repeated_lines"),
            ("Gopher", "gopher"),
            ("Repetition", "repetition"),
            ("FineWeb", "fineweb"),
        ]
    },
    "Language": {"kind": "language", "languages": ["en"]},
    "FilesCorpus": {"kind": "files", "name": "x", "paths": ["x.txt"]},
    "HubCorpus": {"kind": "hub", "name": "x", "dataset": "x/y", "revision": "0" * 40},
    "FilesTasks": {"kind": "files"},
    "HubTasks": {"kind": "hub"},
    "LengthCurriculum": {"length": 8},
    "CustomRegression": {"kind": "regression", "train": "x", "dev": "x", "label": "y", "text_a": "t", "range": (0, 1)},
}


def leaves(annotation: Any) -> Iterator[Any]:
    """The plain types in an annotation such as ``list[Annotated[int, ...]] | None``."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from leaves(get_args(annotation)[0])
    elif origin is Literal:
        yield from map(type, get_args(annotation))
    elif origin in (Union, types.UnionType, list, tuple, dict):
        for argument in get_args(annotation):
            yield from leaves(argument)
    else:
        yield annotation


def sections(section: type[Section]) -> Iterator[type[Section]]:
    yield section
    for field in section.model_fields.values():
        for leaf in leaves(field.annotation):
            if isinstance(leaf, type) and issubclass(leaf, Section):
                yield from sections(leaf)


NUMBERS = {
    f"{section.__name__}.{name}": (section, name)
    for section in (*sections(Settings), CustomRegression)
    for name, field in section.model_fields.items()
    if {int, float} & set(leaves(field.annotation))
} | {"CustomRegression.range": (CustomRegression, "range")}
NUMBERS.pop("Slurm.options")  # any option of sbatch, a number too: Slurm knows what it may be


def example(section: type[Section], settings: Settings) -> dict[str, Any]:
    if section.__name__ in EXAMPLES:
        return dict(EXAMPLES[section.__name__])
    waiting: list[Any] = [settings]
    for value in waiting:
        if type(value) is section:
            return value.model_dump()
        waiting += value if isinstance(value, list) else dict(value).values() if isinstance(value, Section) else []
    raise AssertionError(f"give an example of {section.__name__}")


@pytest.fixture(scope="module")
def books() -> Settings:
    return load_settings(ROOT)


def wrapped(annotation: Any, value: Any) -> Any:
    """The value inside a field's list, dictionary or range."""
    kinds = {get_origin(part) for part in (annotation, *get_args(annotation))}
    if dict in kinds:
        return {2: value} if int in leaves(annotation) and str not in leaves(annotation) else {"CoLA": value}
    return [value] if list in kinds else (0.5, value) if tuple in kinds else value


CASES = [
    (number, nonsense)
    for number in NUMBERS
    for nonsense in NONSENSE
    if not (nonsense == "zero" and number in ZERO_HAS_A_MEANING)
    and not (nonsense in ("negative", "zero", "huge") and number == "CustomRegression.range")  # scores may lie anywhere
]


@pytest.mark.parametrize(("number", "nonsense"), CASES)
def test_a_number_that_cannot_be_meant_is_refused_by_its_own_field(books: Settings, number: str, nonsense: str) -> None:
    section, name = NUMBERS[number]
    values = example(section, books)
    section.model_validate(values)
    values[name] = wrapped(section.model_fields[name].annotation, NONSENSE[nonsense])
    with pytest.raises(ValidationError) as caught:
        section.model_validate(values)
    assert name in {error["loc"][0] for error in caught.value.errors() if error["loc"]}, caught.value


@pytest.mark.parametrize(
    "share", ["Corpus.held_out_fraction", "Pretrain.adam_beta1", "Pretrain.adam_beta2", "Model.dropout"]
)
def test_all_of_it_is_refused_where_something_must_be_left(books: Settings, share: str) -> None:
    section, name = NUMBERS[share]
    with pytest.raises(ValidationError, match="less than 1"):
        section.model_validate(example(section, books) | {name: 1})


def test_every_kind_of_number_is_found() -> None:
    assert {"Cells.seeds", "Finetune.task_epochs", "Cluster.num_threads", "Model.dropout", "Slurm.memory_gb"} < set(
        NUMBERS
    )
    assert len(NUMBERS) > 80 and set(NUMBERS) > ZERO_HAS_A_MEANING


@pytest.mark.parametrize("one", [True, 1.0, "1"])
def test_a_seed_is_written_as_a_whole_number(books: Settings, one: object) -> None:
    """DVC writes what stands in the file into the cell's command: `--seed True`, `--seed 1.0`."""
    with pytest.raises(ValidationError, match="seeds"):
        type(books.cells).model_validate({"tasks": ["CoLA"], "seeds": [one]})


def test_a_milestone_is_written_as_its_folder_is_named(books: Settings) -> None:
    cells = type(books.cells)
    assert cells.model_validate({"tasks": ["x"], "seeds": [1], "milestones": [6.25, 50]}).milestones == ["6.25", "50"]
    with pytest.raises(ValidationError, match="milestones"):
        cells.model_validate({"tasks": ["x"], "seeds": [1], "milestones": [25.0]})


@pytest.mark.parametrize(("share", "said"), [(0.4, "205 wide, which its 3 heads do not divide"), (0.375, None)])
def test_a_generator_whose_heads_do_not_divide_it_is_refused(share: float, said: str | None) -> None:
    settings = load_settings(ROOT).model_dump()
    settings["pretrain"]["objective"] = "electra"
    settings["model"] |= {"architecture": "electra", "positions": "learned", "norm": "post", "feed_forward": "gelu"}
    settings["model"] |= {"hidden_size": 512, "num_heads": 8, "generator_width": share}
    if said is None:
        Settings.model_validate(settings)
        return
    with pytest.raises(ValidationError, match=said):
        Settings.model_validate(settings)
    settings["pretrain"]["objective"] = "bert"
    Settings.model_validate(settings)  # has no generator
