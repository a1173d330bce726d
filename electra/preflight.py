"""`electra check`: fast checks of settings and inputs, before DVC removes the results of the last run.

DVC removes a stage's outputs before it runs the command, so a mistake that only the command detects costs the old
results. `make run` and the flows therefore check first; to stay within a second or two, this module imports nothing
slow. A certain failure is an error; a possible failure or a slow run is a warning. Each message says what to do.
"""

import configparser
import dataclasses
import os
import re
import shutil
import socket
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from packaging.requirements import Requirement

from electra.cluster.estimate.text_size import local_text_bytes
from electra.cluster.processor import SLOW_BF16, is_bf16_faster
from electra.common.artifacts import refuse_strange
from electra.common.errors import ConfigError, DataError
from electra.common.globs import files_of
from electra.common.parsing import read_yaml
from electra.common.paths import Paths
from electra.common.urls import check_url
from electra.config import FilesCorpus, FilesTasks, HubCorpus, HubTasks, Settings
from electra.config.loading import BESIDE_DVC_YAML, load_settings
from electra.readers.custom_schema import CustomTask, read_custom_task
from electra.readers.tables import read_table, table_files
from electra.readers.templates import columns_of
from electra.tasks.catalogue import TASKS
from electra.tasks.matrix import finetuned_name, requested_runs

PROFILE = "params/${profile}.yaml"  # as dvc.yaml names it
_TEMPLATE = re.compile(r"\$\{([\w.]+)\}")


def check_run(root: Path = Path(".")) -> str:
    """Check settings, fine-tuning runs, named files and columns, and that no stage would overwrite foreign files.

    Returns:
        One line that summarises the run.

    Raises:
        ConfigError: the first mistake found in the settings.
        DataError: files or columns that the settings name are missing; lists all of them.
    """
    settings = load_settings(root)
    _check_parameters(root, settings.profile)
    processes = settings.cluster.num_processes
    settings.cluster.micro_batch(settings.pretrain.batch_size, 1 if processes == "auto" else processes)
    names = _run_names(settings)
    own = {path: read_custom_task(root / path) for path in settings.tasks.custom_files.values()}
    if missing := [*_missing_files(settings, root), *_missing_columns(own, root)]:
        raise DataError("\n".join(missing), where=f"params/{settings.profile}.yaml", next_step=_BRING_FILES)
    paths = Paths(root)
    for folder in paths.stage_folders:
        refuse_strange(folder)
    tasks = len(settings.cells.tasks)
    return (
        f"profile {settings.profile}, objective {settings.pretrain.objective}, "
        f"{len(names)} fine-tuning cells of {tasks} {'task' if tasks == 1 else 'tasks'}"
    )


def _check_parameters(root: Path, profile: str) -> None:
    """Check that every key named in dvc.yaml is in its file, since DVC has no defaults."""
    try:
        pipeline = read_yaml(root / "dvc.yaml")
    except FileNotFoundError:
        raise ConfigError(f"{root / 'dvc.yaml'} does not exist", next_step=BESIDE_DVC_YAML) from None
    files = {"params.yaml": read_yaml(root / "params.yaml")}
    files[PROFILE] = read_yaml(root / PROFILE.replace("${profile}", profile))
    if not isinstance(pipeline, dict) or not isinstance(pipeline.get("stages"), dict):
        raise ConfigError(
            "it has no stages", where=str(root / "dvc.yaml"), next_step="take it as the project brings it"
        )
    wanted = {("params.yaml", key) for key in _templates(pipeline) if not key.startswith("item.")}
    for stage in pipeline["stages"].values():
        for entry in stage.get("params", []):
            wanted |= {(file, key) for file, keys in entry.items() for key in keys or []}
    for file, key in sorted(wanted):
        value: Any = files[file]
        for part in key.split("."):
            value = value.get(part, _Missing) if isinstance(value, dict) else _Missing
        if value is _Missing:
            raise ConfigError(
                f"{key} is missing, and DVC must find it there",
                where=file.replace("${profile}", profile),
                next_step="add it; its meaning and default: electra config --help-fields",
            )


class _Missing:
    """Marker of a missing value."""


def _templates(node: Any) -> Iterator[str]:
    """Yield the names of the parameters in the strings of dvc.yaml."""
    if isinstance(node, str):
        yield from _TEMPLATE.findall(node)
    elif isinstance(node, dict | list):
        for part in [*node, *node.values()] if isinstance(node, dict) else node:
            yield from _templates(part)


