"""The one schema of ``params.yaml`` + ``params/<profile>.yaml``.

``params.yaml`` holds the profile's name and what no profile changes (which cells to fine-tune, the machine);
``params/<profile>.yaml`` is self-contained and holds everything a result depends on. Every section stands in exactly
one of the two. Unknown keys and impossible values are refused with the path of the key. The description of a field is
also its help text (``electra config --help-fields``).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from electra.errors import ConfigError

TaskName = Literal[
    "CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI", "SQuAD1.1", "SQuAD2.0"
]  # fmt: skip
Probability = Annotated[float, Field(ge=0, le=1)]
Revision = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class Section(BaseModel):
    """Base of all sections: immutable, no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# ---- corpus -----------------------------------------------------------------------------------------------------


class EmbeddedCorpus(Section):
    """The microworld: a seeded English-like world, no network."""

    kind: Literal["embedded"] = Field(description="the built-in microworld generator")
    name: str = Field("microworld", description="name of the source in the corpus and the manifest")
    weight: float = Field(1.0, gt=0, description="relative share of the mixture, counted in characters")
    num_documents: int = Field(gt=0, description="documents to write")
    seed: int = Field(1, ge=0, description="seed of the world and its texts")


class FilesCorpus(Section):
    """Text files: .txt, .jsonl or .parquet, plain or compressed (.gz, .xz, .zst), local or any fsspec URL."""

    kind: Literal["files"] = Field(description="files read from disk or any fsspec URL")
    name: str = Field(description="name of the source in the corpus and the manifest")
    weight: float = Field(1.0, gt=0, description="relative share of the mixture, counted in characters")
    paths: list[str] = Field(min_length=1, description="paths, globs or fsspec URLs, read in sorted order")
    text_field: str = Field("text", description="field or column with the text (jsonl, parquet)")
    documents: Literal["blank_line", "line", "file"] = Field(
        "blank_line", description="what separates documents in a .txt file"
    )


class HubCorpus(Section):
    """A dataset of the Hugging Face hub at a pinned revision, streamed."""

    kind: Literal["hub"] = Field(description="a hub dataset, streamed")
    name: str = Field(description="name of the source in the corpus and the manifest")
    weight: float = Field(1.0, gt=0, description="relative share of the mixture, counted in characters")
    dataset: str = Field(description="owner/name on the hub, or a local dataset folder")
    revision: Revision | None = Field(None, description="full 40-hex commit; required unless dataset is a local folder")
    config_name: str | None = Field(None, description="dataset configuration, such as 20231101.en")
    data_files: str | None = Field(None, description="glob of parquet files inside the repository, read as they are")
    split: str = Field("train", description="split to stream")
    text_field: str = Field("text", description="column with the text")

    @model_validator(mode="after")
    def _pinned(self) -> "HubCorpus":
        if self.revision is None and not Path(self.dataset).is_dir():
            raise ValueError("a hub dataset needs `revision`: the full 40-hex commit, so that a run can be repeated")
        return self


CorpusSource = Annotated[EmbeddedCorpus | FilesCorpus | HubCorpus, Field(discriminator="kind")]


class Corpus(Section):
    """Documents: where they come from, how they are cleaned, which are held out."""

    sources: list[CorpusSource] = Field(min_length=1, description="one or more sources, mixed by weight")
    max_documents: int | None = Field(None, gt=0, description="stop after this many documents are kept")
    min_chars: int = Field(20, ge=1, description="shorter documents are dropped")
    max_chars: int = Field(1_000_000, ge=1, description="longer documents are cut at the last line end before this")
    repair_mojibake: bool = Field(True, description="repair wrongly decoded text with ftfy")
    held_out_fraction: Probability = Field(0.01, description="share of documents held out by document hash")
    documents_per_file: int = Field(50_000, gt=0, description="documents per parquet file: the unit of parallel work")

    @model_validator(mode="after")
    def _distinct_names(self) -> "Corpus":
        names = [source.name for source in self.sources]
        if len(set(names)) < len(names):
            raise ValueError(f"source names must differ, got {names}")
        if self.min_chars > self.max_chars:
            raise ValueError("min_chars is larger than max_chars")
        return self


# ---- tokenizer and shards ---------------------------------------------------------------------------------------


