"""The commands: one per stage, and a few for people. Heavy imports stand inside them: `electra --help` is quick."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

if TYPE_CHECKING:
    from electra.common.errors import ElectraError
    from electra.common.paths import Paths
    from electra.config import Cluster

app = typer.Typer(
    help="Train your own ELECTRA encoder: text in, an encoder and its score card out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _load():
    from electra.common.paths import Paths
    from electra.config.loading import load_settings

    return load_settings(), Paths()


def _cluster() -> "Cluster":
    """That of the settings; the defaults in a folder without settings."""
    from electra.config import Cluster

    return _load()[0].cluster if Path("params.yaml").exists() else Cluster()


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """Whoever reads the output may have had enough before its end, as in `electra predict ... | head`."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.command()
def inputs(
    watch: Annotated[
        bool, typer.Option("--watch", help="only bring what DVC watches (dvc.yaml) into step with the settings")
    ] = False,
) -> None:
    """List the files from outside that the settings name, with their sha256."""
    from electra.inputs.build import list_inputs, watch_inputs

    (watch_inputs if watch else list_inputs)(*_load())


@app.command()
def evaluation_texts() -> None:
    """Collect the texts of development and test sets, for corpus.decontamination."""
    from electra.corpus.evaluation_texts import collect_evaluation_texts

    collect_evaluation_texts(*_load())


@app.command()
def corpus(
    show: Annotated[
        int | None, typer.Option(min=1, help="only show this many examples of what each rule of cleaning removed")
    ] = None,
) -> None:
    """Read, clean, de-duplicate and split the documents."""
    if show is not None:
        from electra.corpus.cleaning.show import show_corpus

        show_corpus(_load()[1], show)
        return
    from electra.corpus.build import build_corpus

    build_corpus(*_load())


@app.command()
def validate_corpus() -> None:
    """Judge the corpus; critical failures end with exit code 3."""
    from electra.checks.corpus import validate_corpus

    validate_corpus(*_load())


@app.command()
def tokenizer() -> None:
    """Train the WordPiece vocabulary, or take an existing one."""
    from electra.tokenizer.build import build_tokenizer

    build_tokenizer(*_load())


@app.command()
def shards() -> None:
    """Turn documents into fixed-length examples."""
    from electra.shards.build import build_shards

    build_shards(*_load())


@app.command()
def validate_shards() -> None:
    """Judge vocabulary and shards; critical failures end with exit code 3."""
    from electra.checks.shards import validate_shards

    validate_shards(*_load())


@app.command()
def pretrain(
    render: Annotated[
        bool, typer.Option("--render", help="only show what the launcher would start or submit (cluster.launcher)")
    ] = False,
) -> None:
    """Pre-train generator and discriminator; resumes an interrupted run of the same settings and data."""
    from electra.launchers.pretraining import launch_pretraining, render_pretraining

    if render:
        print(render_pretraining(*_load()), end="")
    else:
        launch_pretraining(*_load())


@app.command()
def tasks() -> None:
    """Read the labelled tasks into one format."""
    from electra.readers.build import prepare_tasks

    prepare_tasks(*_load())


@app.command()
def validate_tasks() -> None:
    """Judge the labelled tasks; critical failures end with exit code 3."""
    from electra.checks.tasks import validate_tasks

    validate_tasks(*_load())


@app.command()
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
        typer.Option(help="start from what transformers loads: a folder with safetensors, or owner/name on the hub"),
    ] = None,
    encoder_name: Annotated[
        str | None, typer.Option(help="name in the cell's name; the folder's own where none is given")
    ] = None,
    encoder_revision: Annotated[str | None, typer.Option(help="full commit of the encoder on the hub")] = None,
    intermediate: Annotated[
        bool, typer.Option("--intermediate", help="write models/intermediate, which --start-from reads")
    ] = False,
    keep: Annotated[
        bool | None,
        typer.Option("--keep/--no-keep", help="write the fine-tuned model too; finetune.keep_models says otherwise"),
    ] = None,
) -> None:
    """Fine-tune one task with one seed and write its predictions on the development set."""
    from electra.finetune.encoders import EncoderSource
    from electra.finetune.run import finetune_cell

    source = EncoderSource.named(encoder, encoder_name, encoder_revision) if encoder else None
    settings, paths = _load()
    cell = finetune_cell(
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
    _print_headlines(paths, cell, task)


def _print_headlines(paths: "Paths", cell: Path, task: str) -> None:
    """Score the written predictions for the eye: a cell's files, and so its stage, do not depend on the metrics."""
    from electra.evaluation.evaluate import headlines

    for line in headlines(paths, cell, task):
        print(line)


@app.command()
def predict(
    model: Annotated[str, typer.Argument(help="a cell fine-tuned with --keep, such as CoLA-1, or its folder")],
    source: Annotated[str, typer.Argument(metavar="INPUT", help="JSONL, CSV, TSV or plain lines; - is standard input")],
    output: Annotated[Path | None, typer.Option(help="the file to write; standard output where none is given")] = None,
    format: Annotated[Literal["jsonl", "csv"], typer.Option(help="of the output")] = "jsonl",
    input_format: Annotated[
        Literal["jsonl", "csv", "tsv", "lines"] | None, typer.Option(help="of the input; by its suffix otherwise")
    ] = None,
    text_columns: Annotated[
        str | None, typer.Option(help="names of the texts in the input, such as premise,hypothesis")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="examples per batch; twice fine-tuning's")] = None,
) -> None:
    """Predict with a fine-tuned model: labels, scores, tags, choices or answers, in the input's order."""
    from electra.common.paths import Paths
    from electra.predict.run import predict_file

    columns = tuple(text_columns.split(",")) if text_columns else None
    file = None if source == "-" else Path(source)
    with _reader_may_leave():
        predict_file(
            _cluster(),
            Paths(),
            model,
            file,
            output,
            format=format,
            input_format=input_format,
            text_columns=columns,
            batch_size=batch_size,
        )


