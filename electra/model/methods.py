"""The pre-training methods by name."""

from electra import config
from electra.model.electra import Electra, Electra15
from electra.model.objective import Objective
from electra.model.objectives.adversarial import Adversarial
from electra.model.objectives.all_tokens_mlm import AllTokensMlm
from electra.model.objectives.bert import Bert, BertNextSentence
from electra.model.objectives.electric import Electric
from electra.model.objectives.replace_mlm import ReplaceMlm
from electra.model.objectives.two_stage import TwoStage

METHODS: dict[str, type] = {
    "electra": Electra,
    "electra_15": Electra15,
    "two_stage": TwoStage,
    "adversarial": Adversarial,
    "replace_mlm": ReplaceMlm,
    "all_tokens_mlm": AllTokensMlm,
    "bert": Bert,
    "bert_nsp": BertNextSentence,
    "electric": Electric,
}


def build_objective(model: config.Model, vocab_size: int, mask_id: int, method: config.Method) -> Objective:
    """The module that ``pretrain.objective`` names, with weights not yet drawn."""
    return METHODS[method.objective](model, vocab_size, mask_id, method)
