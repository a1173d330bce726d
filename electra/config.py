"""The one schema of ``params.yaml`` + ``params/<profile>.yaml``.

``params.yaml`` holds the profile's name and what no profile changes (the pre-training method, which cells to fine-tune,
the machine); ``params/<profile>.yaml`` holds the rest of what a result depends on. Every key stands in exactly one of
the two. Unknown keys and impossible values are refused with the path of the key. The description of a field is
also its help text (``electra config --help-fields``). Reading the files: electra/settings.py.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, field_validator, model_validator

from electra.launchers.config import DeepSpeedLauncher, Kubernetes, Slurm, Torchrun
from electra.section import Section

TaskName = Literal[
    "CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE", "WNLI", "SQuAD1.1", "SQuAD2.0",
    "CoNLL-2003", "CoNLL-2000", "SWAG", "NewsQA", "NaturalQuestions", "TriviaQA", "SearchQA",
]  # fmt: skip
ObjectiveName = Literal[
    "electra", "electra_15", "two_stage", "adversarial", "replace_mlm", "all_tokens_mlm", "bert", "bert_nsp", "electric"
]  # fmt: skip
Probability = Annotated[float, Field(ge=0, le=1)]
Revision = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


Milestone = Annotated[
    Literal["6.25", "12.5", "25", "50"], BeforeValidator(lambda v: f"{v:g}" if isinstance(v, int | float) else v)
]


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
    checksums: str | None = Field(
        None, description="file as sha256sum writes it, with a line for every input file; another content is refused"
    )
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
    embedding_sharing: Literal["none", "embeddings", "all", "gradient_disentangled"] = Field(
        "embeddings",
        description="what generator and main encoder share: nothing, the embeddings, all weights, or the generator's "
        "embeddings plus a difference that only the main encoder trains (DeBERTa-v3)",
    )

    @model_validator(mode="after")
    def _shapes_fit(self) -> "Model":
        if self.hidden_size % self.num_heads:
            raise ValueError(f"num_heads {self.num_heads} does not divide hidden_size {self.hidden_size}")
        if self.embedding_sharing == "all" and (self.generator_width, self.generator_depth) != (1, 1):
            raise ValueError("embedding_sharing: all needs a generator of full size (generator_width and _depth 1.0)")
        return self


class Method(Section):
    """What is learned from: the pre-training method, its generator and the weights of its losses."""

    objective: ObjectiveName = Field("electra", description="pre-training method, by the paper's names")
    generator: Literal["transformer", "uniform", "unigram"] = Field(
        "transformer", description="who proposes replacements: a trained transformer, or fixed token frequencies"
    )
    generator_weight: float = Field(1.0, ge=0, description="weight of the generator's loss")
    discriminator_weight: float = Field(50.0, ge=0, description="weight of the discriminator's loss")
    mask_probability: float = Field(0.15, gt=0, lt=1, description="share of tokens masked and predicted")
    temperature: float = Field(1.0, gt=0, description="temperature of the generator's samples")
    disallow_correct: bool = Field(False, description="never sample the original token")
    correct_samples_are_fake: bool = Field(False, description="label a sample that hits the original as replaced")
    copy_mechanism: bool = Field(True, description="all_tokens_mlm: mix the input token into the prediction")
    two_stage_switch: float = Field(
        0.5, gt=0, lt=1, description="two_stage: share of the steps that train the generator alone"
    )

    @model_validator(mode="after")
    def _generator_is_needed(self) -> "Method":
        if self.generator != "transformer" and self.objective in ("two_stage", "adversarial", "electric"):
            raise ValueError(f"objective {self.objective} trains its generator: it cannot be {self.generator}")
        return self


class LengthCurriculum(Section):
    """Shorter examples first, as BERT had them: attention costs less there, and most is learned on short context."""

    length: int = Field(ge=8, le=256, description="tokens per example in the first part; divides shards.max_length")
    share: Probability = Field(0.9, description="share of the steps that see examples of this length")


class Pretrain(Method):
    """Steps, rates and masking of pre-training (reference values are the paper's)."""

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
    mask_token_probability: Probability = Field(0.85, description="masked positions shown as [MASK]; others stay")
    seed: int = Field(1, ge=0, description="seed of weights, order, masks and samples")
    eval_every: int = Field(gt=0, description="steps between validations on the held-out split")
    eval_examples: int = Field(1024, gt=0, description="held-out examples per validation (all if there are fewer)")
    initialize_from: str | None = Field(
        None, description="folder of pre-trained weights (see `electra import-huggingface`) to start from"
    )
    length_curriculum: LengthCurriculum | None = Field(
        None, description="shorter examples in the first steps, with as many tokens a step (docs/long-sequences.md)"
    )
    alarm_after: int = Field(5_000, ge=0, description="steps before a run is judged as collapsed; warm-up never is")
    alarm_patience: int = Field(
        20_000, gt=0, description="steps an alarm may stay raised before the run ends with exit code 4"
    )

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
    """The files of GLUE, SQuAD, CoNLL, SWAG and MRQA as they are distributed."""

    kind: Literal["files"] = Field(description="official TSV and JSON layouts on disk")
    glue: str | None = Field(None, description="folder with CoLA/, MRPC/, ... each with train.tsv and dev.tsv")
    squad: str | None = Field(None, description="folder with train-v1.1.json, dev-v1.1.json, train-v2.0.json, ...")
    conll: str | None = Field(
        None, description="folder with conll2003/{train,testa,testb}.txt and conll2000/{train,test}.txt"
    )
    swag: str | None = Field(None, description="folder with train.csv, val.csv and test.csv of SWAG")
    mrqa: str | None = Field(
        None, description="folder with train/ and dev/ of MRQA 2019: NewsQA.jsonl, SearchQA.jsonl.gz, ..."
    )


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
    own: list[str] = Field(
        [],
        description="YAML files that describe tasks of your own (docs/own-tasks.md); a file's name without .yaml is "
        "the task's name in cells.tasks",
    )

    @property
    def own_files(self) -> dict[str, Path]:
        """The description of each own task by the task's name."""
        return {Path(path).stem: Path(path) for path in self.own}

    @field_validator("own")
    @classmethod
    def _names_can_be_used(cls, paths: list[str]) -> list[str]:
        names = [Path(path).stem for path in paths]
        for name in names:
            if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII):
                raise ValueError(f"{name!r} cannot name a task: letters, digits, _, . and - can")
            if name in get_args(TaskName):
                raise ValueError(f"{name} is the name of a built-in task; rename the file")
        if len(set(names)) < len(names):
            raise ValueError(f"two files give the same name: {names}")
        return paths