def _run_names(settings: Settings) -> list[str]:
    """Return the names of all fine-tuning runs; raise ConfigError for two runs with the same name and folder."""
    names = Counter(finetuned_name(*run) for run in requested_runs(settings.cells))
    if twice := [name for name, count in names.items() if count > 1]:
        raise ConfigError(
            f"two fine-tuning runs would be named {', '.join(twice)}",
            where="cells",
            next_step="rename an own task or an encoder: the names are <task>-<seed>-<start>",
        )
    return list(names)


_BRING_FILES = (
    "correct the paths and names, or bring the files; `electra init TEXTS...` writes a profile for your own. Paths are "
    "relative to the folder that holds dvc.yaml"
)
_FIRST_ROW = (".csv", ".tsv", ".jsonl")  # tables whose first row gives the columns


def _missing_files(settings: Settings, root: Path) -> Iterator[str]:
    for source in settings.corpus.sources:
        if isinstance(source, FilesCorpus):
            for pattern in source.paths:
                if said := _complaint(root, pattern):
                    yield f"corpus.sources, {source.name}: {said}"
            if source.checksums and not os.path.isfile(root / source.checksums):
                yield f"corpus.sources, {source.name}: there is no {source.checksums}"
    tasks = settings.tasks.source
    if isinstance(tasks, FilesTasks):
        asked = {TASKS[name].source for name in settings.cells.tasks if name in TASKS}
        for key, folder in tasks.model_dump(exclude={"kind"}).items():
            if key in asked and folder and not (root / folder).is_dir():
                yield f"tasks.source.{key}: there is no folder {folder}"
    for file in settings.tasks.pairs:
        if not (root / file).is_file():
            yield f"tasks.pairs: there is no file {file}"
    for key, value in (
        ("tokenizer.vocab_file", settings.tokenizer.vocab_file),
        ("pretrain.initialize_from", settings.pretrain.initialize_from),
    ):
        if value and not (root / value).exists():
            yield f"{key}: there is no {value}"
    for name in settings.cells.encoders:
        if not (root / "encoders" / name).is_dir():
            yield f"cells.encoders: there is no folder encoders/{name}"


def _complaint(root: Path, pattern: str) -> str:
    """Return the corpus stage's error for a path, glob or URL, as far as known offline; empty if there is none."""
    local = pattern.removeprefix("file://")
    try:
        if "://" in local:
            check_url(local)
        elif not files_of(local, root):
            return f"no file matches {pattern}"
    except DataError as error:
        return f"{error.where}: {error.what}"
    return ""


def _missing_columns(own: dict[Path, CustomTask], root: Path) -> Iterator[str]:
    """Yield a message for each table of an own task that is missing or whose first row lacks a column."""
    for path, task in own.items():
        values = [getattr(task, name, None) for name in ("text", "text_a", "text_b", "question", "context", "answer",
                                                         "start", "words", "id")]  # fmt: skip
        texts = [column for value in [*values, *getattr(task, "choices", [])] if value for column in columns_of(value)]
        labels = [column for column in (getattr(task, "label", None), getattr(task, "tags", None)) if column]
        for split in ("train", "dev", "test"):
            table = getattr(task, split, None)
            columns = texts if split == "test" else [*texts, *labels]  # a test table has no labels
            if table is None:
                continue
            try:
                for file in table_files((root / path).parent, table):
                    if file.suffix.lower() in _FIRST_ROW and not (
                        task.each or task.lines or task.format or not task.header
                    ):
                        next(iter(read_table(file, columns, task.layout)), None)
            except DataError as error:
                yield f"{path}: {error.what}"


def warnings(root: Path = Path(".")) -> Iterator[str]:
    """Yield warnings about what may slow a run or make it fail, with advice; at most two lines each."""
    settings = load_settings(root)
    yield from _disk(settings, root)
    yield from _cores(settings)
    if settings.cluster.precision == "bf16" and settings.cluster.device == "cpu" and not is_bf16_faster():
        yield SLOW_BF16
    yield from _launcher(settings)
    yield from _versions()
    yield from _remote(root)
    yield from _network(settings, root)


