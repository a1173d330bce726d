"""Fine-tune an encoder of Small's shape on the pretended device: ``python -m tests.gpu.cell KIND REPORT.json``.

What each step launched, copied and waited for; from the second step on, without the last one, which is reported.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from electra.config import Cluster, Finetune, Model
from electra.finetune import trainer
from electra.finetune.features import Feature
from electra.finetune.heads import TaskModel
from electra.finetune.run import prepare_machine
from electra.model.encoder import Encoder
from electra.model.shape import EncoderConfig
from electra.optim import ElectraAdamW
from electra.tasks.catalogue import TASKS
from tests.gpu.probe import Device
from tests.workspace import ROOT

CELLS = {"classification": ("CoLA", 1), "span": ("SQuAD2.0", (5, 7, 0))}


def main() -> None:
    import torch

    kind, report = sys.argv[1], Path(sys.argv[2])
    device, watched = Device(), []
    task, target = CELLS[kind]
    where, bf16 = prepare_machine(Cluster(device="cuda", precision="bf16"))
    written = yaml.safe_load((ROOT / "params/small.yaml").read_text())
    shape = EncoderConfig.discriminator(Model(**written["model"]), 30_522)
    random = torch.Generator().manual_seed(1)
    model = TaskModel(TASKS[task], Encoder(shape), random, span_head="joint").to(where)
    features = [Feature([5] * (20 + number % 100), 4, target, number) for number in range(32 * 12)]
    step, began = ElectraAdamW.step, [0.0]

    def counted(self: Any, closure: Any = None) -> None:
        step(self, closure)
        watched.append({"host_ms": 1000 * (time.thread_time() - began[0]), **device.take()})
        began[0] = time.thread_time()

    ElectraAdamW.step = counted  # type: ignore[method-assign]
    trainer.math.isfinite = lambda _: True  # type: ignore[assignment]  # nothing is computed
    options = Finetune(**{**written["finetune"], "batch_size": 32})
    trainer.train(model, features, options, epochs=1, seed=1, pad=0, bf16=bf16, name=task)
    report.write_text(json.dumps(watched))
    os._exit(0)


if __name__ == "__main__":
    main()
