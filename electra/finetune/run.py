"""One fine-tuning run: a task, a seed, and the initial weights."""

import dataclasses
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from electra.cluster.busy_cores import watch_cores
from electra.cluster.hardware import choose_device, choose_precision, repeat_exactly
from electra.cluster.memory import keep_freed_memory
from electra.cluster.run_facts import Stopwatch, note_seconds
from electra.common.artifacts import (
    building,
    listed_files,
    sha256,
    verify_files,
    verify_folder,
    write_json,
    write_manifest,
)
from electra.common.errors import ConfigError, DataError
from electra.common.locks import exclusive
from electra.common.paths import Paths
from electra.config import Cluster, Finetune, Settings
from electra.finetune.base import Record
from electra.finetune.encoders import AnyEncoder, EncoderSource, load_transformers_encoder
from electra.finetune.features import Feature, Vocabulary, both_orders, rows_cut
from electra.finetune.kinds import FINETUNING
from electra.finetune.model import TaskModel
from electra.finetune.saved import load_model, save_model
from electra.finetune.trainer import num_steps, predict, train
from electra.model.encoder import Encoder
from electra.model.kernels.apply import use_cpu_kernels
from electra.model.shape import EncoderConfig
from electra.tasks.catalogue import TaskSpec, evaluations, find_spec
from electra.tasks.format import Row
from electra.tasks.matrix import PRETRAINED, Start, finetuned_name, read_rows, rows_file

DROPOUT: dict[str, Any] = {"dropout": 0.1, "attention_dropout": 0.1}  # of the encoder, independent of pre-training


def finetune_task(
    settings: Settings,
    paths: Paths,
    *,
    task: str,
    seed: int,
    scratch: bool = False,
    milestone: str | None = None,
    start_from: str | None = None,
    encoder: EncoderSource | None = None,
    intermediate: bool = False,
    keep: bool | None = None,
) -> Path:
    """Fine-tune, write ``predictions.jsonl`` and ``run.json``, and return their folder.

    Predictions cover the development splits, the tasks that are evaluated with this task's models and, if the project's
    encoder is fine-tuned, the test splits that exist.

    Args:
        scratch: start from random weights; nothing of ``models/pretrained`` is read.
        milestone: start from the weights after this percentage of pre-training.
        start_from: start from the encoder that was fine-tuned on this task with the same seed; the head is new.
        encoder: start from an encoder that ``transformers`` loads.
        intermediate: write into ``models/intermediate``, model included, for ``start_from`` of other tasks.
        keep: True writes the run with its model into ``models/kept``, which no DVC stage changes; False writes no
            model; None writes one beside the predictions if ``finetune.keep_models`` is set.

    The same run on the same machine writes the same bytes.

    Raises:
        ConfigError: the task does not exist or is not in ``cells.tasks``, several initial weights or two folders are
            given, the encoder cannot be used, or CUDA is requested but not available.
        DataError: tasks, tokenizer or pre-trained weights are missing or broken, or the weights have another tokenizer.
        TrainingError: the loss is not finite.
        InfrastructureError: another process is doing the same fine-tuning run.
    """
    if keep and intermediate:
        raise ConfigError("--intermediate writes the model where --start-from reads it", next_step="leave out --keep")
    spec, options = find_spec(paths.tasks, task), settings.finetune
    if task not in settings.cells.tasks and not (paths.tasks / task).is_dir():
        raise ConfigError(
            f"{task} is not among the tasks of this workspace",
            where="cells.tasks",
            next_step=f"add {task} to cells.tasks (and where its rows are to tasks.source, if it is not there), then: "
            "dvc repro tasks",
        )
    verify_files(listed_files(paths.tasks, f"{task}/*"))
    first_task = start_from and find_spec(paths.tasks, start_from).name
    start = Start.chosen(scratch, milestone, first_task, encoder.name if encoder else None)
    key = finetuned_name(task, seed, start)
    target = paths.kept(key) if keep else paths.intermediate(key) if intermediate else paths.finetuned(key)
    is_kept = intermediate or (options.keep_models if keep is None else keep)
    with exclusive(target):  # locked before training: a second process would train in vain
        _finetune(settings, paths, spec, seed, start, encoder, target, is_intermediate=intermediate, is_kept=is_kept)
    return target


