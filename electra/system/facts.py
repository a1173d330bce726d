"""Machine that results were made on: ``results/machine.json``, in git and no output of a stage.

Outputs must repeat byte by byte, and the machine and the minutes of a run do not; `electra compare` and `electra runs`
read them here.
"""

import os
import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from electra.common.artifacts import read_json, write_json
from electra.common.errors import ElectraError
from electra.common.paths import Paths


def machine_file(paths: Paths) -> Path:
    """Facts by stage: ``pretrain`` and ``finetune``."""
    return paths.results / "machine.json"


def processor() -> str:
    """Name of the processor with the vector instructions that decide which kernels run."""
    name, flags = platform.machine(), ""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                name = value.strip()
            elif key.strip() == "flags":
                flags = value
                break
    except OSError:
        pass  # another system: its architecture is what is known
    widest = next((kind for kind in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if f" {kind}" in flags), "")
    return f"{name} ({widest})" if widest else name


def note_machine(paths: Paths, stage: str, device: str, seconds: float) -> None:
    """Write what this stage ran on and its minutes; a record that cannot be written must not fail the stage."""
    file = machine_file(paths)
    try:
        known: dict[str, Any] = read_json(file) if file.is_file() else {}
    except ElectraError:
        known = {}
    facts: dict[str, Any] = {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "device": device,
        "torch": metadata.version("torch"),
    }
    if stage == "pretrain":  # cells run side by side and from the cache: logs/finetune has theirs
        facts["minutes"] = round(seconds / 60, 1)
    if {**known.get(stage, {}), "minutes": 0} == {**facts, "minutes": 0} and stage != "pretrain":
        return
    with suppress(OSError, ElectraError):
        write_json(file, {**known, stage: facts})
