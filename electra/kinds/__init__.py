"""The kinds of task without their fine-tuning, which needs PyTorch, by the name in the catalogue."""

from electra.kinds.base import TaskKind
from electra.kinds.classification import Classification
from electra.kinds.multiple_choice import MultipleChoice
from electra.kinds.regression import Regression
from electra.kinds.span import Span
from electra.kinds.tagging import Tagging

KINDS: dict[str, TaskKind] = {
    "classification": Classification(),
    "regression": Regression(),
    "span": Span(),
    "tagging": Tagging(),
    "multiple_choice": MultipleChoice(),
}
