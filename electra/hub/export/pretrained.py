"""The export stage: write discriminator and generator as folders that ``transformers`` loads.

The paper's blocks are written as ``transformers``' ELECTRA, with rotary positions as its RoFormer (papers.py), the
modern architecture as its ModernBERT (modernbert.py). Each folder gets a model card: a description, the training data
and the scores.
"""

import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, cast

from huggingface_hub import EvalResult, ModelCardData
from safetensors.torch import save_file
from torch import Tensor

from electra.cluster.estimate.cost import estimate
from electra.common.artifacts import MANIFEST, building, read_json, write_json, write_manifest, write_text
from electra.common.errors import ConfigError
from electra.common.paths import Paths
from electra.config import Settings
from electra.config.methods import METHODS
from electra.hub.export import modernbert, papers
from electra.hub.export.names import Family
from electra.kinds import KINDS
from electra.model.encoder import Encoder
from electra.model.heads import VocabularyHead
from electra.model.pretrained import require_tokenizer, special_token_ids
from electra.model.shape import EncoderConfig
from electra.objectives.base import Objective
from electra.objectives.saved import load_objective
from electra.results.report.content import count, data_in_words, pretraining, score_card
from electra.results.report.facts import Facts, gather, leakage, plateaus, zero_shot
from electra.results.report.remarks import score_remarks
from electra.results.report.tables import as_markdown
from electra.tasks.catalogue import TaskSpec, find_spec

TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")
OWN_PARTS = "own_parts.safetensors"  # parts of a folder that only electra import-huggingface reads


def export_model(settings: Settings, paths: Paths) -> None:
    """Write ``models/export/{discriminator,generator}``: config, weights, tokenizer and model card.

    A method without a discriminator has ``encoder`` instead; without a trained generator there is no ``generator``.
    With ``architecture: modern`` the discriminator is a bare encoder, and ``detector`` is the token classifier that
    predicts replaced tokens: its two labels would otherwise initialise any two-class fine-tuning. Parts that a class of
    ``transformers`` cannot hold (the factors of a folded table, the discriminator's head in RoFormer) are stored in the
    folder's ``own_parts.safetensors``, so that importing restores the same bits.

    Raises:
        ConfigError: ``transformers`` has no model of these blocks.
        DataError: there is no pre-trained model, or its weights do not fit its config or the tokenizer.
    """
    with building(paths.export) as scratch:
        write_folders(settings, paths, paths.pretrained, scratch)
        folders = ", ".join(sorted(path.name for path in scratch.iterdir()))
        write_manifest(scratch)
    print(f"export: {paths.export}: {folders}, loadable with transformers' from_pretrained")


def write_folders(settings: Settings, paths: Paths, source: Path, target: Path, checkpoint: str = "") -> None:
    """Write the folders of :func:`export_model` for the weights in ``source`` into the folder ``target``.

    Args:
        checkpoint: section of the cards about a checkpoint of the run; empty for the final weights.
    """
    objective = load_objective(source)
    encoder, main = objective.encoder_to_publish(), objective.encoder_name
    modernbert.check_home(encoder.config)
    special = dict(zip(("pad", "cls", "sep"), special_token_ids(paths.tokenizer), strict=False))
    require_tokenizer(source, paths.tokenizer)

    def write(folder: Path, model: Exported) -> None:
        folder.mkdir()
        _save(model.weights, folder / "model.safetensors")
        if model.own_parts:
            _save(model.own_parts, folder / OWN_PARTS)
        shape, initializer_range = model.shape, settings.model.initializer_range
        if shape.is_modern:
            facts = modernbert.modernbert_config(shape, model.architecture, initializer_range, special)
        else:
            facts = papers.huggingface_config(shape, model.architecture, initializer_range, special["pad"])
        write_json(folder / "config.json", facts)
        for name in TOKENIZER_FILES:
            shutil.copyfile(paths.tokenizer / name, folder / name)
        if shape.is_modern:
            config_file = folder / "tokenizer_config.json"
            write_json(config_file, modernbert.tokenizer_facts(read_json(config_file)))
        of = family(encoder.config)
        card = model_card(settings, paths, family=of, main=main, folder=folder.name, checkpoint=checkpoint)
        write_text(folder / "README.md", card)

    for model in exported_models(objective, encoder):
        write(target / model.folder, model)


