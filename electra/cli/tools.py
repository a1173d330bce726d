"""Commands for users: predictions, costs, import of weights, settings."""

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer

from electra.cli import REVIEW, START, USE, WEIGHTS, app, cluster_settings, load, reader_may_leave


@app.command(rich_help_panel=USE)
def predict(
    model: Annotated[str, typer.Argument(help="a model fine-tuned with --keep, such as CoLA-1, or its folder")],
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
    """Predict with a fine-tuned model: labels, scores, tags, choices or answers, in the input's order.

    Example: electra predict CoLA-1 sentences.txt
    """
    from electra.common.paths import Paths
    from electra.predict.run import predict_file

    columns = tuple(text_columns.split(",")) if text_columns else None
    file = None if source == "-" else Path(source)
    with reader_may_leave():
        predict_file(
            cluster_settings(),
            Paths(),
            model,
            file,
            output,
            format=format,
            input_format=input_format,
            text_columns=columns,
            batch_size=batch_size,
        )


@app.command(rich_help_panel=USE)
def publish(
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="on the hub; -discriminator and so on is added")],
    license: Annotated[str, typer.Option(help="of the weights, as the hub names it: apache-2.0, cc-by-sa-4.0, ...")],
    task: Annotated[
        list[str] | None, typer.Option(help="publish the model kept of this task too, as `electra export --task`")
    ] = None,
    milestones: Annotated[
        bool, typer.Option("--milestones", help="publish each of pretrain.milestones too, on a branch of its name")
    ] = False,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="with ONNX graphs of the encoder and the tasks, as `electra export --onnx`")
    ] = False,
    private: Annotated[bool, typer.Option("--private", help="make new repositories private")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only show files and cards; nothing is sent")] = False,
) -> None:
    """Publish models/export on the Hugging Face hub, one repository with a model card for each folder.

    Example: electra publish me/electra-books --license cc-by-sa-4.0 --task CoLA --dry-run
    """
    from electra.common.paths import Paths
    from electra.hub.publish import check_upload, describe, hub_token, plan_uploads, upload_all

    check_upload(name, license)  # before models are exported
    if not dry_run:
        hub_token()
    folders: list[Path] = []
    if task:
        from electra.hub.finetuned import export_task

        folders = [export_task(Paths(), one, with_onnx=onnx) for one in task]
    checkpoints = None
    if milestones:
        from electra.hub.milestones import export_milestones

        checkpoints = export_milestones(*load())
    with_graphs = None
    if onnx:
        from electra.hub.encoder_onnx import export_encoder_onnx

        with_graphs = export_encoder_onnx(Paths())
    uploads = plan_uploads(Paths(), name, license, folders, checkpoints, with_graphs)
    if dry_run:
        print(describe(uploads), end="")
    else:
        upload_all(uploads, private=private)


@app.command(rich_help_panel=USE)
def demo(
    folder: Annotated[
        Path | None, typer.Argument(help="an exported folder, such as models/export; models/pretrained otherwise")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="on 127.0.0.1; 0 takes a free one")] = 8765,
) -> None:
    """Serve a page on this machine: tokens that look replaced, proposals of the generator, fine-tuned predictions.

    Example: electra demo models/export
    """
    from electra.common.paths import Paths
    from electra.finetune.run import prepare_machine
    from electra.predict.demo import run_demo

    run_demo(Paths(), folder, port, *prepare_machine(cluster_settings()))


@app.command(rich_help_panel=REVIEW)
def seconds() -> None:
    """Show how long each fine-tuning run of this workspace took.

    Example: electra seconds
    """
    from electra.cluster.run_facts import seconds_table

    print(seconds_table(load()[1]), end="")


@app.command(rich_help_panel=USE)
def submission(
    seed: Annotated[int, typer.Option(help="fine-tuning seed whose predictions are submitted")],
    fill_missing: Annotated[
        bool, typer.Option("--fill-missing", help="GLUE tasks without predictions get the majority class")
    ] = False,
    null_threshold: Annotated[
        float, typer.Option(help="SQuAD 2.0: no answer above this no-answer score; tune it on development data")
    ] = 0.0,
    start_from: Annotated[
        str | None,
        typer.Option(help="use the models that were fine-tuned on this task first, where they exist"),
    ] = None,
) -> None:
    """Write models/submission/<seed>: GLUE test predictions as a zip for the leaderboard, SQuAD's JSON files.

    Example: electra submission --seed 1
    """
    from electra.predict.submission import write_submission

    write_submission(
        load()[1], seed=seed, fill_missing=fill_missing, null_threshold=null_threshold, start_from=start_from
    )


