"""Settings of the model and its pre-training."""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator, model_validator

from electra.config.methods import METHODS
from electra.config.milestones import MilestoneRule
from electra.config.section import Probability, Section, Seed

if TYPE_CHECKING:
    ObjectiveName = str
else:
    ObjectiveName = Literal[tuple(METHODS)]


# Defaults of each architecture for the parts of a block (docs/architecture-modern.md).
PARTS: dict[str, dict[str, str]] = {
    "electra": {"positions": "learned", "norm": "post", "feed_forward": "gelu"},
    "modern": {"positions": "rotary", "norm": "pre", "feed_forward": "geglu"},
}


class Model(Section):
    """Architecture and sizes of discriminator and generator (paper section 3.2 and appendix A).

    ``architecture`` determines biases, segments, the embeddings' LayerNorm and the heads, and the defaults of
    ``positions``, ``norm`` and ``feed_forward``, each of which may be set to the other architecture's.
    """

    architecture: Literal["electra", "modern"] = Field(
        "electra",
        description="electra: the paper's blocks, with biases and segments; modern: ModernBERT's blocks, without "
        "either, and with a LayerNorm after the embeddings' projection and in both heads",
    )
    positions: Literal["learned", "rotary"] = Field(
        "learned",
        description="learned: a table added to the embeddings; rotary: queries and keys rotated by their position; "
        "default of modern: rotary",
    )
    norm: Literal["post", "pre"] = Field(
        "post",
        description="post: LayerNorm after each part of a layer; pre: before it, and once at the end; default of "
        "modern: pre",
    )
    feed_forward: Literal["gelu", "geglu"] = Field(
        "gelu", description="geglu: GELU times a second projection of the same width; default of modern: geglu"
    )
    rotary_base: float = Field(
        10_000.0, gt=1, le=1e12, description="base of the rotary frequencies; larger for longer inputs"
    )
    local_attention: int | None = Field(
        None,
        ge=2,
        le=1_048_576,
        description="window of local attention in tokens, half on each side; null: full attention in every layer",
    )
    global_every: int = Field(
        3, ge=1, le=1_000, description="with local_attention: every n-th layer from the first has full attention"
    )
    local_rotary_base: float = Field(10_000.0, gt=1, le=1e12, description="rotary_base of the local layers")
    num_layers: int = Field(gt=0, le=1_000, description="discriminator layers")
    hidden_size: int = Field(gt=0, le=65_536, description="discriminator width")
    num_heads: int = Field(gt=0, le=65_536, description="discriminator attention heads")
    intermediate_size: int = Field(gt=0, le=16_777_216, description="discriminator feed-forward width")
    embedding_size: int = Field(
        gt=0, le=65_536, description="width of the shared embeddings; projected if it differs from hidden_size"
    )
    generator_width: float = Field(0.25, gt=0, le=1, description="generator width as a fraction of hidden_size")
    generator_depth: float = Field(1.0, gt=0, le=1, description="generator layers as a fraction of num_layers")
    max_positions: int = Field(
        512, ge=8, le=1_048_576, description="maximum tokens of an input; rows of the learned position table"
    )
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout on embeddings and layer outputs")
    attention_dropout: float = Field(0.1, ge=0, lt=1, description="dropout on attention probabilities")
    initializer_range: float = Field(
        0.02, gt=0, le=10, description="standard deviation of the truncated normal initialisation"
    )
    layer_norm_eps: float = Field(1e-12, gt=0, le=1, description="epsilon of layer normalisation")
    embedding_sharing: Literal["none", "embeddings", "all", "gradient_disentangled"] = Field(
        "embeddings",
        description="weights shared by generator and main encoder: none, the embeddings, all weights, or the "
        "generator's embeddings plus a difference that only the main encoder trains (DeBERTa-v3); electric and "
        "two_stage do not look at it",
    )

    @model_validator(mode="before")
    @classmethod
    def _architecture_names_the_parts(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {**PARTS.get(str(values.get("architecture")), {}), **values}

    @property
    def head_width(self) -> int:
        """Width of the generator's heads: 64, as in the paper, or that of the discriminator's where it is less."""
        return min(64, self.hidden_size // self.num_heads)

    @property
    def generator_shape(self) -> tuple[int, int]:
        """Width and number of heads of the generator."""
        width = round(self.hidden_size * self.generator_width)
        return width, max(1, width // self.head_width)

    @model_validator(mode="after")
    def _shapes_fit(self) -> "Model":
        if self.hidden_size % self.num_heads:
            raise ValueError(f"num_heads {self.num_heads} does not divide hidden_size {self.hidden_size}")
        shapes = (("", self.hidden_size, self.num_heads), ("the generator's ", *self.generator_shape))
        for name, width, number in shapes:
            if self.positions == "rotary" and width % (2 * number):
                raise ValueError(f"rotary positions rotate pairs: {name}{number} heads in a width of {width} are odd")
        if self.local_attention is not None and self.local_attention % 2:
            raise ValueError(f"local_attention {self.local_attention} is odd: half of it lies on each side of a token")
        if self.embedding_sharing == "all" and (self.generator_width, self.generator_depth) != (1, 1):
            raise ValueError("embedding_sharing: all needs a generator of full size (generator_width and _depth 1.0)")
        return self


class Method(Section):
    """The pre-training method, its generator and the weights of its losses."""

    objective: ObjectiveName = Field(
        "electra",
        description="pre-training method, by the paper's names; a value in params.yaml replaces the profile's",
    )
    generator: Literal["transformer", "uniform", "unigram"] = Field(
        "transformer", description="source of replacements: a trained transformer, or fixed token frequencies"
    )
    generator_weight: float = Field(1.0, ge=0, le=1_000_000, description="weight of the generator's loss")
    discriminator_weight: float = Field(50.0, ge=0, le=1_000_000, description="weight of the discriminator's loss")
    mask_probability: float = Field(0.15, gt=0, lt=1, description="share of tokens masked and predicted")
    temperature: float = Field(1.0, gt=0, le=1_000_000, description="temperature of the generator's samples")
    disallow_correct: bool = Field(False, description="never sample the original token; no effect with electric")
    correct_samples_are_fake: bool = Field(False, description="label a sample equal to the original as replaced")
    copy_mechanism: bool = Field(True, description="all_tokens_mlm: mix the input token into the prediction")
    two_stage_switch: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="two_stage, mlm_then_rtd: share of the steps in the first phase: masked language modelling",
    )

    @property
    def trains_generator(self) -> bool:
        """Whether the method has a generator with weights, not one of fixed token frequencies."""
        return METHODS[self.objective].has_generator and self.generator == "transformer"

    @model_validator(mode="after")
    def _generator_is_needed(self) -> "Method":
        if self.generator != "transformer" and not METHODS[self.objective].may_fix_generator:
            raise ValueError(f"objective {self.objective} trains its generator: it cannot be {self.generator}")
        return self


class LengthCurriculum(Section):
    """Shorter examples first, as for BERT: attention costs less, and most is learned on short context."""

    length: int = Field(ge=8, le=256, description="tokens per example in the first part; divides shards.max_length")
    share: float = Field(0.9, gt=0, le=1, description="share of the steps with examples of this length")


class Pretrain(Method):
    """Steps, learning rates and masking of pre-training (reference values from the paper)."""

    num_steps: int = Field(gt=0, le=1_000_000_000, description="optimizer steps; with `epochs` only an estimate")
    epochs: float | None = Field(
        None,
        gt=0,
        le=1_000_000,
        description="passes over the training examples: decides the steps in place of num_steps, which is then used "
        "only in estimates; null: num_steps",
    )
    batch_size: int = Field(gt=0, le=1_048_576, description="global batch in examples; independent of the machine")
    learning_rate: float = Field(gt=0, le=1, description="peak learning rate")
    generator_rate: float = Field(
        1.0,
        gt=0,
        le=100,
        description="learning rate of the generator's unshared weights as a fraction of learning_rate; shared weights "
        "have the full rate",
    )
    warmup_steps: int = Field(
        ge=0,
        le=1_000_000_000,
        description="steps of linear warm-up, multiplied with the decay; at most half of each phase of a method of two",
    )
    schedule: Literal["polynomial", "wsd"] = Field(
        "polynomial",
        description="learning rate; polynomial: decay from the first step on (the paper's); wsd: warm-up, constant "
        "peak, and decay only in the last steps (warmup-stable-decay)",
    )
    decay_power: float = Field(1.0, gt=0, le=100, description="polynomial: power of the decay to zero")
    decay_share: float = Field(
        0.2,
        gt=0,
        lt=1,
        description="wsd: share of the steps, at the end, in which the rate falls to zero by 1 - sqrt",
    )
    weight_decay: float = Field(0.01, ge=0, le=10, description="decoupled decay; biases and LayerNorm are excluded")
    adam_beta1: float = Field(0.9, ge=0, lt=1, description="Adam: decay of the first moment")
    adam_beta2: float = Field(0.999, ge=0, lt=1, description="Adam: decay of the second moment")
    adam_epsilon: float = Field(1e-6, gt=0, le=1, description="Adam: epsilon, without bias correction")
    max_grad_norm: float = Field(
        1.0, gt=0, le=1e12, description="clip of the global norm over generator and discriminator"
    )
    mask_token_probability: Probability = Field(
        0.85, description="share of masked positions shown as [MASK]; others stay; bert, bert_nsp have BERT's own"
    )
    whole_words: bool = Field(
        False, description="mask all tokens of a word together, up to mask_probability; false: single tokens"
    )
    seed: Seed = Field(1, description="seed of weights, order, masks and samples")
    eval_every: int = Field(gt=0, le=1_000_000_000, description="steps between validations on the held-out split")
    eval_examples: int = Field(
        1024, gt=0, le=1_000_000_000, description="held-out examples per validation (all if there are fewer)"
    )
    initialize_from: str | None = Field(
        None,
        description="folder of pre-trained weights (see `electra import-huggingface`) to start from; of any method",
    )
    milestones: list[str] = Field(
        [],
        description="keep the weights after so much text too, each with its count: `10M tokens`, `every 1M words to "
        "10M`, `every 500 steps`; `as chck_` names them chck_1M and so on (docs/publishing.md)",
    )
    length_curriculum: LengthCurriculum | None = Field(
        None, description="shorter examples in the first steps, same number of tokens per step (docs/long-sequences.md)"
    )
    alarm_after: int = Field(
        5_000, ge=0, le=1_000_000_000, description="steps before collapse alarms are raised; never during warm-up"
    )
    alarm_patience: int = Field(
        20_000,
        gt=0,
        le=1_000_000_000,
        description="steps an alarm may stay raised before the run ends with exit code 4",
    )

    def with_steps_for(self, num_examples: int) -> "Pretrain":
        """Return the recipe with the steps that make ``epochs`` passes over the training examples, rounded down.

        At least one step is taken. Without ``epochs`` the recipe is unchanged.
        """
        if self.epochs is None:
            return self
        return self.model_copy(update={"num_steps": max(1, int(self.epochs * num_examples) // self.batch_size)})

    @field_validator("milestones")
    @classmethod
    def _milestones_are_rules(cls, rules: list[str]) -> list[str]:
        for rule in rules:
            MilestoneRule.parse(rule)
        return rules

    @model_validator(mode="after")
    def _warmup_fits(self) -> "Pretrain":
        if self.warmup_steps >= self.num_steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} is not below num_steps {self.num_steps}")
        if self.schedule == "wsd" and self.warmup_steps > (stable := (1 - self.decay_share) * self.num_steps):
            raise ValueError(f"warmup_steps {self.warmup_steps} reaches into the decay, which begins at {stable:.0f}")
        return self