class Exported(NamedTuple):
    """One folder to write: its class of ``transformers``, the state of that class, and parts the class cannot hold."""

    folder: str
    architecture: str
    shape: EncoderConfig
    weights: dict[str, Tensor]
    own_parts: dict[str, Tensor]


def family(shape: EncoderConfig) -> Family:
    """Return the prefix of the ``transformers`` classes: Electra, RoFormer or ModernBert."""
    return "ModernBert" if shape.is_modern else papers.family(shape)


def exported_models(objective: Objective, encoder: Encoder) -> Iterator[Exported]:
    """Yield the models to write, the main one first."""
    shape, main, name = encoder.config, objective.encoder_name, family(encoder.config)
    of_room = modernbert if shape.is_modern else papers
    mlm_weights, own_parts = of_room.masked_language_model_weights, of_room.own_parts
    if not objective.info.has_discriminator:
        weights = mlm_weights(encoder, cast(VocabularyHead, objective.head))
        yield Exported(main, f"{name}ForMaskedLM", shape, weights, own_parts(encoder))
    elif shape.is_modern:
        bare, own = modernbert.encoder_weights(encoder), own_parts(encoder)
        yield Exported(main, "ModernBertModel", shape, bare, own)
        weights = modernbert.detector_weights(encoder, objective.discriminator_head)
        yield Exported("detector", "ModernBertForTokenClassification", shape, weights, own)
    elif papers.is_roformer(shape):
        own = papers.head_weights(objective.discriminator_head)
        yield Exported(main, "RoFormerModel", shape, papers.encoder_weights(encoder, prefix=""), own)
    else:
        weights = papers.discriminator_weights(encoder, objective.discriminator_head)
        yield Exported(main, "ElectraForPreTraining", shape, weights, {})
    if objective.generator is not None:
        generator, generator_head = objective.generator, cast(VocabularyHead, objective.generator_head)
        weights = mlm_weights(generator, generator_head)
        yield Exported("generator", f"{name}ForMaskedLM", generator.config, weights, own_parts(generator))


def _save(weights: dict[str, Tensor], file: Path) -> None:
    tensors = {name: tensor.detach().contiguous().clone() for name, tensor in weights.items()}
    save_file(tensors, file, metadata={"format": "pt"})


ROLES = {  # folder -> pipeline tag on the hub, and description
    "discriminator": (
        "feature-extraction",
        "The discriminator: the encoder to fine-tune. It was trained to predict which tokens of a text were replaced.",
    ),
    "detector": (
        "token-classification",
        "The discriminator with its head: predicts for each token whether it was replaced. Fine-tune the bare encoder "
        "beside it instead, since two labels would initialise any two-class task.",
    ),
    "generator": (
        "fill-mask",
        "The generator: a small masked language model that proposed the replacements. It is needed to go on with "
        "pre-training; the discriminator is the encoder to fine-tune.",
    ),
    "encoder": ("fill-mask", "A masked language model: the encoder to fine-tune."),
}


def model_card(
    settings: Settings,
    paths: Paths,
    *,
    family: str = "Electra",
    main: str = "discriminator",
    folder: str | None = None,
    checkpoint: str = "",
) -> str:
    """Return a model card in Markdown, with the hub's front matter.

    Also works before the tasks are scored; the card then says so. The licence is left to the publisher, since it
    depends on the training text.

    Args:
        family: prefix of the classes of the folders.
        main: folder of the encoder to fine-tune.
        folder: the exported folder to describe; the main one if None.
        checkpoint: section about a checkpoint of the run, whose card has no scores; empty for the final weights.
    """
    facts, folder = gather(settings, paths), folder or main
    if checkpoint:
        facts = replace(facts, pretrain=None, curves=None, probe=None, scores=None)
    pipeline_tag, role = ROLES[folder]
    results = encoder_results(facts, paths.tasks) if folder == main else []
    method = METHODS[settings.pretrain.objective]
    start, base_model = initial_weights(settings, paths)
    went_on = f" Training went on from {start}." if settings.pretrain.initialize_from else ""
    parts = [
        front_matter(facts, pipeline_tag, results, base_model=base_model if folder == main else None),
        f"# {'ELECTRA' if method.has_discriminator else 'Encoder'}, profile {settings.profile}: {folder}\n",
        f"{role}\n",
        checkpoint,
        f"Pre-trained by {method.title}.{went_on}\n",
        data_in_words(facts) + "\n",
        _sources(facts),
        _shape(facts),
        as_markdown(pretraining(facts)) if facts.pretrain else "",
        *([as_markdown(zero_shot(facts))] if facts.probe and folder == main else []),
        _listed(plateaus(facts)),
        *([_scores(facts), _listed(score_remarks(facts))] if folder == main and not checkpoint else []),
        _how_to_load(main, family, settings.pretrain.trains_generator),
        LIMITS,
    ]
    return "\n".join(part for part in parts if part)