class Tokenizer(Section):
    """WordPiece vocabulary with BERT's normaliser and pre-tokeniser."""

    vocab_size: int = Field(30522, ge=100, description="entries including the five special tokens")
    vocab_file: str | None = Field(None, description="use this existing vocab.txt instead of training one")
    lowercase: bool = Field(True, description="lowercase (and strip accents) before splitting")
    min_frequency: int = Field(2, ge=1, description="least count of a pair to be merged")
    max_alphabet: int = Field(
        1000, ge=1, description="most frequent characters that get entries; words with other characters become [UNK]"
    )
    max_training_chars: int = Field(
        2_000_000_000, gt=0, description="train on a hash sample of documents of about this many characters"
    )


class Shards(Section):
    """ELECTRA's two-segment examples as fixed-length memory-mapped arrays."""

    max_length: int = Field(128, ge=8, le=512, description="tokens per example, with [CLS] and [SEP]")
    single_segment_probability: Probability = Field(0.1, description="examples with one segment instead of two")
    short_example_probability: Probability = Field(0.05, description="examples with a random shorter target length")
    seed: int = Field(1, ge=0, description="seed of segment choices, combined with each document's hash")
    max_shard_bytes: int = Field(256 * 2**20, ge=2**16, description="upper bound of one .npy file")


# ---- model and pre-training -------------------------------------------------------------------------------------


class Model(Section):
    """Shapes of discriminator and generator (paper section 3.2 and appendix A)."""

    num_layers: int = Field(gt=0, description="discriminator layers")
    hidden_size: int = Field(gt=0, description="discriminator width")
    num_heads: int = Field(gt=0, description="discriminator attention heads")
    intermediate_size: int = Field(gt=0, description="discriminator feed-forward width")
    embedding_size: int = Field(gt=0, description="width of the shared embeddings; projected where it differs")
    generator_width: float = Field(0.25, gt=0, le=1, description="generator width as a fraction of hidden_size")
    generator_depth: float = Field(1.0, gt=0, le=1, description="generator layers as a fraction of num_layers")
    max_positions: int = Field(512, ge=8, description="rows of the position table")
    dropout: Probability = Field(0.1, description="dropout on embeddings and layer outputs")
    attention_dropout: Probability = Field(0.1, description="dropout on attention probabilities")
    initializer_range: float = Field(0.02, gt=0, description="standard deviation of the truncated normal at start")
    layer_norm_eps: float = Field(1e-12, gt=0, description="epsilon of layer normalisation")

    @model_validator(mode="after")
    def _heads_divide(self) -> "Model":
        if self.hidden_size % self.num_heads:
            raise ValueError(f"num_heads {self.num_heads} does not divide hidden_size {self.hidden_size}")
        return self


class Pretrain(Section):
    """Replaced token detection: steps, rates, masking (reference values are the paper's)."""

    num_steps: int = Field(gt=0, description="optimizer steps")
    batch_size: int = Field(gt=0, description="global batch in examples; independent of the machine")
    learning_rate: float = Field(gt=0, le=1, description="peak learning rate")
    warmup_steps: int = Field(ge=0, description="steps of linear warm-up, multiplied with the decay")
    decay_power: float = Field(1.0, gt=0, description="power of the polynomial decay to zero")
    weight_decay: float = Field(0.01, ge=0, description="decoupled decay; biases and LayerNorm are excluded")
    adam_beta1: Probability = Field(0.9, description="Adam: decay of the first moment")
    adam_beta2: Probability = Field(0.999, description="Adam: decay of the second moment")
    adam_epsilon: float = Field(1e-6, gt=0, description="Adam: epsilon, without bias correction")
    max_grad_norm: float = Field(1.0, gt=0, description="clip of the global norm over generator and discriminator")
    mask_probability: Probability = Field(0.15, description="share of tokens masked and predicted")
    mask_token_probability: Probability = Field(0.85, description="masked positions shown as [MASK]; others stay")
    generator_weight: float = Field(1.0, ge=0, description="weight of the generator's loss")
    discriminator_weight: float = Field(50.0, ge=0, description="weight of the discriminator's loss")
    temperature: float = Field(1.0, gt=0, description="temperature of the generator's samples")
    seed: int = Field(1, ge=0, description="seed of weights, order, masks and samples")
    eval_every: int = Field(gt=0, description="steps between validations on the held-out split")
    eval_examples: int = Field(1024, gt=0, description="held-out examples per validation (all if there are fewer)")

    @model_validator(mode="after")
    def _warmup_fits(self) -> "Pretrain":
        if self.warmup_steps >= self.num_steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} is not below num_steps {self.num_steps}")
        return self


# ---- tasks and fine-tuning --------------------------------------------------------------------------------------