@app.command(rich_help_panel=REVIEW)
def trace(
    artefact: Annotated[str, typer.Argument(help="an output of a stage, such as models/export")] = "models/export",
    all_files: Annotated[bool, typer.Option("--all", help="list every raw file; with --data every document")] = False,
    data: Annotated[bool, typer.Option("--data", help="show which training text these weights have seen")] = False,
    document: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT|FILE|ID", help="was this text seen, how often and when; repeatable"),
    ] = None,
    seen: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="the same for every line of this file")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="with --data: one JSON object a line")] = False,
) -> None:
    """Trace an artefact to the stages, code, settings and raw files (with checksums) that produced it.

    Example: electra trace models/pretrained --document "It rained all day."
    """
    if data or document or seen or as_json:
        _trace_data(artefact, document or [], seen, as_json, all_files)
        return
    from electra.common.paths import Paths
    from electra.provenance import render
    from electra.provenance import trace as trace_artefact

    print(render(trace_artefact(Paths(), artefact), all_files), end="")


def _trace_data(artefact: str, asked: list[str], seen: Path | None, as_json: bool, every: bool) -> None:
    from electra.texts_seen import question, read_text, text_question, trace_texts

    settings, paths = load()
    questions = [question(settings, paths, one) for one in asked]
    lines = read_text(seen).splitlines() if seen else []
    questions += [text_question(settings, paths, line, line) for line in lines if line.strip()]
    for line in trace_texts(settings, paths, artefact, questions, as_json, every):
        print(line)


@app.command(rich_help_panel=START)
def new(
    folder: Annotated[Path, typer.Argument(help="the folder to make; an empty one may be there")],
    profile: Annotated[str, typer.Option(help="the settings to start with: small, base, large, ...")] = "small",
) -> None:
    """Make a workspace: stages, settings and deployments, in a git and DVC repository. No clone is needed.

    Example: electra new my-encoder
    """
    from electra.init.new import describe_workspace, make_workspace

    print(describe_workspace(folder, make_workspace(folder, profile), profile), end="")


@app.command(rich_help_panel=START)
def init(
    texts: Annotated[list[str], typer.Argument(help="text files, folders, globs or URLs: .txt, .jsonl, .parquet")],
    table: Annotated[
        Path | None, typer.Option(help="labelled examples to fine-tune on: .csv, .tsv, .jsonl, .json, .parquet")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="the table's column with the text; twice for pairs")
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="the table's column with the label or the score")
    ] = None,
    dev: Annotated[
        Path | None, typer.Option(help="labelled examples for development; by default a fifth of --table")
    ] = None,
    name: Annotated[str | None, typer.Option(help="of the profile; by default that of the first text")] = None,
    like: Annotated[str, typer.Option(metavar="PROFILE", help="take shape and recipe from this profile")] = "tiny",
    cased: Annotated[bool, typer.Option("--cased", help="upper and lower case differ: German and others")] = False,
    field: Annotated[str, typer.Option(help="of .jsonl and .parquet that holds the text")] = "text",
    encoding: Annotated[str, typer.Option(help="of texts and table, such as cp1252")] = "utf-8",
    steps: Annotated[int | None, typer.Option(min=10, help="of pre-training; by default from the text size")] = None,
    babylm: Annotated[
        Literal["strict-small", "strict"] | None,
        typer.Option(metavar="TRACK", help="the text is the BabyLM challenge's folder: strict-small or strict"),
    ] = None,
    time: Annotated[bool, typer.Option(help="measure for some seconds how long a run takes here")] = True,
) -> None:
    """Write a profile for your own texts; print what was found and how long a run takes here.

    Example: electra init corpus/ --table labels.csv --text review --label verdict
    """
    from electra.common.locks import exclusive
    from electra.init.project import describe_project, plan_project, write_project
    from electra.inputs import watch_inputs

    with exclusive(Path("params.yaml")):  # read first and written last
        plan = plan_project(
            texts,
            name=name,
            like=like,
            table=table,
            dev=dev,
            text_columns=text,
            label=label,
            cased=cased,
            field=field,
            encoding=encoding,
            steps=steps,
            babylm=babylm,
        )
        write_project(plan)
        watch_inputs(*load())
    minutes, used_by_others = None, 0.0
    if time:
        from electra.cluster.estimate.cost import measure_speed, run_minutes

        vocab_size = plan.settings.tokenizer.vocab_size
        rows = {plan.table.name: plan.table.rows["train"]} if plan.table else {}
        speed = measure_speed(plan.settings, vocab_size)
        minutes = run_minutes(plan.settings, speed, vocab_size, plan.texts.num_bytes, rows)
        used_by_others = speed.used_by_others
    print(describe_project(plan, minutes, used_by_others), end="")


