"""Memory of a pre-training step, measured by running the step on fake tensors.

PyTorch's fake tensors have shapes and storages but no bytes, so a step of any size runs in seconds, and allocations,
frees and the peak are measured on the training code itself. Constants are added for DeepSpeed's buffers (``_ENGINE``)
and, on a CPU, for heap fragmentation, the copy for checkpoints and imported libraries.
"""

import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from electra import config
from electra.cluster.hardware import Machine, bucket_size, resolve_machine
from electra.cluster.memory import give_back_freed_memory
from electra.common.errors import ConfigError
from electra.config.methods import METHODS
from electra.model.encoder import Encoder
from electra.model.heads import MOST_LOGITS
from electra.objectives.base import Batch, Objective, build_objective
from electra.pretrain.data.batches import masking_rule
from electra.pretrain.data.masking import num_slots

FP32 = 4  # bytes


@dataclass(frozen=True)
class EngineBytes:
    """Memory of DeepSpeed's engine in bytes per trained parameter.

    Fields with ``_share`` are divided by the number of processes.

    Attributes:
        weights, weights_share: during the whole run; a stage above 0 keeps additional flat copies.
        gradients, gradients_share: at the end of the backward pass, in addition to the module's gradients.
        moments, moments_share: Adam's two moments.
        heap: on a CPU, fragmentation of the C library's heap by flat copies of the weights.
    """

    weights: int
    weights_share: int
    gradients: int
    gradients_share: int
    moments: int
    moments_share: int
    heap: int = 0


# Measured with DeepSpeed 0.19.8 and buckets that hold the whole model (on a CPU, below 500M parameters)
_ENGINE = {
    0: EngineBytes(4, 0, 4, 0, 8, 0),  # gradients are averaged in a flat copy, even with one process
    1: EngineBytes(4, 4, 4, 4, 0, 8),  # the optimizer works on an fp32 copy of the process' share
    2: EngineBytes(4, 4, 4, 4, 0, 8),
    3: EngineBytes(4, 8, 4, 4, 0, 8, heap=12),  # gathered weights are kept until the last layer has run
}

WORKSPACES = 2 * 32 * 2**20  # bytes of cuBLAS and cuBLASLt on Hopper, allocated by PyTorch

_HOLES, _HOLES_RECOMPUTED = 0.55, 0.2  # CPU heap fragmentation per byte kept for backward; docs/long-sequences.md
LIBRARIES = {0: 413_000_000, 1: 460_000_000, 2: 460_000_000, 3: 460_000_000}  # imports on a CPU, by ZeRO stage
EXCHANGE = 80_000_000  # bytes of gloo and ZeRO 1 to 3 besides their buckets, with several processes
CHECKPOINT = 3 * FP32  # weights and moments: the first process keeps a copy of them for the next checkpoint


@dataclass(frozen=True)
class StepMemory:
    """Memory of one process in bytes, in the phase of training with the highest peak.

    Attributes:
        weights, gradients, moments: DeepSpeed's copies included.
        kept: activations that the forward pass keeps for the backward pass, by part of the model.
        peak: largest sum of all live tensors, temporary ones included: on CUDA,
            ``torch.cuda.max_memory_allocated``.
        resident: the peak and, on a CPU, the heap's fragmentation.
        process: on a CPU, the highest resident set of the first process during the run, with imports and checkpoints.
    """

    weights: int
    gradients: int
    moments: int
    kept: dict[str, int]
    peak: int
    resident: int
    process: int = 0