class EmbeddedTasks(Section):
    """The microworld's tasks, written in the file formats of GLUE and SQuAD."""

    kind: Literal["embedded"] = Field(description="the built-in microworld generator")
    seed: int = Field(1, ge=0, description="seed of the world: the corpus' seed, so that tasks and text share it")
    train_examples: int = Field(1000, gt=0, description="training examples per task")
    dev_examples: int = Field(500, gt=0, description="development examples per task")


class FilesTasks(Section):
    """Official GLUE TSV folders and SQuAD JSON files."""

    kind: Literal["files"] = Field(description="official TSV and JSON layouts on disk")
    glue: str | None = Field(None, description="folder with CoLA/, MRPC/, ... each with train.tsv and dev.tsv")
    squad: str | None = Field(None, description="folder with train-v1.1.json, dev-v1.1.json, train-v2.0.json, ...")


class HubTasks(Section):
    """GLUE and SQuAD from the Hugging Face hub at pinned revisions (or local dataset folders)."""

    kind: Literal["hub"] = Field(description="hub datasets at pinned revisions")
    glue: str = Field("nyu-mll/glue", description="GLUE dataset, or a local dataset folder")
    glue_revision: Revision = Field("bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c", description="40-hex commit")
    squad: str = Field("rajpurkar/squad", description="SQuAD 1.1 dataset, or a local dataset folder")
    squad_revision: Revision = Field("7b6d24c440a36b6815f21b70d25016731768db1f", description="40-hex commit")
    squad_v2: str = Field("rajpurkar/squad_v2", description="SQuAD 2.0 dataset, or a local dataset folder")
    squad_v2_revision: Revision = Field("3ffb306f725f7d2ce8394bc1873b24868140c412", description="40-hex commit")


class Tasks(Section):
    """Where the labelled data comes from."""

    source: Annotated[EmbeddedTasks | FilesTasks | HubTasks, Field(discriminator="kind")] = Field(
        description="embedded, files or hub"
    )


class Finetune(Section):
    """Fine-tuning (paper appendix B): one setting for all tasks, epochs by task."""

    learning_rate: float = Field(gt=0, le=1, description="peak learning rate of the task head")
    layerwise_decay: float = Field(0.8, gt=0, le=1, description="factor on the rate per layer below the head")
    batch_size: int = Field(32, gt=0, description="examples per step")
    epochs: float = Field(3.0, gt=0, description="passes over the training set, unless the task is named below")
    task_epochs: dict[TaskName, float] = Field(
        {"RTE": 10, "STS-B": 10, "SQuAD1.1": 2, "SQuAD2.0": 2}, description="epochs of single tasks"
    )
    warmup_fraction: Probability = Field(0.1, description="share of steps with linear warm-up")
    weight_decay: float = Field(0.0, ge=0, description="decoupled decay; biases and LayerNorm are excluded")
    max_grad_norm: float = Field(1.0, gt=0, description="clip of the global gradient norm")
    max_length: int = Field(128, ge=8, le=512, description="tokens of a sentence or pair")
    span_max_length: int = Field(512, ge=16, le=512, description="tokens of a question and context window")
    span_stride: int = Field(128, gt=0, description="tokens between the starts of two windows")
    max_question_length: int = Field(64, gt=0, description="tokens of a question; longer ones are cut")
    max_answer_length: int = Field(30, gt=0, description="tokens of an answer")
    max_train_examples: int | None = Field(None, gt=0, description="use only the first examples (for quick runs)")


# ---- what no profile changes ------------------------------------------------------------------------------------


class Cells(Section):
    """The fine-tuning matrix: every task with every seed, from the pre-trained and from random weights."""

    tasks: list[TaskName] = Field(min_length=1, description="tasks on the score card")
    seeds: list[int] = Field(min_length=1, description="fine-tuning seeds; the card shows their median")

    @field_validator("tasks", "seeds")
    @classmethod
    def _distinct(cls, values: list[Any]) -> list[Any]:
        if len(set(values)) < len(values):
            raise ValueError(f"listed twice: {sorted({str(v) for v in values if values.count(v) > 1})}")
        return values


class Cluster(Section):
    """The machine. Changes speed, never results; no stage depends on it."""

    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: cuda where there is one")
    num_processes: int | Literal["auto"] = Field("auto", description="training processes; auto: one per GPU, else 1")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="matrix products; auto: bf16 where the machine has matrix units for it"
    )
    zero_stage: Literal[0, 1, 2, 3] = Field(0, description="DeepSpeed ZeRO stage")
    micro_batch_size: int | Literal["auto"] = Field(
        "auto", description="examples per process and forward pass; auto: the whole share of the global batch"
    )
    num_threads: int | Literal["auto"] = Field("auto", description="threads per training process; auto: all cores")
    num_workers: int | Literal["auto"] = Field("auto", description="processes of the text stages; auto: all cores")
    checkpoint_minutes: float = Field(5.0, gt=0, description="minutes between checkpoints")
    keep_checkpoints: int = Field(2, ge=1, description="checkpoints kept while training")