def _finetune(
    settings: Settings,
    paths: Paths,
    spec: TaskSpec,
    seed: int,
    start: Start,
    encoder: EncoderSource | None,
    target: Path,
    *,
    is_intermediate: bool,
    is_kept: bool,
) -> None:
    """Train, predict and write the folder ``target``, with the model if ``is_kept``."""
    watch = Stopwatch.start()
    task, options, key, kind = spec.name, settings.finetune, target.name, FINETUNING[spec.kind]
    device, bf16 = prepare_machine(settings.cluster)
    facts: dict[str, Any] = {}
    if encoder is None:
        verify_folder(paths.tokenizer)
        vocabulary = Vocabulary.load(paths)
        model = _model(settings, paths, spec, vocabulary, start, seed).to(device)
    else:
        module, vocabulary, facts["encoder"] = load_transformers_encoder(encoder, kind.max_length(options))
        random = torch.Generator().manual_seed(seed)
        model = TaskModel(spec, module, random, vocabulary.inputs.layout, span_head=options.span_head).to(device)

    train_rows = read_rows(paths, task, "train")[: options.limit_of(task)]
    is_doubled = options.double_unordered and spec.unordered
    features = kind.features(spec, both_orders(train_rows) if is_doubled else train_rows, vocabulary, options)
    epochs = options.epochs_of(task)
    watch.prepared()
    loss = train(
        model,
        features,
        options,
        rate=options.rate_of(task),
        epochs=epochs,
        seed=seed,
        pad=vocabulary.pad,
        bf16=bf16,
        name=key,
        fidelity=settings.fidelity,
    )
    watch.trained()

    cut = {"train": rows_cut(features[: len(train_rows)] if is_doubled else features)}
    predicted: dict[str, str] = {}  # by the split's name in predictions.jsonl
    with building(target) as folder:
        for split in spec.dev_splits:
            rows = read_rows(paths, task, split)
            predicted[split] = sha256(rows_file(paths, task, split))
            dev_features = kind.features(spec, rows, vocabulary, options)
            cut[split] = rows_cut(dev_features)
            outputs = decoded(options, model, dev_features, vocabulary, bf16)
            _append(folder / "predictions.jsonl", split, kind.predictions(spec, rows, dev_features, outputs))
            print(f"{key}: {split} predicted, {len(rows):,} rows")
        for split, number in cut.items():
            if number:
                print(f"{key}: {number:,} rows of {split} {kind.cut_part} of the model's inputs, and are cut")
        for other in evaluations(paths.tasks, task):
            rows = read_rows(paths, other.name, "dev")
            predicted[other.name] = sha256(rows_file(paths, other.name, "dev"))
            unlabelled = [{**row, **kind.unlabelled} for row in rows]
            predictions = predict_rows(options, spec, model, unlabelled, vocabulary, bf16)
            _append(folder / "predictions.jsonl", other.name, predictions)
            print(f"{key}: {other.name} predicted, {len(rows):,} rows")
        is_submitted = start.kind in ("pretrained", "task") and not is_intermediate
        for split in _test_splits(paths, spec) if is_submitted else ():
            rows = read_rows(paths, task, split)
            predicted[split] = sha256(rows_file(paths, task, split))
            _append(folder / "predictions.jsonl", split, predict_rows(options, spec, model, rows, vocabulary, bf16))
            print(f"{key}: {split} predicted, {len(rows):,} rows")
        write_json(
            folder / "run.json",
            {
                "task": task,
                "seed": seed,
                "init": str(start),
                "train_rows": len(train_rows),
                "epochs": epochs,
                "steps": num_steps(len(features), options.batch_size, epochs),
                "loss": float(f"{loss:.6g}"),
                **facts,
                "rows_cut": cut,
                "rows_sha256": predicted,
                **kind.unlearnable(train_rows, features),
            },
        )
        if is_kept:
            save_model(folder, model, spec, vocabulary, options)
        write_manifest(folder, cell=key)
    print(f"{key}: {note_seconds(paths, target, watch, round(len(features) * epochs), device.type)}")


