"""Plain fine-tuning loop over transformers' ELECTRA, equivalent to its Trainer's defaults.

Shape legend: B examples, T tokens.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from electra.config import Finetune
from electra.finetune.features import Feature
from electra.finetune.trainer import num_steps


def plain_model(folder: Path, num_labels: int, attention: str, seed: int) -> nn.Module:
    """Return the exported encoder with transformers' two-layer head."""
    from transformers import ElectraForSequenceClassification
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()  # no warning about the new head
    torch.manual_seed(seed)
    return ElectraForSequenceClassification.from_pretrained(
        folder, num_labels=num_labels, attn_implementation=attention
    )


def train_plain(
    model: nn.Module,
    features: list[Feature],
    options: Finetune,
    *,
    epochs: float,
    seed: int,
    pad: int,
    bf16: bool,
    length: int | None,
) -> None:
    """Fine-tune in place: shuffled batches, fused AdamW, linear warm-up, then linear decay to 0.

    Args:
        length: length to which every batch is padded; None for the batch's longest example.
    """
    device = next(model.parameters()).device
    optimizer = torch.optim.AdamW(_groups(model, options.weight_decay), lr=options.learning_rate, fused=True)
    steps = num_steps(len(features), options.batch_size, epochs)
    warmup = int(steps * options.warmup_fraction)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(step / max(1, warmup), (steps - step) / max(1, steps - warmup))
    )
    torch.manual_seed(seed)
    model.train()
    batches = _shuffled(features, options.batch_size)
    for _ in range(steps):
        batch = _padded(next(batches), pad, length, device)
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            loss = model(**batch).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), options.max_grad_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


@torch.inference_mode()
def predict_plain(
    model: nn.Module, features: list[Feature], batch_size: int, *, pad: int, bf16: bool, length: int | None
) -> list[int]:
    """Return the most probable class of each example."""
    device = next(model.parameters()).device
    model.eval()
    found: list[int] = []
    for begin in range(0, len(features), batch_size):
        batch = _padded(features[begin : begin + batch_size], pad, length, device)
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            found += model(**batch).logits.argmax(-1).tolist()
    return found


def _groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Return parameter groups as the Trainer does: no weight decay on biases and LayerNorm."""
    is_free = {name: name.endswith("bias") or "LayerNorm" in name for name, _ in model.named_parameters()}
    return [
        {
            "params": [parameter for name, parameter in model.named_parameters() if is_free[name] == free],
            "weight_decay": 0.0 if free else weight_decay,
        }
        for free in (False, True)
    ]


def _shuffled(features: list[Feature], batch_size: int) -> Iterator[list[Feature]]:
    while True:
        order = torch.randperm(len(features)).tolist()
        for begin in range(0, len(order), batch_size):
            yield [features[i] for i in order[begin : begin + batch_size]]


def _padded(features: list[Feature], pad: int, length: int | None, device: torch.device) -> dict[str, Tensor]:
    T = length or max(len(feature.token_ids) for feature in features)
    input_ids_BT = torch.full((len(features), T), pad)
    segments_BT = torch.zeros_like(input_ids_BT)
    mask_BT = torch.zeros_like(input_ids_BT)
    for row, feature in enumerate(features):
        size = len(feature.token_ids)
        input_ids_BT[row, :size] = torch.tensor(feature.token_ids)
        segments_BT[row, feature.first_length : size] = 1
        mask_BT[row, :size] = 1
    labels_B = torch.tensor([feature.target for feature in features])
    batch = {"input_ids": input_ids_BT, "token_type_ids": segments_BT, "attention_mask": mask_BT, "labels": labels_B}
    return {name: value.to(device) for name, value in batch.items()}