_QUESTION_TASKS = ("SQuAD1.1", "SQuAD2.0", "NewsQA", "NaturalQuestions", "TriviaQA", "SearchQA")


class Finetune(Section):
    """Fine-tuning (paper appendix B): one setting for all tasks, epochs by task."""

    learning_rate: float = Field(gt=0, le=1, description="peak learning rate of the task head")
    layerwise_decay: float = Field(0.8, gt=0, le=1, description="factor on the rate per layer below the head")
    batch_size: int = Field(32, gt=0, description="examples per step")
    epochs: float = Field(3.0, gt=0, description="passes over the training set, unless the task is named below")
    task_epochs: dict[str, float] = Field(
        {"RTE": 10, "STS-B": 10, **dict.fromkeys(_QUESTION_TASKS, 2)}, description="epochs of single tasks"
    )
    warmup_fraction: Probability = Field(0.1, description="share of steps with linear warm-up")
    weight_decay: float = Field(0.0, ge=0, description="decoupled decay; biases and LayerNorm are excluded")
    max_grad_norm: float = Field(1.0, gt=0, description="clip of the global gradient norm")
    max_length: int = Field(128, ge=8, le=512, description="tokens of a sentence or pair")
    tagging_max_length: int | None = Field(
        None, ge=8, le=512, description="tokens of a tagged sentence; max_length where none is given"
    )
    span_max_length: int = Field(512, ge=16, le=512, description="tokens of a question and context window")
    span_head: Literal["joint", "plain"] = Field(
        "plain",
        description="joint: the paper's, where the end depends on the start (beam search over both); plain: two linear "
        "layers",
    )
    double_unordered: bool = Field(
        False, description="train MRPC, STS-B and own tasks with `unordered` on both orders of their two texts"
    )
    span_stride: int = Field(128, gt=0, description="tokens between the starts of two windows")
    max_question_length: int = Field(64, gt=0, description="tokens of a question; longer ones are cut")
    max_answer_length: int = Field(30, gt=0, description="tokens of an answer")
    max_train_examples: int | None = Field(None, gt=0, description="use only the first examples (for quick runs)")
    keep_models: bool = Field(
        False,
        description="write each cell's fine-tuned model beside its predictions, for `electra predict`: 4 bytes a "
        "parameter, so 54 MB a cell for the small, 440 MB for the base and 1.3 GB for the large shape",
    )


