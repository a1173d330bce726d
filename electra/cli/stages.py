"""Commands that DVC runs, one for each stage. Imports inside a command are the dependencies of its stage."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from electra.cli import STAGES, app, cluster_settings, load

if TYPE_CHECKING:
    from electra.common.paths import Paths
    from electra.config import Settings


@app.command(rich_help_panel=STAGES)
def code() -> None:
    """Copy the installed package's code to data/code, on which the stages depend (after `electra new` only).

    Example: electra code
    """
    from electra.common.paths import Paths
    from electra.init.code import copy_installed_code

    copy_installed_code(Paths())


@app.command(rich_help_panel=STAGES)
def inputs(
    watch: Annotated[
        bool, typer.Option("--watch", help="only update the list of files that DVC watches (dvc.yaml)")
    ] = False,
) -> None:
    """List the external input files that the settings name, with their sha256.

    Example: electra inputs --watch
    """
    from electra.inputs import list_inputs, watch_inputs

    (watch_inputs if watch else list_inputs)(*load())


@app.command(rich_help_panel=STAGES)
def evaluation_texts() -> None:
    """Collect the texts of development and test sets, for corpus.decontamination.

    Example: electra evaluation-texts
    """
    from electra.text.corpus.decontamination import collect_evaluation_texts

    collect_evaluation_texts(*load())


@app.command(rich_help_panel=STAGES)
def corpus(
    show: Annotated[
        int | None, typer.Option(min=1, help="only show this many examples of what each cleaning rule removed")
    ] = None,
) -> None:
    """Read, clean, de-duplicate and split the documents.

    Example: electra corpus --show 3
    """
    if show is not None:
        from electra.text.corpus.cleaning.notes import show_corpus

        show_corpus(load()[1], show)
        return
    from electra.text.corpus.build import build_corpus

    build_corpus(*load())


@app.command(rich_help_panel=STAGES)
def validate_corpus() -> None:
    """Check the corpus; critical failures end with exit code 3.

    Example: electra validate-corpus
    """
    from electra.checks.corpus import validate_corpus

    validate_corpus(*load())


@app.command(rich_help_panel=STAGES)
def tokenizer(
    beside: Annotated[
        list[Path] | None,
        typer.Option(help="only show how data/tokenizer and this vocab.txt or tokenizer.json fit the held-out text"),
    ] = None,
    kinds: Annotated[
        bool, typer.Option("--kinds", help="only show how a vocabulary of each tokenizer.kind fits the held-out text")
    ] = False,
) -> None:
    """Train the vocabulary, or copy an existing one.

    Example: electra tokenizer --beside mbert/vocab.txt
    """
    from electra.text.tokenizer.build import build_tokenizer, compare_kinds
    from electra.text.tokenizer.measure import show_beside

    if kinds:
        compare_kinds(*load())
        return
    if beside:
        show_beside(load()[1], beside)
        return
    build_tokenizer(*load())


@app.command(rich_help_panel=STAGES)
def shards() -> None:
    """Turn documents into fixed-length examples.

    Example: electra shards
    """
    from electra.text.shards.build import build_shards

    build_shards(*load())


@app.command(rich_help_panel=STAGES)
def validate_shards() -> None:
    """Check vocabulary and shards; critical failures end with exit code 3.

    Example: electra validate-shards
    """
    from electra.checks.shards import validate_shards

    validate_shards(*load())


@app.command(rich_help_panel=STAGES)
def pretrain(
    render: Annotated[
        bool, typer.Option("--render", help="only show what the launcher would start or submit (cluster.launcher)")
    ] = False,
) -> None:
    """Pre-train the model; resumes an interrupted run of the same settings and data.

    Example: electra pretrain --render
    """
    from electra.cluster.launchers.pretraining import launched, render_pretraining

    settings, paths = load()
    if render:
        print(render_pretraining(settings, paths), end="")
        return
    with launched(settings, paths) as own_settings:
        if own_settings is not None:
            # only here: a process that submits a job, or starts others, may be on another machine
            with _machine_noted(own_settings, paths, "pretrain"):
                from electra.pretrain.run import pretrain

                pretrain(own_settings, paths)


@app.command(rich_help_panel=STAGES)
def tasks() -> None:
    """Read the labelled tasks into one format.

    Example: electra tasks
    """
    from electra.readers.build import prepare_tasks

    prepare_tasks(*load())


@app.command(rich_help_panel=STAGES)
def validate_tasks() -> None:
    """Check the labelled tasks; critical failures end with exit code 3.

    Example: electra validate-tasks
    """
    from electra.checks.tasks import validate_tasks

    validate_tasks(*load())


@app.command(rich_help_panel=STAGES)
def finetune(
    task: Annotated[str, typer.Option(help="task name, such as CoLA or SQuAD1.1")],
    seed: Annotated[int, typer.Option(min=0, max=100_000_000, help="fine-tuning seed")],
    scratch: Annotated[bool, typer.Option("--scratch", help="start from random weights: the baseline")] = False,
    milestone: Annotated[
        Literal["6.25", "12.5", "25", "50"] | None,
        typer.Option(help="start from the weights after this percentage of pre-training"),
    ] = None,
    start_from: Annotated[
        str | None, typer.Option(help="start from the encoder that was fine-tuned on this task with the same seed")
    ] = None,
    encoder: Annotated[
        Path | None,
        typer.Option(help="start from a model of transformers: a folder with safetensors, or owner/name on the hub"),
    ] = None,
    encoder_name: Annotated[
        str | None, typer.Option(help="name of this encoder in the run's name; by default the folder's")
    ] = None,
    encoder_revision: Annotated[str | None, typer.Option(help="full commit of the encoder on the hub")] = None,
    intermediate: Annotated[
        bool, typer.Option("--intermediate", help="write models/intermediate, which --start-from reads")
    ] = False,
    keep: Annotated[
        bool | None,
        typer.Option(
            "--keep/--no-keep",
            help="write the run with its model into models/kept, which dvc repro leaves alone; or write no model, "
            "whatever finetune.keep_models says",
        ),
    ] = None,
) -> None:
    """Fine-tune one task with one seed and write its predictions on the development set.

    Example: electra finetune --task CoLA --seed 1 --keep
    """
    from electra.finetune.encoders import EncoderSource
    from electra.finetune.run import finetune_task

    source = EncoderSource.named(encoder, encoder_name, encoder_revision) if encoder else None
    settings, paths = load()
    with _machine_noted(settings, paths, "finetune"):
        folder = finetune_task(
            settings,
            paths,
            task=task,
            seed=seed,
            scratch=scratch,
            milestone=milestone,
            start_from=start_from,
            encoder=source,
            intermediate=intermediate,
            keep=keep,
        )
    _print_headlines(paths, folder, task)


@contextmanager
def _machine_noted(settings: "Settings", paths: "Paths", stage: str) -> Iterator[None]:
    """Record the machine and the minutes of a successful stage, for `electra compare` and `electra runs`.

    Of several processes the first records them. A failure to do so is printed; it does not fail the stage.
    """
    started = time.monotonic()
    yield
    if os.environ.get("RANK", "0") != "0":
        return
    try:
        from electra.cluster.hardware import choose_device
        from electra.cluster.run_facts import note_machine

        seconds, tokens, flops = time.monotonic() - started, None, None
        if stage == "pretrain":
            from electra.cluster.estimate.cost import tokens_and_flops

            tokens, flops = tokens_and_flops(settings, settings.tokenizer.vocab_size)
        note_machine(paths, stage, choose_device(settings.cluster), seconds, tokens, flops)
    except Exception as error:  # training has ended and its checkpoints are gone
        print(f"the machine of {stage} is not recorded: {error}", flush=True)


def _print_headlines(paths: "Paths", folder: Path, task: str) -> None:
    """Print a fine-tuning run's scores, which are in none of its files: the stage does not depend on the metrics."""
    from electra.results.evaluate import headlines

    for line in headlines(paths, folder, task):
        print(line)