@app.command()
def evaluate(
    predictions: Annotated[
        Path | None, typer.Option(help="score only this file, made elsewhere, and print the official figures")
    ] = None,
    gold: Annotated[Path | None, typer.Option(help="the task's own file with the right answers")] = None,
    task: Annotated[
        str | None, typer.Option(help="of which task: SQuAD1.1, SQuAD2.0, MRPC, ..., or conll for column files")
    ] = None,
    na_prob_file: Annotated[
        Path | None, typer.Option(help="SQuAD 2.0: JSON with the no-answer score of every question")
    ] = None,
    na_prob_thresh: Annotated[float, typer.Option(help="SQuAD 2.0: no answer above this no-answer score")] = 1.0,
) -> None:
    """Score all predictions: per task and seed, and the median over seeds. With --predictions: score that file."""
    from electra.evaluation.evaluate import evaluate_cells

    if predictions or gold or task or na_prob_file:
        _evaluate_outside(task, predictions, gold, na_prob_file, na_prob_thresh)
    else:
        evaluate_cells(*_load())


def _evaluate_outside(*arguments) -> None:  # apart from `evaluate`: the stage of that name has no use for its imports
    from electra.predict.outside import print_outside_scores

    print_outside_scores(*arguments)


@app.command()
def seconds() -> None:
    """Tell how long each fine-tuning cell of this workspace took."""
    from electra.system.stopwatch import seconds_table

    print(seconds_table(_load()[1]), end="")


@app.command()
def submission(
    seed: Annotated[int, typer.Option(help="fine-tuning seed whose predictions are handed in")],
    fill_missing: Annotated[
        bool, typer.Option("--fill-missing", help="GLUE tasks without predictions get the majority class")
    ] = False,
    null_threshold: Annotated[
        float, typer.Option(help="SQuAD 2.0: no answer above this no-answer score; tune it on development data")
    ] = 0.0,
    start_from: Annotated[
        str | None, typer.Option(help="hand in tasks from their cells that started from this task, where there are any")
    ] = None,
) -> None:
    """Write models/submission/<seed>: GLUE test predictions as a zip for the leaderboard, SQuAD's JSON files."""
    from electra.predict.submission import write_submission

    write_submission(
        _load()[1], seed=seed, fill_missing=fill_missing, null_threshold=null_threshold, start_from=start_from
    )


@app.command()
def report() -> None:
    """Write the score card: results/report.md and one self-contained HTML page."""
    from electra.report.build import build_report

    build_report(*_load())


@app.command()
def export() -> None:
    """Write discriminator and generator as Hugging Face folders."""
    from electra.publish.export import export_model

    export_model(*_load())


@app.command()
def trace(
    artefact: Annotated[str, typer.Argument(help="an output of a stage, such as models/export")] = "models/export",
    all_files: Annotated[bool, typer.Option("--all", help="name every raw file")] = False,
) -> None:
    """Tell where an artefact comes from: stages, code, settings, and the raw files with their checksums."""
    from electra.common.paths import Paths
    from electra.provenance.trace import render
    from electra.provenance.trace import trace as trace_artefact

    print(render(trace_artefact(Paths(), artefact), all_files), end="")


@app.command()
def croissant() -> None:
    """Print a Croissant description (JSON-LD) of data/corpus, for whoever publishes it."""
    import json

    from electra.provenance.croissant import describe_corpus

    print(json.dumps(describe_corpus(*_load()), indent=2, ensure_ascii=False))


@app.command()
def estimate(
    published: Annotated[
        bool, typer.Option("--published", help="the paper's tables beside the counted values")
    ] = False,
    peak_flops: Annotated[
        float | None, typer.Option(help="FLOP/s the machine could reach, all devices together: also tells hours")
    ] = None,
    utilization: Annotated[float, typer.Option(help="share of the peak that training reaches")] = 0.3,
    memory: Annotated[bool, typer.Option(help="peak memory on this machine, too: takes some seconds")] = True,
) -> None:
    """Tell what pre-training will cost: parameters, tokens, FLOPs, hours and memory."""
    from electra.estimate.cost import estimate, published_table, render
    from electra.estimate.memory import render_memory

    if published:
        print(published_table(), end="")
        return
    settings = _load()[0]
    print(render(estimate(settings), peak_flops, utilization), end="")
    if memory:
        print(render_memory(settings, settings.tokenizer.vocab_size), end="")