def _disk(settings: Settings, root: Path) -> Iterator[str]:
    text = local_text_bytes(settings, root)
    model = settings.model
    weights = settings.tokenizer.vocab_size * model.embedding_size + 12 * model.num_layers * model.hidden_size**2
    # text: corpus, shards and DVC's cache of both; 12 bytes per weight in a checkpoint, 4 in milestones and exports
    needed = int(1e9 + 4 * text + weights * (12 * (settings.cluster.keep_checkpoints + 1) + 4 * 8))
    free = shutil.disk_usage(root).free
    if free < needed:
        yield (
            f"{free / 1e9:.1f} GB of disk are free, and a run takes about {needed / 1e9:.1f} GB\n"
            "  next:  free space (dvc gc --workspace removes cached results of other settings), or move the project"
        )


def _cores(settings: Settings) -> Iterator[str]:
    cores = os.sched_getaffinity(0)
    threads, processes = settings.cluster.num_threads, settings.cluster.num_processes
    asked = (1 if threads == "auto" else threads) * (1 if processes == "auto" else processes)
    if settings.cluster.device != "cuda" and settings.cluster.launcher == "local" and asked > len(cores):
        yield (
            f"cluster asks for {asked} threads in all, and this process may use {len(cores)} cores\n"
            "  next:  set cluster.num_threads and num_processes to auto"
        )
    busy = psutil.cpu_percent(interval=0.3, percpu=True)
    used = sum(busy[number] for number in cores if number < len(busy)) / 100
    if used > len(cores) / 4:
        yield (
            f"other processes use {used:.1f} of {len(cores)} cores (load average {os.getloadavg()[0]:.1f}): a run will "
            "be slower, its results the same\n  next:  end them, or wait (top shows them)"
        )


def _launcher(settings: Settings) -> Iterator[str]:
    """Yield warnings about programs and packages that the launcher calls and that are missing here."""
    launcher = settings.cluster.launcher
    programs = {"slurm": ("sbatch", "scontrol", "scancel"), "kubernetes": ("kubectl",)}.get(launcher, ())
    if missing := [program for program in programs if shutil.which(program) is None]:
        yield (
            f"cluster.launcher is {launcher}, and there is no {' or '.join(missing)} here: pre-training cannot start\n"
            "  next:  run it on a machine that has them, or choose another launcher (docs/launchers.md)"
        )
    if launcher == "slurm" and find_spec("submitit") is None:
        yield "cluster.launcher is slurm, and submitit is missing\n  next:  pip install 'electra-pipeline[slurm]'"


def _versions() -> Iterator[str]:
    """Yield a warning if installed packages do not meet the project's requirements."""
    try:
        required = metadata.requires("electra-pipeline") or []
    except metadata.PackageNotFoundError:
        return
    wrong = []
    for requirement in map(Requirement, required):
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        try:
            installed = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            wrong.append(f"{requirement.name} {installed} is not {requirement.specifier}")
    if wrong:
        again = "pip install --upgrade electra-pipeline"
        if Path("Makefile").is_file():
            again = "touch pyproject.toml && make env  (installs what constraints.txt says)"
        yield (f"packages that are known to clash: {', '.join(wrong)}\n  next:  {again}")


def _remote(root: Path) -> Iterator[str]:
    """Yield warnings about DVC's default remote, if one is set."""
    config = configparser.ConfigParser(strict=False, interpolation=None)
    try:
        config.read([root / ".dvc/config", root / ".dvc/config.local"], encoding="utf-8")
    except configparser.Error as error:
        yield f".dvc/config cannot be read: {str(error).splitlines()[0]}\n  next:  repair it: dvc remote list"
        return
    name = config.get("core", "remote", fallback=None)
    if name is None:
        return
    section = next((s for s in config.sections() if s.strip("'\"") == f'remote "{name}'), None)
    url = config.get(section, "url", fallback=None) if section else None
    if url is None:
        yield f"DVC's default remote {name} is not defined\n  next:  dvc remote add {name} URL  (docs/remotes.md)"
        return
    scheme = urlsplit(url).scheme
    module = {"s3": "dvc_s3", "gs": "dvc_gs", "azure": "dvc_azure", "ssh": "dvc_ssh"}.get(scheme)
    if module and find_spec(module) is None:
        yield f"DVC's remote {name} is {scheme}://, and {module} is missing\n  next:  pip install 'dvc[{scheme}]'"
    if not scheme and not (root / ".dvc" / url).exists() and not Path(url).is_dir():
        yield f"DVC's remote {name} is {url}, which does not exist\n  next:  dvc push makes it, or correct its path"