def initial_weights(settings: Settings, paths: Paths) -> tuple[str, str | None]:
    """Return the weights that pre-training started from, in words for a card, and their repository if it is known.

    Of a local folder the words have the name alone, since its path describes the machine of the run.
    """
    if not settings.pretrain.initialize_from:
        return "random weights", None
    folder = (paths.root / settings.pretrain.initialize_from).absolute()
    manifest = folder / MANIFEST
    origin = read_json(manifest).get("imported_from", {}).get("discriminator", {}) if manifest.is_file() else {}
    if repository := origin.get("repository"):
        return f"{repository} at {origin['revision']}", repository
    return f"earlier weights ({folder.name})", None


METRIC_NAMES = {"matthews": "matthews_correlation", "spearman": "spearmanr", "pearson": "pearsonr"}  # names on the hub


def result(spec: TaskSpec, metric: str, value: float, data: str) -> EvalResult:
    """Return an entry of the hub's ``model-index``: a score in percent on a development set."""
    return EvalResult(
        task_type=KINDS[spec.kind].pipeline,
        dataset_type=re.sub(r"[^a-z0-9]+", "-", spec.name.lower()).strip("-"),
        dataset_name=f"{spec.name}: {data}",
        dataset_split="validation",
        metric_type=METRIC_NAMES.get(metric, metric),
        metric_name=f"{metric}, percent",
        metric_value=round(value, 2),
    )


def encoder_results(facts: Facts, tasks: Path) -> list[EvalResult]:
    """Return scores of the tasks fine-tuned from the encoder.

    Args:
        tasks: folder of the prepared tasks, which has the kind of own ones; own tasks that it lacks are left out.
    """
    found = []
    for name, entry in (facts.scores or {}).get("tasks", {}).items():
        with suppress(ConfigError):
            found.append(result(find_spec(tasks, name), entry["metric"], entry["pretrained"], entry["data"]))
    return found


def front_matter(
    facts: Facts | None,
    pipeline_tag: str,
    results: list[EvalResult],
    name: str | None = None,
    base_model: str | None = None,
) -> str:
    """Return the hub's metadata as YAML; publishing adds the licence, and the run's encoder as base model of others.

    Args:
        facts: facts of the run; None if its settings are not available.
        name: name of the model; derived from the profile if None.
        base_model: repository of the weights that pre-training started from.
    """
    sources = facts.settings.corpus.sources if facts else []
    datasets = sorted({source.dataset for source in sources if source.kind == "hub"})
    name = name or (f"electra-{facts.settings.profile}" if facts else "electra")
    data = ModelCardData(
        language=_languages(facts) if facts else None,
        library_name="transformers",
        pipeline_tag=pipeline_tag,
        tags=["electra", *_tags(facts)],
        datasets=datasets or None,
        model_name=name if results else None,
        eval_results=results or None,
        base_model=base_model,
    )
    return f"---\n# license: set it to fit the training text before publishing\n{data.to_yaml()}\n---\n"


def _tags(facts: Facts | None) -> list[str]:
    """Return the hub's tag of the pre-training method; none if the settings are not known."""
    if facts is None:
        return []
    has_discriminator = METHODS[facts.settings.pretrain.objective].has_discriminator
    return ["replaced-token-detection" if has_discriminator else "masked-language-modeling"]