@app.command()
def score(
    file: Annotated[Path | None, typer.Argument(help="one text a line; standard input where none is given")] = None,
) -> None:
    """Score texts by pseudo-log-likelihood (nats), with a model pre-trained by objective electric."""
    from electra.common.lines import open_input, text_lines
    from electra.common.paths import Paths
    from electra.finetune.run import prepare_machine
    from electra.predict.pseudo_likelihood import score_lines

    with open_input(file) if file else nullcontext(sys.stdin.buffer) as opened, _reader_may_leave():
        lines = (line for _, line in text_lines(opened, str(file) if file else "standard input"))
        for text, value, num_tokens in score_lines(Paths(), lines, *prepare_machine(_cluster())):
            print(f"{value:.4f}\t{num_tokens}\t{text}")


@app.command()
def import_huggingface(
    discriminator: Annotated[Path, typer.Argument(help="a folder, or owner/name on the hub")],
    target: Annotated[Path, typer.Argument(help="the folder to write")],
    generator: Annotated[
        Path | None, typer.Option(help="the same for the generator; random weights without it")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="full commit of the discriminator on the hub")] = None,
    generator_revision: Annotated[str | None, typer.Option(help="full commit of the generator on the hub")] = None,
) -> None:
    """Turn Hugging Face folders into pre-trained weights for pretrain.initialize_from."""
    from electra.importing.huggingface import import_huggingface

    import_huggingface(discriminator, generator, target, revision, generator_revision)


@app.command()
def import_tensorflow(
    checkpoint: Annotated[str, typer.Argument(help="prefix of a google-research/electra checkpoint, or its folder")],
    vocab_file: Annotated[Path, typer.Argument(help="its vocab.txt")],
    target: Annotated[Path, typer.Argument(help="the folder to write")],
    cased: Annotated[bool, typer.Option("--cased", help="the vocabulary is not lowercase")] = False,
    settings: Annotated[
        bool, typer.Option("--settings", help="take heads and dropout from the chosen profile")
    ] = False,
) -> None:
    """Turn an original TensorFlow checkpoint into pre-trained weights; needs tensorflow-cpu."""
    from electra.importing.tensorflow import import_tensorflow

    model = _load()[0].model if settings else None
    import_tensorflow(checkpoint, vocab_file, target, model, lowercase=not cased)


@app.command()
def resize(
    source: Annotated[Path, typer.Argument(help="folder of pre-trained weights")],
    vocab_file: Annotated[Path, typer.Argument(help="the new vocab.txt")],
    target: Annotated[Path, typer.Argument(help="the folder to write")],
    tokenizer: Annotated[
        Path | None, typer.Option(help="folder of the old tokenizer; SOURCE/tokenizer where none is given")
    ] = None,
) -> None:
    """Give pre-trained weights another vocabulary; wordpieces in both keep what was learned."""
    from electra.importing.resize import resize_vocabulary

    resize_vocabulary(source, vocab_file, target, tokenizer)


@app.command()
def config(
    help_fields: Annotated[bool, typer.Option("--help-fields", help="list every key with its description")] = False,
) -> None:
    """Check the settings and print them, or list every key with its description."""
    from electra.config.loading import describe_fields, dump_settings

    print(describe_fields() if help_fields else dump_settings(_load()[0]), end="")


@app.command()
def check() -> None:
    """Check in a second what can be told before a run: settings, cells, own tasks, what stages would replace."""
    from electra.preflight import check_run

    print(f"checked: {check_run()}")


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def cluster(context: typer.Context) -> None:
    """Prepare a Prefect server for this project's deployments; `electra cluster --help` lists its commands."""
    os.execv(sys.executable, [sys.executable, "-m", "flows.cluster", *context.args])


def main() -> None:
    """Entry point: a user's mistake ends with a message and its exit code, never with a traceback."""
    from electra.common.errors import ElectraError
    from electra.system.memory import out_of_memory
    from electra.system.processes import exit_on_sigterm

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    if "DVC_STAGE" in os.environ and "RANK" not in os.environ:  # a stage; processes of a launcher end with that
        from electra.system.processes import end_with_parent

        end_with_parent()
    try:
        with exit_on_sigterm():
            app()
    except ElectraError as error:
        _fail(error)
    except (MemoryError, RuntimeError) as error:
        if explained := out_of_memory(error, sys.argv[1] if len(sys.argv) > 1 else ""):
            _fail(explained)
        raise


def _fail(error: "ElectraError") -> NoReturn:
    print(f"error: {error}", file=sys.stderr)
    if _is_one_of_several():
        # an orderly exit runs destructors that wait for the others, or abort when those are gone (gloo): the exit code
        # would be a signal's instead of the error's
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(error.exit_code)
    sys.exit(error.exit_code)


def _is_one_of_several() -> bool:
    """Whether this process has joined others to train together."""
    distributed = sys.modules.get("torch.distributed")  # imported by whoever joins
    return bool(distributed and distributed.is_initialized() and distributed.get_world_size() > 1)


if __name__ == "__main__":
    main()