class LiveBytes(TorchDispatchMode):
    """Counter of the bytes of live tensors, now and at most, among those that operations return in this context.

    Temporary memory inside an operation is not seen. Parameters of ``model`` do not count.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
        self._alive: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._see(tensor.untyped_storage())
        return result

    def _see(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._alive or key in self._own:
            return

        def freed(_: object) -> None:
            self.now -= size
            del self._alive[key]

        self._alive[key] = weakref.ref(storage, freed)
        self.now += size
        self.peak = max(self.peak, self.now)


@contextmanager
def kept_for_backward(model: nn.Module) -> Iterator[Counter[str]]:
    """Count the bytes that forward passes in this context keep for their backward pass, by part of the model.

    Each storage counts once, for the part that keeps it first; parameters do not count. The parts are the module's
    children; the part ``""`` is the module's own computation (losses, samples).
    """
    found: Counter[str] = Counter()
    inside = [""]
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    seen: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own and storage._cdata not in seen:
            seen[storage._cdata] = storage  # held, so that no later storage gets its address
            found[inside[-1]] += storage.nbytes()
        return tensor

    def enter(part: str) -> Callable[..., None]:
        return lambda *_: inside.append(part)

    def leave(*_: object) -> None:
        inside.pop()

    hooks: list[Any] = []
    for part, module in model.named_children():
        if not any(True for _ in module.parameters()):
            continue
        hooks += [module.register_forward_pre_hook(enter(part)), module.register_forward_hook(leave)]
    try:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            yield found
    finally:
        for hook in hooks:
            hook.remove()


def recompute_layers(model: nn.Module) -> None:
    """Switch on activation checkpointing in all encoders.

    Freed memory is returned to the system at once; otherwise heap fragmentation would cost more than is saved.
    """
    for module in model.modules():
        if isinstance(module, Encoder):
            module.recompute = True
    give_back_freed_memory()


def wants_recompute(settings: config.Settings, machine: Machine, vocab_size: int) -> bool:
    """Return whether to use activation checkpointing; with ``auto``, if a step would not fit into memory otherwise."""
    if machine.activation_checkpointing == "auto":
        length = settings.shards.max_length
        needed = predict_step_memory(settings.model, settings.pretrain, machine, length, vocab_size).resident
        return needed > free_memory(machine)
    return machine.activation_checkpointing == "layers"


FILL = 0.85  # of the free device memory; the rest is for fragmentation, the compiler's workspaces and NCCL's buffers
_ENOUGH_TOKENS = 4096  # tokens of a micro-batch that keep a GPU busy


def fitted(settings: config.Settings, machine: Machine, vocab_size: int, free: int) -> Machine:
    """Return the machine with micro-batch and activation checkpointing (if ``auto``) chosen to fit the free memory.

    The micro-batch is the largest divisor of this process' share of the global batch whose predicted peak stays below
    85% of ``free``; gradient accumulation makes up the rest. Layers are recomputed only if too few tokens to keep the
    device busy would fit otherwise. A micro-batch given in the settings is kept.

    Args:
        free: free device memory in bytes.

    Raises:
        ConfigError: nothing fits; the error proposes a change that would.
    """

    def peak(micro_batch_size: int, *, recompute: bool, **changes: Any) -> int:
        changed = replace(machine, micro_batch_size=micro_batch_size, **changes)
        return predict_step_memory(
            settings.model, settings.pretrain, changed, length, vocab_size, recompute=recompute
        ).peak

    length, share = settings.shards.max_length, settings.pretrain.batch_size // machine.num_processes
    divisors = [size for size in range(1, share + 1) if share % size == 0]
    sizes = divisors if machine.fits_itself else [machine.micro_batch_size]
    limit = FILL * free if machine.fits_itself else free
    choices = {"off": [False], "layers": [True], "auto": [False, True]}[machine.activation_checkpointing]
    chosen, recompute = 0, choices[-1]
    for choice in choices:
        size = _largest_that_fits(partial(peak, recompute=choice), sizes, length, limit)
        if size > chosen:
            chosen, recompute = size, choice
        if chosen * length >= min(_ENOUGH_TOKENS, max(sizes) * length):
            break
    if not chosen:
        raise _does_not_fit(machine, peak, sizes[0], recompute, length, free)
    return replace(machine, micro_batch_size=chosen, activation_checkpointing="layers" if recompute else "off")


def _largest_that_fits(peak: Callable[[int], int], sizes: list[int], length: int, limit: float) -> int:
    """Return the largest of the (ascending) micro-batch sizes whose peak is within the limit; 0 if there is none.

    The peak grows linearly with the micro-batch once activations outweigh gradients, so two predictions give an
    estimate for the other sizes; the peak of the chosen size is predicted itself.
    """
    if len(sizes) == 1:
        return sizes[0] if peak(sizes[0]) <= limit else 0
    first = next((size for size in sizes if size * length >= 2048), sizes[-2])
    second = sizes[sizes.index(first) + 1] if first != sizes[-1] else first
    at_first, at_second = peak(first), peak(second)
    slope = (at_second - at_first) / max(1, second - first)
    above = [size for size in sizes if size >= first and at_first + slope * (size - first) <= limit]
    below = [size for size in sizes if size < first]
    for size in [*reversed(above), *reversed(below)]:
        if peak(size) <= limit:
            return size
    return 0


def _does_not_fit(
    machine: Machine, peak: Callable[..., int], size: int, recompute: bool, length: int, free: int
) -> ConfigError:
    """Return an error that proposes the first of some changes that would fit, or general ones if none is enough."""
    changes: list[tuple[str, dict[str, Any]]] = []
    if not machine.fits_itself and size > 1:
        changes.append(("cluster.micro_batch_size: auto", {"micro_batch_size": 1}))
    if machine.num_processes > 1:
        changes += [
            (f"cluster.zero_stage: {stage}", {"zero_stage": stage}) for stage in (1, 3) if stage > machine.zero_stage
        ]
    found = "more GPUs with cluster.zero_stage: 3, a smaller model, or shorter examples (shards.max_length)"
    for words, change in changes:
        micro_batch_size = change.pop("micro_batch_size", size)
        if peak(micro_batch_size, recompute=recompute, **change) <= FILL * free:
            found = words
            break
    needed = peak(size, recompute=recompute)
    return ConfigError(
        f"a step of {size} examples of {length} tokens takes {_size(needed)} of device memory"
        f"{' with activation checkpointing' if recompute else ''}, {_size(free)} are free",
        where="cluster.micro_batch_size",
        next_step=f"try {found}",
    )


def free_memory(machine: Machine) -> int:
    """Return the bytes this process may still allocate: on its GPU, or as its share of the main memory."""
    if machine.device == "cuda":
        return torch.cuda.mem_get_info()[0]
    with open("/proc/meminfo") as file:
        available = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    return available // int(os.environ.get("LOCAL_WORLD_SIZE", machine.num_processes))


def predict_step_memory(
    model: config.Model,
    recipe: config.Pretrain,
    machine: Machine,
    length: int,
    vocab_size: int,
    *,
    recompute: bool = False,
) -> StepMemory:
    """Predict the memory of a step on one process of this machine.

    Args:
        machine: device, precision, micro-batch, processes and ZeRO stage.
        length: tokens per example, without padding.
        recompute: with activation checkpointing.
    """
    with FakeTensorMode():
        phases = build_objective(model, vocab_size, 0, recipe).phases(recipe.num_steps)
        each = [_phase_memory(model, recipe, machine, length, vocab_size, recompute, n) for n in range(len(phases))]
    return max(each, key=lambda memory: memory.peak)


def _phase_memory(
    shape: config.Model,
    recipe: config.Pretrain,
    machine: Machine,
    length: int,
    vocab_size: int,
    recompute: bool,
    phase: int,
) -> StepMemory:
    with torch.device(traced_device(machine)):
        model = build_objective(shape, vocab_size, 0, recipe)
        batch = placeholder_batch(recipe, machine.micro_batch_size, length)
        if machine.device == "cuda" and machine.precision == "bf16":  # attention uses the flash kernel
            batch.ends_N = torch.zeros(2 * machine.micro_batch_size + 1, dtype=torch.int32)
    model.set_phase(phase)
    if recompute:
        recompute_layers(model)
    with kept_for_backward(model) as kept:
        forward_loss(model, batch, machine)
    num_micro_batches = recipe.batch_size // (machine.num_processes * machine.micro_batch_size)
    if machine.device == "cuda" and machine.zero_stage == 3:  # a gradient is partitioned as soon as it is computed
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda own: setattr(own, "grad", None))
    with LiveBytes(model) as live:
        for _ in range(min(2, num_micro_batches)):  # from the second on, gradients exist before the micro-batch starts
            forward_loss(model, batch, machine).backward()
    num_trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    num_resting = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    engine, processes = _ENGINE[machine.zero_stage], machine.num_processes
    if machine.device == "cuda" and machine.offload != "none":
        # on the host; measured on the pretended device, where this is within 6% at ZeRO 2 and at most 25% too high at 3
        engine = replace(engine, weights_share=0, gradients_share=0, moments_share=0)
    if machine.device == "cuda" and (machine.zero_stage or processes == 1):
        engine = replace(engine, gradients=0)  # buckets are counted below; one process at ZeRO 0 averages nothing
    weights = num_trained * engine.weights + num_trained * engine.weights_share // processes + num_resting * FP32
    moments = num_trained * engine.moments + num_trained * engine.moments_share // processes
    in_module = sum(p.grad.untyped_storage().nbytes() for p in model.parameters() if p.grad is not None)
    gradients = in_module + num_trained * engine.gradients + num_trained * engine.gradients_share // processes
    buckets = 0
    if machine.device == "cuda" and machine.zero_stage:
        buckets = FP32 * bucket_size(num_trained) * (2 if machine.num_nodes > 1 else 1)
    workspaces = WORKSPACES if machine.device == "cuda" else 0
    logits = vocab_size * batch.mask_positions_BK.numel() if "mlm" in model.loss_weights else 0
    fused = 0
    if machine.device == "cuda" and machine.compile == "model" and logits <= MOST_LOGITS:
        fused = FP32 * logits  # a compiled loss casts the logits in its own kernel: docs/gpu-tests.md#memory
    peak = weights + moments + buckets + workspaces + max(live.peak - fused, gradients)
    if machine.device == "cuda":
        return StepMemory(weights, gradients, moments, dict(kept), peak, peak, peak)
    holes = _HOLES_RECOMPUTED * kept.total() if recompute else _HOLES * kept.total() + engine.heap * num_trained
    resident = peak + int(holes)
    process = resident + CHECKPOINT * num_trained + LIBRARIES[machine.zero_stage]
    process += EXCHANGE if machine.zero_stage and machine.num_processes > 1 else 0
    return StepMemory(weights, gradients, moments, dict(kept), peak, resident, process)


def traced_device(machine: Machine) -> str:
    return machine.device if torch.version.cuda else "cpu"  # machines.traced_as_on_cuda takes CUDA's path on the CPU


def forward_loss(model: Objective, batch: Batch, machine: Machine) -> Tensor:
    """Return the weighted loss of a batch, in the machine's precision, as the engine's forward pass computes it."""
    with torch.autocast(traced_device(machine), torch.bfloat16, enabled=machine.precision == "bf16"):
        losses = model(batch).loss_sums
    return torch.stack([weight * losses[term] for term, weight in model.loss_weights.items() if term in losses]).sum()


def placeholder_batch(recipe: config.Pretrain, num_examples: int, length: int) -> Batch:
    """Return a batch of placeholder examples without padding, for its shapes."""
    shape, slots = (num_examples, length), (num_examples, num_slots(length, masking_rule(recipe, "corrected")))
    return Batch(
        input_ids_BT=torch.zeros(shape, dtype=torch.long),
        segments_BT=torch.zeros(shape, dtype=torch.long),
        mask_BT=torch.ones(shape, dtype=torch.bool),
        mask_positions_BK=torch.zeros(slots, dtype=torch.long),
        mask_weights_BK=torch.ones(slots),
        shown_BK=torch.zeros(slots, dtype=torch.bool),
        uniforms_BK=torch.zeros(slots),
        random_BK=torch.zeros(slots, dtype=torch.bool),
        candidate_BT=torch.ones(shape, dtype=torch.bool),
        next_B=torch.ones(num_examples) if METHODS[recipe.objective].next_sentences else None,
    )


def render_memory(settings: config.Settings, vocab_size: int) -> str:
    """Return the predicted memory of a step on this machine as text, with and without activation checkpointing."""
    machine, length = resolve_machine(settings.cluster, settings.pretrain.batch_size), settings.shards.max_length
    plain, recomputed = (
        predict_step_memory(settings.model, settings.pretrain, machine, length, vocab_size, recompute=recompute)
        for recompute in (False, True)
    )
    kept = ", ".join(f"{part or 'losses'} {_size(size)}" for part, size in plain.kept.items())
    lines = [
        ("memory", f"{machine.device}, {machine.precision}, {machine.micro_batch_size} examples of {length} at a time, "
                   f"ZeRO {machine.zero_stage}, process 1 of {machine.num_processes}"),
        ("  weights", _size(plain.weights)),
        ("  gradients", _size(plain.gradients)),
        ("  moments", _size(plain.moments)),
        ("  kept for backward", f"{_size(sum(plain.kept.values()))}: {kept}"),
        ("  peak", f"{_size(plain.peak)} of tensors, {_size(plain.process)} of the process"),
        ("  peak, checkpointing", f"{_size(recomputed.process)} with cluster.activation_checkpointing: layers"),
        ("  free", _size(free_memory(machine))),
    ]  # fmt: skip
    return "".join(f"{name:<26}{value}\n" for name, value in lines)


def _size(value: int) -> str:
    return f"{value / 1e9:.1f} GB" if value >= 1e10 else f"{value / 1e6:,.0f} MB"