@app.command(rich_help_panel=START)
def check() -> None:
    """Check before a run: settings, paths, columns, disk, cores and load, launcher, versions, DVC's remote, the hub.

    Exits with an error's exit code; warnings are only printed. Nothing is run or changed. Example: electra check
    """
    from electra.preflight import check_run, warnings

    told = check_run()
    for warning in warnings():
        print(f"warning: {warning}")
    print(f"checked: {told}")


@app.command(rich_help_panel=START)
def estimate(
    published: Annotated[bool, typer.Option("--published", help="compare the counts with the paper's tables")] = False,
    peak_flops: Annotated[
        float | None, typer.Option(help="peak FLOP/s of the machine, all devices together; also print the hours")
    ] = None,
    utilization: Annotated[float, typer.Option(help="share of --peak-flops that training reaches")] = 0.3,
    gpu: Annotated[
        str | None, typer.Option(metavar="NxKIND", help="hours and memory on these GPUs: a100, h100, h200, 8xh100")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(min=0, help="price of an hour of one GPU, or of this machine; also print the cost")
    ] = None,
    measure: Annotated[bool, typer.Option(help="measure the speed of this machine for some seconds")] = True,
    memory: Annotated[bool, typer.Option(help="also predict the peak memory, which takes some seconds")] = True,
    per_gpu: Annotated[
        bool, typer.Option("--cells-per-gpu", help="only print how many fine-tuning runs can share this machine's GPU")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
) -> None:
    """Estimate the cost of pre-training: parameters, tokens, FLOPs, memory, hours here and on GPUs, price.

    Example: electra estimate --gpu 8xh100 --rate 2.5
    """
    import json
    from dataclasses import asdict

    from electra.cluster.estimate import expected
    from electra.cluster.estimate.cost import estimate, published_table, render
    from electra.cluster.estimate.machines import describe_machines, render_machines
    from electra.cluster.estimate.memory import render_memory

    if published:
        print(published_table(), end="")
        return
    settings = load()[0]
    if per_gpu:
        from electra.preflight import cells_per_gpu

        print(cells_per_gpu(settings))
        return
    counted, expectation = estimate(settings), expected.expect_profile(settings)
    machines = describe_machines(settings, gpu=gpu, rate=rate, memory=memory, measure=measure)
    if as_json:
        hours = None if peak_flops is None else counted.hours(peak_flops, utilization)
        found = {"hours_at_peak": hours, "machines": machines, "expected": expected.as_json(expectation)}
        print(json.dumps({**asdict(counted), **found}, indent=2))
        return
    print(render(counted, peak_flops, utilization) + expected.render(expectation) + render_machines(machines), end="")
    if memory and not gpu:
        print(render_memory(settings, settings.tokenizer.vocab_size), end="")


@app.command(rich_help_panel=START)
def config(
    help_fields: Annotated[bool, typer.Option("--help-fields", help="list every key with its description")] = False,
    deepspeed: Annotated[
        bool, typer.Option("--deepspeed", help="print DeepSpeed's configuration on this machine, as JSON")
    ] = False,
) -> None:
    """Check the settings and print them, or list every key with its description.

    Example: electra config --help-fields

    Example: electra config --deepspeed
    """
    from electra.config.loading import describe_fields, dump_settings

    if deepspeed:
        from electra.pretrain.engine import describe_deepspeed

        print(describe_deepspeed(load()[0]))
        return
    print(describe_fields() if help_fields else dump_settings(load()[0]), end="")


@app.command(rich_help_panel=USE)
def score(
    file: Annotated[
        Path | None, typer.Argument(exists=True, help="one text a line; standard input where none is given")
    ] = None,
) -> None:
    """Score texts by pseudo-log-likelihood (nats), with a model pre-trained by objective electric.

    Example: electra score sentences.txt
    """
    from electra.common.lines import open_input, text_lines
    from electra.common.paths import Paths
    from electra.finetune.run import prepare_machine
    from electra.predict.pseudo_likelihood import score_lines

    with open_input(file) if file else nullcontext(sys.stdin.buffer) as opened, reader_may_leave():
        lines = (line for _, line in text_lines(opened, str(file) if file else "standard input"))
        for text, value, num_tokens in score_lines(Paths(), lines, *prepare_machine(cluster_settings())):
            print(f"{value:.4f}\t{num_tokens}\t{text}")


@app.command(rich_help_panel=USE)
def babylm(
    data: Annotated[Path, typer.Argument(metavar="FOLDER", help="a task's data (.jsonl), or folders of them")],
    name: Annotated[str | None, typer.Option(help="of the model on the hub, OWNER/NAME; else the profile")] = None,
    final: Annotated[bool, typer.Option("--final", help="the final weights only, without the milestones")] = False,
) -> None:
    """Write BabyLM's evaluation files: the preferred sentence of each row, for the final weights and milestones.

    Example: electra babylm evaluation_data/fast_eval
    """
    from electra.finetune.run import prepare_machine
    from electra.predict.babylm import write_predictions

    settings, paths = load()
    device, _ = prepare_machine(settings.cluster)
    target, lines = write_predictions(paths, data, name or settings.profile, device, final_only=final)
    print("\n".join([*lines, f"babylm: {target}"]))


@app.command(rich_help_panel=WEIGHTS)
def import_huggingface(
    discriminator: Annotated[Path, typer.Argument(help="a folder, or owner/name on the hub")],
    target: Annotated[Path, typer.Argument(help="the folder to write")],
    generator: Annotated[
        Path | None, typer.Option(help="the same for the generator; random weights without it")
    ] = None,
    revision: Annotated[str | None, typer.Option(help="full commit of the discriminator on the hub")] = None,
    generator_revision: Annotated[str | None, typer.Option(help="full commit of the generator on the hub")] = None,
) -> None:
    """Turn Hugging Face folders into pre-trained weights for pretrain.initialize_from.

    Example: electra import-huggingface google/electra-small-discriminator weights/small --revision COMMIT
    """
    from electra.hub.importing.huggingface import import_huggingface

    import_huggingface(discriminator, generator, target, revision, generator_revision)


@app.command(rich_help_panel=WEIGHTS)
def import_tensorflow(
    checkpoint: Annotated[str, typer.Argument(help="prefix of a google-research/electra checkpoint, or its folder")],
    vocab_file: Annotated[Path, typer.Argument(help="its vocab.txt")],
    target: Annotated[Path, typer.Argument(help="the folder to write")],
    cased: Annotated[bool, typer.Option("--cased", help="the vocabulary is not lowercase")] = False,
    settings: Annotated[
        bool, typer.Option("--settings", help="take heads and dropout from the chosen profile")
    ] = False,
) -> None:
    """Turn an original TensorFlow checkpoint into pre-trained weights; needs tensorflow-cpu.

    Example: electra import-tensorflow electra_small/ electra_small/vocab.txt weights/small
    """
    from electra.hub.importing.tensorflow import import_tensorflow

    model = load()[0].model if settings else None
    import_tensorflow(checkpoint, vocab_file, target, model, lowercase=not cased)


@app.command(rich_help_panel=WEIGHTS)
def resize(
    source: Annotated[Path, typer.Argument(help="folder of pre-trained weights")],
    vocab_file: Annotated[Path, typer.Argument(help="the new vocab.txt")],
    target: Annotated[Path, typer.Argument(help="the folder to write")],
    tokenizer: Annotated[
        Path | None, typer.Option(help="folder of the old tokenizer; SOURCE/tokenizer where none is given")
    ] = None,
) -> None:
    """Change the vocabulary of pre-trained weights; wordpieces in both vocabularies keep their embeddings.

    Example: electra resize weights/small vocab.txt weights/mine
    """
    from electra.hub.importing.resize import resize_vocabulary

    resize_vocabulary(source, vocab_file, target, tokenizer)


@app.command(
    rich_help_panel=START,
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def cluster(context: typer.Context) -> None:
    """Prepare a Prefect server for this project's deployments: init, worker.

    Example: electra cluster init --gpus 8
    """
    if context.args and not {"-h", "--help"} & set(context.args):
        os.execv(sys.executable, [sys.executable, "-m", "flows.cluster", *context.args])
    import runpy  # shows help in this process: starting a second interpreter would take twice as long

    sys.argv[1:] = context.args
    runpy.run_module("flows.cluster", run_name="__main__")
