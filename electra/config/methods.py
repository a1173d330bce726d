"""The pre-training methods by name: what is known of each without importing PyTorch.

The class of a method lies in the file of its name in ``electra/objectives``, imported when a model is built. Settings,
checks and reports need less of it, and need it quickly.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class MethodInfo:
    """Facts about a pre-training method.

    Attributes:
        title: as reports and model cards write it.
        has_generator: a generator proposes replacements; otherwise the main encoder itself predicts masked tokens.
        has_discriminator: the main encoder detects replaced tokens; otherwise it is a masked language model.
        may_fix_generator: the generator may be fixed token frequencies (``pretrain.generator``).
        two_phases: the first share of the steps (``pretrain.two_stage_switch``) learns by another loss.
        num_generators: encoders of the generator, where there is one.
        may_disentangle: ``model.embedding_sharing`` may be gradient_disentangled: a table of words for the generator,
            with differences for the main encoder, which predicts none.
        next_sentences: half of the second segments are random ones, and every example has a row of its own.
        in_papers_script: the ELECTRA authors' script counts its FLOPs.
    """

    title: str
    has_generator: bool = True
    has_discriminator: bool = True
    may_fix_generator: bool = True
    two_phases: bool = False
    num_generators: int = 1
    may_disentangle: bool = True
    next_sentences: bool = False
    in_papers_script: bool = False


METHODS = {
    "electra": MethodInfo("replaced token detection (ELECTRA, Clark et al. 2020)", in_papers_script=True),
    "electra_15": MethodInfo("replaced token detection on the masked tokens only (ELECTRA 15%)"),
    "two_stage": MethodInfo(
        "replaced token detection in two stages: generator, then discriminator",
        may_fix_generator=False,
        two_phases=True,
    ),
    "mlm_then_rtd": MethodInfo(
        "masked language modelling, then replaced token detection by the same encoder",
        two_phases=True,
        may_disentangle=False,
    ),
    "adversarial": MethodInfo("replaced token detection with an adversarial generator", may_fix_generator=False),
    "replace_mlm": MethodInfo(
        "Replace MLM: masked tokens predicted from a generator's samples",
        has_discriminator=False,
        may_disentangle=False,
    ),
    "all_tokens_mlm": MethodInfo(
        "All-Tokens MLM: every token predicted from a generator's samples",
        has_discriminator=False,
        may_disentangle=False,
    ),
    "bert": MethodInfo(
        "masked language modelling (BERT)", has_generator=False, has_discriminator=False, in_papers_script=True
    ),
    "bert_nsp": MethodInfo(
        "masked language modelling and next sentences (BERT)",
        has_generator=False,
        has_discriminator=False,
        next_sentences=True,
    ),
    "electric": MethodInfo(
        "noise-contrastive cloze modelling (Electric, Clark et al. 2020)",
        may_fix_generator=False,
        num_generators=2,  # one reads from the left, one from the right
    ),
}