# ---- what no profile changes ------------------------------------------------------------------------------------


class Cells(Section):
    """The fine-tuning matrix: every task with every seed, from the pre-trained and from random weights."""

    tasks: list[str] = Field(min_length=1, description="tasks on the score card, built-in or of tasks.own")
    seeds: list[int] = Field(min_length=1, description="fine-tuning seeds; the card shows their median")
    milestones: list[Milestone] = Field(
        [], description="percentages of pre-training (of 6.25, 12.5, 25, 50) to fine-tune as well"
    )

    intermediate: list[str] = Field(
        [],
        description="tasks that are fine-tuned once more per seed, for others to start from their encoders: MNLI",
    )
    from_intermediate: list[str] = Field(
        [], description="tasks that also start from each of these, with a new head, such as RTE and STS-B"
    )
    encoders: list[Annotated[str, Field(pattern=r"^\w[\w.-]*$")]] = Field(
        [], description="encoders of another make to put every task through as well: names of folders in encoders/"
    )

    @field_validator("tasks", "seeds", "milestones", "intermediate", "from_intermediate", "encoders")
    @classmethod
    def _distinct(cls, values: list[Any]) -> list[Any]:
        if len(set(values)) < len(values):
            raise ValueError(f"listed twice: {sorted({str(v) for v in values if values.count(v) > 1})}")
        return values

    @model_validator(mode="after")
    def _intermediate_tasks_fit(self) -> "Cells":
        first, then = self.intermediate, self.from_intermediate
        if bool(first) != bool(then):
            raise ValueError("intermediate and from_intermediate belong together: what comes first, and what after it")
        if unknown := [task for task in [*first, *then] if task not in self.tasks]:
            raise ValueError(f"intermediate, from_intermediate: {', '.join(unknown)} must be among tasks too")
        if both := [task for task in first if task in then]:
            raise ValueError(f"{', '.join(both)} cannot start from its own encoder")
        return self