def _test_splits(paths: Paths, spec: TaskSpec) -> list[str]:
    return [split for split in spec.test_splits if (paths.tasks / spec.name / f"{split}.jsonl").is_file()]


def prepare_machine(cluster: Cluster) -> tuple[torch.device, bool]:
    """Return the device and whether to use bf16; CUDA is made deterministic as ``cluster.deterministic`` says."""
    if cluster.num_threads != "auto":
        torch.set_num_threads(cluster.num_threads)
    keep_freed_memory()
    # Gradients of tokens that are learned well become denormals, which CPUs multiply at a fifth of the speed.
    torch.set_flush_denormal(True)
    device = choose_device(cluster)
    if device == "cpu":
        watch_cores(torch.get_num_threads())
    else:
        repeat_exactly(strict=cluster.deterministic)
    return torch.device(device), choose_precision(cluster, device) == "bf16"


def _model(
    settings: Settings, paths: Paths, spec: TaskSpec, vocabulary: Vocabulary, start: Start, seed: int
) -> TaskModel:
    """Return the encoder with fine-tuning's dropout and a new head; all random numbers derive from the seed."""
    random = torch.Generator().manual_seed(seed)
    if start.kind == "scratch":
        shape = EncoderConfig.discriminator(settings.model, vocabulary.size)
        encoder = use_cpu_kernels(Encoder(dataclasses.replace(shape, **DROPOUT)))
        encoder.init_weights(settings.model.initializer_range, random)
    else:
        encoder = _trained_encoder(paths, vocabulary, start, seed)
    return TaskModel(spec, encoder, random, span_head=settings.finetune.span_head)


def _trained_encoder(paths: Paths, vocabulary: Vocabulary, start: Start, seed: int) -> Encoder:
    """Return the pre-trained encoder (final or at a milestone), or the one fine-tuned on another task."""
    encoder: AnyEncoder
    if start.kind == "task":
        folder = paths.intermediate(finetuned_name(start.name, seed, PRETRAINED))
        again = f"electra finetune --task {start.name} --seed {seed} --intermediate (or dvc repro)"
        if not folder.is_dir():
            raise DataError(
                f"there is no encoder that was fine-tuned on {start.name} with seed {seed}",
                where=str(folder),
                next_step=f"run: {again}",
            )
        saved = load_model(folder)
        if not saved.vocabulary.has_tokenizer_of(vocabulary):
            raise DataError(
                f"the encoder that was fine-tuned on {start.name} has another tokenizer",
                where=f"{folder} and {paths.tokenizer}",
                next_step=f"run: dvc repro pretrain, then: {again}",
            )
        encoder = saved.model.encoder
    else:
        from electra.model.pretrained import load_encoder, require_tokenizer

        folder = paths.pretrained if start == PRETRAINED else paths.milestones / start.name
        encoder = load_encoder(folder, **DROPOUT)
        require_tokenizer(folder, paths.tokenizer)
    assert isinstance(encoder, Encoder)  # third-party encoders are not stored there
    return encoder


def predict_rows(
    options: Finetune, spec: TaskSpec, model: TaskModel, rows: list[Row], vocabulary: Vocabulary, bf16: bool
) -> list[Record]:
    """Return one line of ``predictions.jsonl`` per row."""
    kind = FINETUNING[spec.kind]
    features = kind.features(spec, rows, vocabulary, options)
    return kind.predictions(spec, rows, features, decoded(options, model, features, vocabulary, bf16))


def decoded(
    options: Finetune,
    model: TaskModel,
    features: Sequence[Feature],
    vocabulary: Vocabulary,
    bf16: bool,
    batch_size: int | None = None,
) -> list[Any]:
    """Return the head's decoded output for each feature.

    Args:
        batch_size: inputs per batch; twice that of fine-tuning if None, since no gradients need memory.
    """
    decode = partial(model.head.decode, options=options)
    return predict(model, features, batch_size or 2 * options.batch_size, decode, pad=vocabulary.pad, bf16=bf16)


def _append(path: Path, split: str, predictions: list[dict[str, Any]]) -> None:
    with open(path, "a", encoding="utf-8", newline="\n") as file:
        lines = (json.dumps({"split": split, **prediction}, ensure_ascii=False) for prediction in predictions)
        file.writelines(line + "\n" for line in lines)
