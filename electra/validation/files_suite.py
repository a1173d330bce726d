"""What must hold for the files of every artefact folder."""

from electra.validation.files_table import INTACT
from electra.validation.judge import CRITICAL, gxe


def files_expectations(folder: str, stage: str) -> list[gxe.Expectation]:
    """Expectations on a files table; ``folder`` and ``stage`` are the names a user knows."""
    return [
        gxe.ExpectColumnValuesToBeInSet(
            column="state",
            value_set=[INTACT],
            severity=CRITICAL,
            description=f"the files in {folder} are those of its manifest (sha256)",
            notes=f"make the {stage} again: dvc repro -f {stage}",
        )
    ]