class Cluster(Section):
    """The machine. Changes speed, never results; no stage depends on it."""

    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: cuda where there is one")
    num_processes: int | Literal["auto"] = Field(
        "auto", description="training processes, of all nodes together; auto: one per GPU, else 1"
    )
    precision: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="matrix products; auto: bf16 where the machine has matrix units for it"
    )
    zero_stage: Literal[0, 1, 2, 3] = Field(0, description="DeepSpeed ZeRO stage")
    micro_batch_size: int | Literal["auto"] = Field(
        "auto", description="examples per process and forward pass; auto: the whole share of the global batch"
    )
    activation_checkpointing: Literal["auto", "off", "layers"] = Field(
        "off",
        description="layers: a layer keeps its input alone and runs again in the backward pass, for memory against "
        "time; auto: where a step would not fit into the memory that is free (docs/long-sequences.md)",
    )
    pack_examples: bool = Field(
        False, description="several short examples in a row, with attention within each: saves computing on padding"
    )
    num_threads: int | Literal["auto"] = Field("auto", description="threads per training process; auto: all cores")
    executor: Literal["local", "dask"] = Field(
        "local", description="who does the text stages: processes of this machine, or a Dask cluster (docs/scaling.md)"
    )
    dask_scheduler: str | None = Field(
        None, description="address such as tcp://host:8786 or tls://host:8786; none: a Dask cluster on this machine"
    )
    num_workers: int | Literal["auto"] = Field(
        "auto", description="processes of the text stages on this machine; auto: all cores"
    )
    checkpoint_minutes: float = Field(5.0, gt=0, description="minutes between checkpoints")
    keep_checkpoints: int = Field(2, ge=1, description="checkpoints kept while training")
    checkpoint_mirror: str | None = Field(
        None, description="fsspec URL that checkpoints are copied to, such as s3://bucket/checkpoints"
    )
    timeout_minutes: float = Field(
        30.0, gt=0, description="without progress after which pre-training ends and names the process it waited for"
    )
    grace_seconds: int = Field(120, gt=0, description="a process gets to write its checkpoint, after a signal to end")

    launcher: Literal["local", "torchrun", "deepspeed", "slurm", "kubernetes"] = Field(
        "local", description="what starts the processes of pre-training (docs/launchers.md)"
    )
    num_nodes: int = Field(1, ge=1, description="machines of one pre-training; num_processes is of all together")
    resubmissions: int = Field(
        20, ge=0, description="of a job that met its time limit or lost a node, as long as each got further"
    )
    torchrun: Torchrun = Field(Torchrun(), description="settings of this launcher")
    deepspeed: DeepSpeedLauncher = Field(DeepSpeedLauncher(), description="settings of this launcher")
    slurm: Slurm = Field(Slurm(), description="settings of this launcher")
    kubernetes: Kubernetes = Field(Kubernetes(), description="settings of this launcher")

    @model_validator(mode="after")
    def _launcher_has_what_it_needs(self) -> "Cluster":
        if self.num_processes != "auto" and self.num_processes % self.num_nodes:
            raise ValueError(f"num_processes {self.num_processes} does not split over num_nodes {self.num_nodes}")
        if self.launcher == "local" and self.num_nodes > 1:
            raise ValueError("launcher local is for one node: choose torchrun, deepspeed, slurm or kubernetes")
        if self.launcher in ("slurm", "kubernetes") and self.num_processes == "auto":
            raise ValueError(f"num_processes: launcher {self.launcher} must be told how many to ask for")
        if self.launcher == "kubernetes" and not (self.kubernetes.image and self.kubernetes.volume_claim):
            raise ValueError("launcher kubernetes needs kubernetes.image and kubernetes.volume_claim")
        return self


class Settings(Section):
    """All settings of one run."""

    profile: str = Field(description="name of the file under params/")
    fidelity: Literal["corrected", "original"] = Field(
        "corrected", description="original: reproduce the known defects of google-research/electra (docs/fidelity.md)"
    )
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
    def _sharing_fits(self) -> "Settings":
        objective, sharing = self.pretrain.objective, self.model.embedding_sharing
        if sharing == "gradient_disentangled" and objective in ("replace_mlm", "all_tokens_mlm"):
            raise ValueError(f"embedding_sharing: {sharing} is for methods with a discriminator, not for {objective}")
        return self

    @model_validator(mode="after")
    def _tasks_are_known(self) -> "Settings":
        known = [*get_args(TaskName), *self.tasks.own_files]
        for key, names in [("cells.tasks", self.cells.tasks), ("finetune.task_epochs", self.finetune.task_epochs)]:
            for name in names:
                if name not in known:
                    raise ValueError(f"{key}: there is no task {name!r}; choose among {', '.join(known)}")
        return self

    @model_validator(mode="after")
    def _lengths_fit(self) -> "Settings":
        for name, length in [
            ("shards.max_length", self.shards.max_length),
            ("finetune.max_length", self.finetune.max_length),
            ("finetune.tagging_max_length", self.finetune.tagging_max_length or 0),
            ("finetune.span_max_length", self.finetune.span_max_length),
        ]:
            if length > self.model.max_positions:
                raise ValueError(f"{name} {length} is larger than model.max_positions {self.model.max_positions}")
        curriculum, longest = self.pretrain.length_curriculum, self.shards.max_length
        if curriculum and (longest % curriculum.length or longest == curriculum.length):
            raise ValueError(
                f"pretrain.length_curriculum.length {curriculum.length} is no proper divisor of shards.max_length, "
                f"which is {longest}"
            )
        return self

    @model_validator(mode="after")
    def _packing_fits(self) -> "Settings":
        if self.cluster.pack_examples and self.pretrain.objective == "bert_nsp":
            raise ValueError("cluster.pack_examples: bert_nsp needs every example in a row of its own")
        return self