@app.command(rich_help_panel=STAGES)
def evaluate(
    predictions: Annotated[
        Path | None, typer.Option(help="score only this file, made elsewhere, and print the official figures")
    ] = None,
    gold: Annotated[Path | None, typer.Option(help="the task's own file with the right answers")] = None,
    task: Annotated[
        str | None, typer.Option(help="the task: SQuAD1.1, SQuAD2.0, MRPC, ..., or conll for column files")
    ] = None,
    na_prob_file: Annotated[
        Path | None, typer.Option(help="SQuAD 2.0: JSON with the no-answer score of every question")
    ] = None,
    na_prob_thresh: Annotated[float, typer.Option(help="SQuAD 2.0: no answer above this no-answer score")] = 1.0,
) -> None:
    """Score all predictions: per task and seed, and the median over seeds. With --predictions: score that file.

    Example: electra evaluate --task MRPC --predictions MRPC.tsv --gold MRPC/dev.tsv
    """
    from electra.results.evaluate import evaluate_runs

    if predictions or gold or task or na_prob_file:
        _evaluate_outside(task, predictions, gold, na_prob_file, na_prob_thresh)
    else:
        evaluate_runs(*load())


def _evaluate_outside(*arguments) -> None:  # separate, so that the stage `evaluate` does not depend on its imports
    from electra.results.outside import print_outside_scores

    print_outside_scores(*arguments)


