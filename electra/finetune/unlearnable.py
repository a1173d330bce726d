"""What of the training data a model cannot learn, since its inputs are wordpieces of limited length."""

from collections.abc import Sequence

from electra.finetune.features import Feature
from electra.finetune.rows import Row
from electra.finetune.tagging import words_cut
from electra.finetune.tasks import TaskSpec
from electra.finetune.windows import Window


def unlearnable(spec: TaskSpec, rows: list[Row], features: Sequence[Feature]) -> dict[str, int]:
    """Counts for ``run.json``; nothing for kinds whose texts are cut by rule."""
    if spec.kind == "tagging":
        return {"words_cut": words_cut(rows, features)}
    if spec.kind == "span":
        return {"answers_not_recoverable": len(answers_not_recoverable(rows, features))}
    return {}


def answers_not_recoverable(rows: list[Row], features: Sequence[Feature]) -> list[str]:
    """Ids of the questions whose learned answer no window can give exactly.

    The answer begins or ends inside a wordpiece ("Japan" in "Japanese"), or is longer than every window.
    """
    recovered = set()
    for window in features:
        if isinstance(window, Window) and window.target[0]:
            row, (start, end, _) = rows[window.row], window.target
            if window.text(row["context"], start, end) == row["answers"][0]["text"]:
                recovered.add(window.row)
    return [row["id"] for number, row in enumerate(rows) if not row["impossible"] and number not in recovered]
