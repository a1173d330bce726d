"""The kinds of task that can be fine-tuned, by the name in :class:`electra.tasks.format.TaskSpec`."""

from typing import Any

from electra.finetune.base import Finetuning
from electra.finetune.classification import Classification
from electra.finetune.multiple_choice import MultipleChoice
from electra.finetune.regression import Regression
from electra.finetune.span import Span
from electra.finetune.tagging import Tagging

FINETUNING: dict[str, Finetuning[Any]] = {
    "classification": Classification(),
    "regression": Regression(),
    "span": Span(),
    "tagging": Tagging(),
    "multiple_choice": MultipleChoice(),
}