def _network(settings: Settings, root: Path) -> Iterator[str]:
    hub = [
        source.dataset
        for source in settings.corpus.sources
        if isinstance(source, HubCorpus) and not (root / source.dataset).is_dir()
    ]
    if isinstance(settings.tasks.source, HubTasks) and any(name in TASKS for name in settings.cells.tasks):
        hub.append(settings.tasks.source.glue)
    if hub:
        endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
        if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
            yield (
                f"{', '.join(hub)} come from the hub, and HF_HUB_OFFLINE is set: only what is cached can be read\n"
                "  next:  unset HF_HUB_OFFLINE, or use files (docs/own-corpus.md)"
            )
        elif not _answers(endpoint):
            yield (
                f"{', '.join(hub)} come from the hub, and {endpoint} does not answer\n"
                "  next:  check the network and HTTPS_PROXY, or use files (docs/own-corpus.md)"
            )
    api = os.environ.get("PREFECT_API_URL")
    if api and not _answers(api):
        yield (
            f"PREFECT_API_URL is {api}, which does not answer: make flow will not start\n"
            "  next:  start it (prefect server start), or unset PREFECT_API_URL"
        )


def _answers(url: str) -> bool:
    """Return whether the server accepts connections; True without a test if a proxy is set."""
    parts = urlsplit(url)
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY")):
        return True
    try:
        port = parts.port or {"http": 80}.get(parts.scheme, 443)
        with socket.create_connection((parts.hostname or "", port), timeout=0.7):
            return True
    except (OSError, ValueError):
        return False


_MOST_RUNS = 4  # fine-tuning runs on one GPU: with more, the step time grows in proportion
_CONTEXT = 700_000_000  # bytes of device memory for CUDA and its libraries, per process


def cells_per_gpu(settings: Settings) -> int:
    """Return how many fine-tuning runs share a GPU; with ``auto``, as many as are predicted to fit now, 1 to 4.

    On a CPU, ``auto`` is 1.
    """
    if settings.cluster.cells_per_gpu != "auto":
        return settings.cluster.cells_per_gpu
    import torch

    from electra.cluster.estimate.memory import FILL
    from electra.cluster.hardware import choose_device

    if choose_device(settings.cluster) == "cpu":
        return 1
    needed = predict_finetuning_memory(settings) + _CONTEXT
    return max(1, min(_MOST_RUNS, int(FILL * torch.cuda.mem_get_info()[0] / needed)))


def predict_finetuning_memory(settings: Settings) -> int:
    """Return the predicted peak memory of tensors of the profile's largest fine-tuning run on CUDA, in bytes.

    Simulates a step of the encoder with a full batch of the tasks' longest inputs; heads are small in comparison.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from electra.cluster.estimate.memory import FP32, WORKSPACES, LiveBytes
    from electra.cluster.hardware import choose_precision
    from electra.finetune.kinds import FINETUNING
    from electra.model.attention import CuSeqlens
    from electra.model.encoder import Encoder
    from electra.model.shape import EncoderConfig

    options, specs = settings.finetune, [TASKS.get(name) for name in settings.cells.tasks]
    # a task that is not in the catalogue is one of the user's: of any kind, with inputs of their own
    kinds = {spec.kind for spec in specs if spec is not None} | (set(FINETUNING) if None in specs else set())
    length = max([options.max_length, *(FINETUNING[kind].max_length(options) for kind in kinds)])
    parts = [FINETUNING[spec.kind].inputs_per_row(spec) for spec in specs if spec is not None]
    inputs = options.batch_size * max([1, *parts])
    bf16 = choose_precision(settings.cluster, "cuda") == "bf16"
    shape = EncoderConfig.discriminator(settings.model, settings.tokenizer.vocab_size)
    shape = dataclasses.replace(shape, dropout=0.1, attention_dropout=0.1)  # as in fine-tuning
    with FakeTensorMode(), torch.device("cuda"):
        encoder = Encoder(shape)
        tokens_BT = torch.zeros(inputs, length, dtype=torch.long)
        mask_BT = torch.ones(inputs, length, dtype=torch.bool)
        flash = CuSeqlens(torch.zeros(2 * inputs + 1, dtype=torch.int32), mask_BT) if bf16 else mask_BT
        with LiveBytes(encoder) as live:
            with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
                hidden_BTD = encoder(tokens_BT, tokens_BT, flash)
            hidden_BTD.float().sum().backward()
    moments = 2 * FP32 * sum(parameter.numel() for parameter in encoder.parameters())
    return moments * 3 // 2 + WORKSPACES + live.peak