class Settings(Section):
    """All settings of one run."""

    profile: str = Field(description="name of the file under params/")
    cells: Cells = Field(description="the fine-tuning matrix of the score card")
    cluster: Cluster = Field(description="the machine: speed, never results")
    corpus: Corpus = Field(description="documents, their cleaning and the held-out split")
    tokenizer: Tokenizer = Field(description="the WordPiece vocabulary")
    shards: Shards = Field(description="fixed-length examples")
    model: Model = Field(description="shapes of discriminator and generator")
    pretrain: Pretrain = Field(description="replaced token detection")
    tasks: Tasks = Field(description="labelled data")
    finetune: Finetune = Field(description="fine-tuning")

    @model_validator(mode="after")
    def _lengths_fit(self) -> "Settings":
        for name, length in [
            ("shards.max_length", self.shards.max_length),
            ("finetune.max_length", self.finetune.max_length),
            ("finetune.span_max_length", self.finetune.span_max_length),
        ]:
            if length > self.model.max_positions:
                raise ValueError(f"{name} {length} is larger than model.max_positions {self.model.max_positions}")
        return self


# ---- loading ----------------------------------------------------------------------------------------------------


def load_settings(root: Path = Path(".")) -> Settings:
    """Read ``params.yaml`` and the profile it names.

    Raises:
        ConfigError: a file is missing or not YAML, a section stands twice, a key is unknown, a value impossible.
    """
    common = _read_yaml(root / "params.yaml")
    name = common.get("profile")
    if not isinstance(name, str):
        raise ConfigError("no profile is chosen", where="params.yaml: profile", next_step="add `profile: smoke`")
    profile_path = root / "params" / f"{name}.yaml"
    if not profile_path.is_file():
        known = ", ".join(sorted(p.stem for p in (root / "params").glob("*.yaml"))) or "none"
        raise ConfigError(
            f"there is no profile {name!r}", where="params.yaml: profile", next_step=f"choose one of: {known}"
        )
    profile = _read_yaml(profile_path)
    if twice := sorted(set(common) & set(profile)):
        raise ConfigError(
            f"section {', '.join(twice)} stands in params.yaml and in {profile_path.relative_to(root)}",
            next_step="keep it in one of the two",
        )
    return parse_settings({**common, **profile}, where=f"params.yaml + params/{name}.yaml")


def parse_settings(values: dict[str, Any], *, where: str) -> Settings:
    """Check a merged dictionary against the schema; all complaints are listed at once, each with its key's path."""
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise ConfigError("\n".join(_complaint(e) for e in error.errors()), where=where) from None


def _complaint(error: Any) -> str:
    tags = {"embedded", "files", "hub"}  # names of union members, not keys
    key = ".".join(str(part) for part in error["loc"] if part not in tags) or "(top level)"
    if error["type"] == "extra_forbidden":
        return f"{key}: unknown key"
    if error["type"] == "missing":
        return f"{key}: missing"
    return f"{key}: {error['msg'].removeprefix('Value error, ')} (got {error['input']!r:.80})"


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist", next_step="run from the project's root, beside dvc.yaml") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} holds no settings", next_step="see params/smoke.yaml for an example")
    return values


# ---- showing ----------------------------------------------------------------------------------------------------


def dump_settings(settings: Settings) -> str:
    """All settings as YAML, defaults included."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)


def describe_fields() -> str:
    """Every key with its default and its description, one a line."""
    return "\n".join(_describe(Settings, "")) + "\n"


def _describe(section: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in section.model_fields.items():
        subsections = _sections_in(field.annotation)
        if field.description:
            default = "" if field.is_required() else f" [{field.get_default(call_default_factory=True)}]"
            yield f"{prefix}{name}{default}: {field.description}"
        for subsection in subsections:
            kind = subsection.model_fields.get("kind")
            label = f"{name}({get_args(kind.annotation)[0]})" if kind else name
            yield from _describe(subsection, f"{prefix}{label}.")


def _sections_in(annotation: Any) -> list[type[Section]]:
    """Section classes inside an annotation such as ``list[Annotated[A | B, ...]]``."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [section for argument in get_args(annotation) for section in _sections_in(argument)]