def _languages(facts: Facts) -> list[str] | None:
    """Return the languages that the corpus was filtered by; None without such a filter, since they are unknown."""
    rules = [rule for rule in facts.settings.corpus.cleaning if rule.kind == "language"]
    return sorted({code for rule in rules for code in rule.languages}) or None


def _scores(facts: Facts) -> str:
    if facts.scores and facts.scores["tasks"]:
        return as_markdown(score_card(facts))
    return f"## Scores\n\n{'No tasks were asked for.' if facts.scores else 'Not fine-tuned yet.'}\n"


def _listed(lines: list[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)


def _sources(facts: Facts) -> str:
    """Return licences of the training text and evaluation text found in it; empty if neither is known."""
    manifest = facts.manifests.get("corpus", {})
    licences = [f"- {name}: {f['license']}" for name, f in manifest.get("sources", {}).items() if f.get("license")]
    parts = ["## Licences of the training text", "", *licences, ""] if licences else []
    leaks = leakage(facts)
    return "\n".join([*parts, as_markdown(leaks) if leaks.rows else ""])


def _shape(facts: Facts) -> str:
    model, pretrain, shards = facts.settings.model, facts.settings.pretrain, facts.settings.shards
    tokenizer = facts.manifests.get("tokenizer", {})
    vocabulary = tokenizer.get("vocab_size", facts.settings.tokenizer.vocab_size)
    cost = estimate(facts.settings)
    main = "discriminator" if METHODS[pretrain.objective].has_discriminator else "encoder"
    generator = f"- generator: {model.generator_width:g} of the width, {model.generator_depth:g} of the depth" + (
        "" if pretrain.generator_rate == 1 else f", {pretrain.generator_rate:g} of the learning rate"
    )
    return "\n".join(
        [
            "## Size and training",
            "",
            f"- {main}: {model.num_layers} layers, width {model.hidden_size}, {model.num_heads} heads, "
            f"embeddings of {model.embedding_size}",
            *([generator] if pretrain.trains_generator else []),
            f"- vocabulary: {count(vocabulary)} wordpieces, {'lowercased' if _lowercase(facts) else 'cased'}",
            f"- training: {count(pretrain.num_steps)} steps of {count(pretrain.batch_size)} examples of up to "
            f"{shards.max_length} tokens, learning rate {pretrain.learning_rate:g}",
            f"- compute: {cost.hardware_training_flops:.2e} FLOPs, counted from the shapes",
            "",
        ]
    )


def _lowercase(facts: Facts) -> bool:
    return facts.manifests.get("tokenizer", {}).get("lowercase", facts.settings.tokenizer.lowercase)


def _how_to_load(main: str, family: str, has_generator: bool) -> str:
    """Return loading instructions for the classes of the folders.

    Args:
        main: folder of the encoder to fine-tune; one that is no discriminator is a masked language model.
        family: prefix of the classes of the folders.
        has_generator: the run trained a generator, which is a folder too.
    """
    classes, models = "AutoModel, AutoTokenizer", []
    if main == "discriminator" and family == "Electra":
        classes += ", ElectraForPreTraining"
        models.append(
            'ElectraForPreTraining.from_pretrained("path/to/discriminator")  # says which tokens were replaced'
        )
    elif main == "discriminator" and family == "ModernBert":
        models.append('pipeline("token-classification", "path/to/detector")  # says which tokens were replaced')
    if has_generator or main != "discriminator":
        models.append(f'pipeline("fill-mask", "path/to/{"generator" if main == "discriminator" else main}")')
    lines = [
        "## How to load",
        "",
        "```python",
        f"from transformers import {classes}, pipeline",
        "",
        f'tokenizer = AutoTokenizer.from_pretrained("path/to/{main}")',
        f'encoder = AutoModel.from_pretrained("path/to/{main}")  # {family}Model: the encoder to fine-tune',
        *models,
    ]
    return "\n".join([*lines, "```", ""])


LIMITS = "## Limits\n\nThe model reproduces what is in its training text, including errors and prejudice.\n"
