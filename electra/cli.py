"""The commands: one per stage, and a few for people. Heavy imports stand inside them: `electra --help` is quick."""

import os
import sys
from typing import Annotated

import typer

app = typer.Typer(
    help="Train your own ELECTRA encoder: text in, an encoder and its score card out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _load():
    from electra.config import load_settings
    from electra.paths import Paths

    return load_settings(), Paths()


@app.command()
def corpus() -> None:
    """Read, clean, de-duplicate and split the documents."""
    from electra.corpus.build import build_corpus

    build_corpus(*_load())


@app.command()
def validate_corpus() -> None:
    """Judge the corpus; critical failures end with exit code 3."""
    from electra.validation.gate import validate_corpus

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
    from electra.validation.gate import validate_shards

    validate_shards(*_load())


@app.command()
def pretrain() -> None:
    """Pre-train generator and discriminator; resumes an interrupted run of the same settings and data."""
    from electra.pretrain.launch import launch_pretraining

    launch_pretraining(*_load())


@app.command()
def tasks() -> None:
    """Read the labelled tasks into one format."""
    from electra.finetune.prepare import prepare_tasks

    prepare_tasks(*_load())


@app.command()
def validate_tasks() -> None:
    """Judge the labelled tasks; critical failures end with exit code 3."""
    from electra.validation.gate import validate_tasks

    validate_tasks(*_load())


@app.command()
def finetune(
    task: Annotated[str, typer.Option(help="task name, such as CoLA or SQuAD1.1")],
    seed: Annotated[int, typer.Option(help="fine-tuning seed")],
    scratch: Annotated[bool, typer.Option("--scratch", help="start from random weights: the baseline")] = False,
) -> None:
    """Fine-tune one task with one seed and write its predictions on the development set."""
    from electra.finetune.run import finetune_cell

    finetune_cell(*_load(), task=task, seed=seed, scratch=scratch)


@app.command()
def evaluate() -> None:
    """Score all predictions: per task and seed, and the median over seeds."""
    from electra.finetune.evaluate import evaluate_cells

    evaluate_cells(*_load())


@app.command()
def report() -> None:
    """Write the score card: results/report.md and one self-contained HTML page."""
    from electra.report.build import build_report

    build_report(*_load())


@app.command()
def export() -> None:
    """Write discriminator and generator as Hugging Face folders."""
    from electra.model.export import export_model

    export_model(*_load())


@app.command()
def config(
    help_fields: Annotated[bool, typer.Option("--help-fields", help="list every key with its description")] = False,
) -> None:
    """Check the settings and print them, or list every key with its description."""
    from electra.config import describe_fields, dump_settings

    print(describe_fields() if help_fields else dump_settings(_load()[0]), end="")


def main() -> None:
    """Entry point: a user's mistake ends with a message and its exit code, never with a traceback."""
    from electra.errors import ElectraError

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    try:
        app()
    except ElectraError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
