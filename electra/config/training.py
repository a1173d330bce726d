"""Settings of the model and its pre-training."""

from typing import Literal

from pydantic import Field, model_validator

from electra.config.section import Probability, Section, Seed

ObjectiveName = Literal[
    "electra", "electra_15", "two_stage", "adversarial", "replace_mlm", "all_tokens_mlm", "bert", "bert_nsp", "electric"
]  # fmt: skip


class Model(Section):
    """Shapes of discriminator and generator (paper section 3.2 and appendix A)."""

    num_layers: int = Field(gt=0, le=1_000, description="discriminator layers")
    hidden_size: int = Field(gt=0, le=65_536, description="discriminator width")
    num_heads: int = Field(gt=0, le=65_536, description="discriminator attention heads")
    intermediate_size: int = Field(gt=0, le=16_777_216, description="discriminator feed-forward width")
    embedding_size: int = Field(
        gt=0, le=65_536, description="width of the shared embeddings; projected where it differs"
    )
    generator_width: float = Field(0.25, gt=0, le=1, description="generator width as a fraction of hidden_size")
    generator_depth: float = Field(1.0, gt=0, le=1, description="generator layers as a fraction of num_layers")
    max_positions: int = Field(512, ge=8, le=1_048_576, description="rows of the position table")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout on embeddings and layer outputs")
    attention_dropout: float = Field(0.1, ge=0, lt=1, description="dropout on attention probabilities")
    initializer_range: float = Field(
        0.02, gt=0, le=10, description="standard deviation of the truncated normal at start"
    )
    layer_norm_eps: float = Field(1e-12, gt=0, le=1, description="epsilon of layer normalisation")
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
    """The objective: the pre-training method, its generator and the weights of its losses."""

    objective: ObjectiveName = Field("electra", description="pre-training method, by the paper's names")
    generator: Literal["transformer", "uniform", "unigram"] = Field(
        "transformer", description="who proposes replacements: a trained transformer, or fixed token frequencies"
    )
    generator_weight: float = Field(1.0, ge=0, le=1_000_000, description="weight of the generator's loss")
    discriminator_weight: float = Field(50.0, ge=0, le=1_000_000, description="weight of the discriminator's loss")
    mask_probability: float = Field(0.15, gt=0, lt=1, description="share of tokens masked and predicted")
    temperature: float = Field(1.0, gt=0, le=1_000_000, description="temperature of the generator's samples")
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
    share: float = Field(0.9, gt=0, le=1, description="share of the steps that see examples of this length")


class Pretrain(Method):
    """Steps, rates and masking of pre-training (reference values are the paper's)."""

    num_steps: int = Field(gt=0, le=1_000_000_000, description="optimizer steps")
    batch_size: int = Field(gt=0, le=1_048_576, description="global batch in examples; independent of the machine")
    learning_rate: float = Field(gt=0, le=1, description="peak learning rate")
    warmup_steps: int = Field(ge=0, le=1_000_000_000, description="steps of linear warm-up, multiplied with the decay")
    decay_power: float = Field(1.0, gt=0, le=100, description="power of the polynomial decay to zero")
    weight_decay: float = Field(0.01, ge=0, le=10, description="decoupled decay; biases and LayerNorm are excluded")
    adam_beta1: float = Field(0.9, ge=0, lt=1, description="Adam: decay of the first moment")
    adam_beta2: float = Field(0.999, ge=0, lt=1, description="Adam: decay of the second moment")
    adam_epsilon: float = Field(1e-6, gt=0, le=1, description="Adam: epsilon, without bias correction")
    max_grad_norm: float = Field(
        1.0, gt=0, le=1e12, description="clip of the global norm over generator and discriminator"
    )
    mask_token_probability: Probability = Field(0.85, description="masked positions shown as [MASK]; others stay")
    seed: Seed = Field(1, description="seed of weights, order, masks and samples")
    eval_every: int = Field(gt=0, le=1_000_000_000, description="steps between validations on the held-out split")
    eval_examples: int = Field(
        1024, gt=0, le=1_000_000_000, description="held-out examples per validation (all if there are fewer)"
    )
    initialize_from: str | None = Field(
        None, description="folder of pre-trained weights (see `electra import-huggingface`) to start from"
    )
    length_curriculum: LengthCurriculum | None = Field(
        None, description="shorter examples in the first steps, with as many tokens a step (docs/long-sequences.md)"
    )
    alarm_after: int = Field(
        5_000, ge=0, le=1_000_000_000, description="steps before a run is judged as collapsed; warm-up never is"
    )
    alarm_patience: int = Field(
        20_000,
        gt=0,
        le=1_000_000_000,
        description="steps an alarm may stay raised before the run ends with exit code 4",
    )

    @model_validator(mode="after")
    def _warmup_fits(self) -> "Pretrain":
        if self.warmup_steps >= self.num_steps:
            raise ValueError(f"warmup_steps {self.warmup_steps} is not below num_steps {self.num_steps}")
        return self