@app.command(rich_help_panel=STAGES)
def probe(
    files: Annotated[
        list[Path] | None, typer.Argument(help="only score these minimal pairs (BLiMP's JSONL), and print the figures")
    ] = None,
    similarity: Annotated[
        Path | None, typer.Option(help="only print; rows with text_a, text_b and label: data/tasks/STS-B/dev.jsonl")
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="only print, JSON instead of a table")] = False,
) -> None:
    """Probe the pre-trained weights without fine-tuning: minimal pairs, similarity, retrieval, replaced tokens.

    Example: electra probe blimp/*.jsonl --similarity data/tasks/STS-B/dev.jsonl
    """
    from electra.results.probe.learned import probe_pretrained

    if files or similarity or json_output or not Path("params.yaml").exists():
        _print_probes(files or [], similarity, json_output)
    else:
        probe_pretrained(*load())


def _print_probes(files: list[Path], similarity: Path | None, json_output: bool) -> None:
    # separate, so that the stage `probe` does not depend on its imports
    import json

    from electra.common.paths import Paths
    from electra.finetune.run import prepare_machine
    from electra.results.probe.scores import render, run_probe

    if not files and similarity is None and Path("params.yaml").exists():
        files = [Path(file) for file in load()[0].tasks.pairs]
    found = run_probe(Paths(), files, similarity, *prepare_machine(cluster_settings()))
    print(json.dumps(found, indent=2) + "\n" if json_output else render(found), end="")


@app.command(rich_help_panel=STAGES)
def embed(
    seed: Annotated[int, typer.Option(min=0, max=100_000_000, help="seed of pairs and dropout")],
    source: Annotated[
        str, typer.Option(help="pairs of `sentences` of the training text; or a task with pairs or questions")
    ] = "sentences",
) -> None:
    """Train sentence embeddings by contrastive learning; write models/embeddings/<source>-<seed>.

    Example: electra embed --source SQuAD1.1 --seed 1
    """
    from electra.embed.run import embed as train_embeddings

    settings, paths = load()
    folder = train_embeddings(settings, paths, source=source, seed=seed)
    _print_embedding_scores(folder)


def _print_embedding_scores(folder: Path) -> None:
    from electra.common.artifacts import read_json
    from electra.embed.folder import render

    print(render(read_json(folder / "run.json")), end="")


@app.command(rich_help_panel=STAGES)
def report() -> None:
    """Write the score card: results/report.md and one self-contained HTML page.

    Example: electra report
    """
    from electra.results.report.build import build_report

    build_report(*load())


@app.command(rich_help_panel=STAGES)
def export(
    task: Annotated[
        str | None,
        typer.Option(
            help="write this fine-tuned model instead: a task with a kept model, a fine-tuning run, or its folder"
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="seed of the fine-tuned model; by default the lowest that was kept")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="the folder to write; by default models/exported/<run>")] = None,
    onnx: Annotated[
        bool,
        typer.Option("--onnx", help="with ONNX graphs in fp32 and int8; without --task: of the encoder"),
    ] = False,
) -> None:
    """Write the encoder as Hugging Face folders, with ELECTRA also the generator; with --task: a fine-tuned model.

    Example: electra export --task CoLA --seed 1 --onnx
    """
    from electra.hub.export.pretrained import export_model

    if task is not None:
        _export_task(task, seed, out, onnx)
    elif seed is not None or (out is not None and not onnx):
        raise typer.BadParameter("--seed and --out go with --task: the encoder's export is models/export")
    elif onnx:
        _export_encoder_onnx(out)
    else:
        export_model(*load())


# separate functions, so that the stage `export` does not depend on their imports
def _export_task(task: str, seed: int | None, out: Path | None, onnx: bool) -> None:
    from electra.common.paths import Paths
    from electra.hub.finetuned import export_task

    export_task(Paths(), task, seed, out, with_onnx=onnx)


def _export_encoder_onnx(out: Path | None) -> None:
    from electra.common.paths import Paths
    from electra.hub.encoder_onnx import export_encoder_onnx

    export_encoder_onnx(Paths(), out)
