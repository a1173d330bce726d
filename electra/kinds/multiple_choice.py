"""Choice among several continuations or answers: rows, and their checks; scored as a classification."""

from electra.kinds.classification import Classification
from electra.tasks.catalogue import TaskSpec
from electra.tasks.format import Row


class MultipleChoice(Classification):
    """The number of the right choice of each row, as a text."""

    keys = {"id": str, "text_a": str, "choices": list, "label": (str, type(None))}
    lists = ("choices",)
    example_keys = ("text_a", "choices")
    has_classes = False
    transformers_class = "ForMultipleChoice"
    pipeline = "multiple-choice"
    problem_type = None

    def texts(self, spec: TaskSpec, record: Row) -> list[str]:
        # A wrong number of choices counts as a missing text: the label would refer to another choice.
        return [record["text_a"], *record["choices"], *([""] if len(record["choices"]) != len(spec.labels) else [])]
