"""Schema of ``params.yaml`` + ``params/<profile>.yaml``.

``params.yaml`` holds the profile's name and the settings independent of profiles (which tasks to fine-tune, the
machine); ``params/<profile>.yaml`` holds all other settings that affect results. Every key is in exactly one of the two
files; only ``pretrain.objective`` may be in both, and then the value in ``params.yaml`` is used. Unknown keys and
invalid values raise an error with the path of the key. The description of a field is also its help text (``electra
config --help-fields``). The files are read in electra/config/loading.py.
"""

from typing import Literal

from pydantic import Field, model_validator

from electra.config.embed import SENTENCES, Embed
from electra.config.machine import Cluster
from electra.config.methods import METHODS
from electra.config.section import Probability, Section
from electra.config.tasks import (
    Cells,
    FilesTasks,
    Finetune,
    HubTasks,
    Milestone,
    Tasks,
)
from electra.config.text import (
    Corpus,
    CorpusSource,
    FilesCorpus,
    HubCorpus,
    Revision,
    Shards,
    Tokenizer,
)
from electra.config.training import LengthCurriculum, Method, Model, ObjectiveName, Pretrain
from electra.tasks.catalogue import TASKS

__all__ = [
    "SENTENCES",
    "Cells",
    "Cluster",
    "Corpus",
    "CorpusSource",
    "Embed",
    "FilesCorpus",
    "FilesTasks",
    "Finetune",
    "HubCorpus",
    "HubTasks",
    "LengthCurriculum",
    "Method",
    "Milestone",
    "Model",
    "ObjectiveName",
    "Pretrain",
    "Probability",
    "Revision",
    "Section",
    "Settings",
    "Shards",
    "Tasks",
    "Tokenizer",
]


class Settings(Section):
    """All settings of one run."""

    profile: str = Field(description="name of the file under params/")
    fidelity: Literal["corrected", "original"] = Field(
        "corrected", description="original: reproduce the known bugs of google-research/electra (docs/fidelity.md)"
    )
    cells: Cells = Field(description="the fine-tuning matrix of the score card")
    cluster: Cluster = Field(description="the machine: affects speed, not the recipe (docs/architecture.md)")
    corpus: Corpus = Field(description="documents, their cleaning and the held-out split")
    tokenizer: Tokenizer = Field(description="the vocabulary")
    shards: Shards = Field(description="fixed-length examples")
    model: Model = Field(description="architecture and sizes of discriminator and generator")
    pretrain: Pretrain = Field(description="pre-training")
    tasks: Tasks = Field(description="labelled data")
    finetune: Finetune = Field(description="fine-tuning")
    embed: Embed = Field(Embed(), description="sentence embeddings")

    @model_validator(mode="after")
    def _sharing_fits(self) -> "Settings":
        objective, sharing = self.pretrain.objective, self.model.embedding_sharing
        if sharing == "gradient_disentangled" and not METHODS[objective].may_disentangle:
            raise ValueError(f"embedding_sharing: {sharing} is not for {objective}, whose main encoder predicts words")
        return self

    @model_validator(mode="after")
    def _generator_has_whole_heads(self) -> "Settings":
        width, heads = self.model.generator_shape
        if self.pretrain.trains_generator and (width < 1 or width % heads):
            raise ValueError(
                f"generator_width {self.model.generator_width} makes the generator {width} wide, which its {heads} "
                f"heads do not divide: choose a width that is a multiple of {self.model.head_width}"
            )
        return self

    @model_validator(mode="after")
    def _tasks_are_known(self) -> "Settings":
        known = [*TASKS, *self.tasks.custom_files]
        for key, names in [
            ("cells.tasks", self.cells.tasks),
            ("finetune.task_learning_rate", list(self.finetune.task_learning_rate)),
            ("finetune.task_epochs", list(self.finetune.task_epochs)),
            ("finetune.task_max_train_examples", list(self.finetune.task_max_train_examples)),
        ]:
            for name in names:
                if name not in known:
                    raise ValueError(f"{key}: there is no task {name!r}; choose among {', '.join(known)}")
        if strangers := [name for name in self.cells.embeddings if name not in (SENTENCES, *self.cells.tasks)]:
            raise ValueError(f"cells.embeddings: {', '.join(strangers)} must be {SENTENCES} or among cells.tasks")
        public = [name for name in self.cells.tasks if name in TASKS]
        if public and self.tasks.source is None:
            raise ValueError(f"tasks.source: missing, and {', '.join(public)} of cells.tasks must come from somewhere")
        return self

    @model_validator(mode="after")
    def _lengths_fit(self) -> "Settings":
        for name, length in [
            ("shards.max_length", self.shards.max_length),
            ("finetune.max_length", self.finetune.max_length),
            ("finetune.tagging_max_length", self.finetune.tagging_max_length or 0),
            ("finetune.span_max_length", self.finetune.span_max_length),
            ("embed.max_length", self.embed.max_length or 0),
        ]:
            if length > self.model.max_positions:
                raise ValueError(f"{name} {length} is larger than model.max_positions {self.model.max_positions}")
        if too_large := [size for size in self.embed.sizes if size > self.model.hidden_size]:
            raise ValueError(f"embed.sizes {too_large} are larger than model.hidden_size {self.model.hidden_size}")
        curriculum, longest = self.pretrain.length_curriculum, self.shards.max_length
        if curriculum and (longest % curriculum.length or longest == curriculum.length):
            raise ValueError(
                f"pretrain.length_curriculum.length {curriculum.length} is no proper divisor of shards.max_length, "
                f"which is {longest}"
            )
        return self

    @model_validator(mode="after")
    def _masking_fits(self) -> "Settings":
        if self.pretrain.whole_words and self.fidelity == "original":
            raise ValueError("pretrain.whole_words: fidelity original draws single tokens with replacement")
        return self

    @model_validator(mode="after")
    def _packing_fits(self) -> "Settings":
        objective = self.pretrain.objective
        if self.cluster.pack_examples and METHODS[objective].next_sentences:
            raise ValueError(f"cluster.pack_examples: {objective} needs every example in a row of its own")
        return self
