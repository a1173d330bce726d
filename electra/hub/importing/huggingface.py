"""Convert folders of ``transformers`` to the project's format: the inverse of electra/hub/export.

ELECTRA is read here, RoFormer and ModernBERT in roformer.py and modernbert.py.
"""

from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, NonNegativeFloat, PositiveInt
from tokenizers import Tokenizer

from electra.common.artifacts import read_facts, sha256
from electra.common.errors import ConfigError, DataError
from electra.common.hub import local_folder
from electra.common.parsing import read_tokenizer
from electra.common.subwords import kind_of
from electra.common.tensors import BUFFERS, FETCH_AGAIN, read_tensors
from electra.config.text import SPECIAL_TOKENS
from electra.hub.importing.modernbert import modernbert_half, restore_segments
from electra.hub.importing.roformer import electra_tensors
from electra.hub.importing.weights import (
    Half,
    Tensors,
    check_target,
    differing_embeddings,
    electra_of_pair,
    fitting_tensors,
    language_model_of,
    model_of_pair,
    tokenizer_files,
    write_pretrained,
)
from electra.model.shape import EncoderConfig
from electra.text.tokenizer.wordpiece import bert_normalizer, make_tokenizer, normalizer_facts, read_vocab_file

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
TOKENIZER = ("vocab.txt", "tokenizer.json", "tokenizer_config.json")
OWN_PARTS = "own_parts.safetensors"  # beside the weights: parts that their class of transformers cannot hold
FILES = ("config.json", *WEIGHTS, OWN_PARTS, *TOKENIZER)
SIZES = {  # names in config.json -> names in EncoderConfig
    "vocab_size": "vocab_size",
    "embedding_size": "embedding_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_layers",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "num_segments",
}
ROPE = dict[str, dict[str, Any] | float | str | None]


class ConfigFacts(BaseModel):
    """Types of the values that are read from a ``config.json``; missing values keep their defaults."""

    model_type: str
    initializer_range: NonNegativeFloat = 0.02
    vocab_size: PositiveInt = 1
    embedding_size: PositiveInt = 1
    hidden_size: PositiveInt = 1
    num_hidden_layers: PositiveInt = 1
    num_attention_heads: PositiveInt = 1
    intermediate_size: PositiveInt = 1
    max_position_embeddings: PositiveInt = 1
    type_vocab_size: PositiveInt = 1
    hidden_act: str = ""
    position_embedding_type: str = ""
    tie_word_embeddings: bool = True
    hidden_dropout_prob: NonNegativeFloat = 0.0
    attention_probs_dropout_prob: NonNegativeFloat = 0.0
    layer_norm_eps: NonNegativeFloat = 0.0
    rotary_value: bool = False
    rotary_base: NonNegativeFloat = 10_000.0
    hidden_activation: str = ""
    embedding_dropout: NonNegativeFloat = 0.0
    attention_dropout: NonNegativeFloat = 0.0
    norm_eps: NonNegativeFloat = 0.0
    rope_parameters: ROPE | None = None
    global_rope_theta: NonNegativeFloat = 0.0
    local_rope_theta: NonNegativeFloat | None = None
    layer_types: list[str] | None = None
    global_attn_every_n_layers: PositiveInt = 1
    local_attention: PositiveInt = 1


class TokenizerFacts(BaseModel):
    """Types of the values that are read from a ``tokenizer_config.json``."""

    do_lower_case: bool = True
    tokenize_chinese_chars: bool = True
    strip_accents: bool | None = None


def import_huggingface(
    discriminator: Path,
    generator: Path | None,
    target: Path,
    revision: str | None = None,
    generator_revision: str | None = None,
    as_language_model: bool = False,
) -> None:
    """Write ``target``, a folder like ``models/pretrained`` with the tokenizer in ``tokenizer/``.

    Without a generator, the generator starts from random weights; so does the discriminator's head if the folder has
    none (a bare ``ElectraModel`` or ``ModernBertModel``, a masked language model, or a fine-tuned model). Weights are
    read from safetensors, or from a ``.bin`` file with ``weights_only``: no code of a folder is run. Importing what
    ``electra export`` wrote restores the same bits if the folder has its ``own_parts.safetensors``. Without this file
    RoFormer has no discriminator head, and a table that was folded with its projection for ModernBERT is as wide as the
    layers, with the same outputs.

    Args:
        discriminator: a folder, or ``owner/name`` on the Hugging Face hub; also gives the tokenizer.
        generator: a folder or hub name, from the same pre-training run.
        target: the folder to write; replaces an earlier import.
        revision: full commit of the discriminator on the hub.
        generator_revision: full commit of the generator on the hub.
        as_language_model: ``discriminator`` is a masked language model, written as one of the method ``bert``.

    Raises:
        ConfigError: there is no such folder, or the two do not belong together (the message names what differs).
        DataError: files are missing, damaged or contradict each other.
        InfrastructureError: the hub cannot be reached.
    """
    check_target(target, discriminator, generator)
    folder = local_folder(discriminator, revision, FILES)
    generator_folder = None if generator is None else local_folder(generator, generator_revision, FILES)
    with fitting_tensors(folder):
        ours, facts = _half(folder), read_facts(folder / "config.json", ConfigFacts, FETCH_AGAIN)
        theirs = None if generator_folder is None else _half(generator_folder)
        model = model_of_pair(ours, theirs, facts.get("initializer_range", 0.02))
    vocabulary, tokenizer, is_wordpiece = _tokenizer(folder, model.max_positions)
    if ours.shape.is_modern and is_wordpiece:
        tokenizer = restore_segments(tokenizer)
    # tables of models with other tokenizers are often padded to a round number of rows
    if len(vocabulary) > ours.shape.vocab_size or (is_wordpiece and len(vocabulary) != ours.shape.vocab_size):
        raise DataError(
            f"the tokenizer has {len(vocabulary)} entries, the word table {ours.shape.vocab_size} rows",
            where=str(folder),
        )
    with fitting_tensors(folder):
        mask_id = vocabulary.index("[MASK]")
        objective = (language_model_of(ours, model, mask_id) if as_language_model
                     else electra_of_pair(ours, theirs, model, mask_id))  # fmt: skip
    if theirs is not None and model.embedding_sharing == "embeddings":
        _warn_of_differences(ours, theirs)
    origin = {"discriminator": _origin(discriminator, folder, revision)}
    if generator is not None and generator_folder is not None:
        origin["generator"] = _origin(generator, generator_folder, generator_revision)
    write_pretrained(target, objective, model, ours.shape.vocab_size, tokenizer, imported_from=origin)
    print(f"import-huggingface: {target}, {len(vocabulary):,} entries, {ours.shape.num_layers} layers")
    if not is_wordpiece:
        print(
            "import: its tokenizer is byte-level BPE: to go on with it, set tokenizer.vocab_file: "
            f"{target}/tokenizer/tokenizer.json and pretrain.initialize_from: {target}; or carry the weights over to a "
            f"vocabulary of your text: electra resize {target} data/tokenizer/vocab.txt NEW"
        )


def _half(folder: Path) -> Half:
    """Return weights and shape; checks that the sizes in config.json match the tensors."""
    if not (folder / "config.json").is_file():
        raise DataError("there is no config.json", where=str(folder), next_step="name a folder transformers can load")
    facts = read_facts(folder / "config.json", ConfigFacts, FETCH_AGAIN)
    if facts.get("model_type") == "modernbert":
        return modernbert_half(facts, _read_weights(folder), str(folder))
    if facts.get("model_type") not in ("electra", "roformer"):
        raise ConfigError(
            f"this is a model of type {facts.get('model_type')!r}, not electra, roformer or modernbert",
            where=str(folder),
        )
    activation, positions = facts.get("hidden_act", "gelu"), facts.get("position_embedding_type", "absolute")
    if (activation, positions) != ("gelu", "absolute"):
        raise ConfigError(
            f"hidden_act {activation} with {positions} positions is not supported, only gelu with absolute ones",
            where=str(folder / "config.json"),
        )
    tensors, rotary = _read_weights(folder), dict[str, Any]()
    if facts["model_type"] == "roformer":
        tensors, rotary = electra_tensors(facts, tensors)
    sizes = {**tensors.sizes(), **rotary}
    said = {ours: facts[theirs] for theirs, ours in SIZES.items() if theirs in facts}
    if wrong := [
        f"{name} {said[name]} but the tensors have {sizes.get(name, 'none')}"
        for name in said
        if said[name] != sizes.get(name)
    ]:
        raise DataError(f"config.json says {'; '.join(wrong)}", where=str(folder), next_step=FETCH_AGAIN)
    table = tensors.take("electra.embeddings.word_embeddings.weight")
    output = tensors.by_name.get("generator_lm_head.weight", table)
    if not facts.get("tie_word_embeddings", True) and not torch.equal(output, table):
        raise DataError("the generator's output matrix must be its word table", where=str(folder))
    shape = EncoderConfig(
        **sizes,
        num_heads=facts.get("num_attention_heads", 4),  # defaults of transformers' ElectraConfig
        dropout=facts.get("hidden_dropout_prob", 0.1),
        attention_dropout=facts.get("attention_probs_dropout_prob", 0.1),
        layer_norm_eps=facts.get("layer_norm_eps", 1e-12),
    )
    return Half(tensors, shape)


def _read_weights(folder: Path) -> Tensors:
    """Return all tensors as float32 on the CPU, named as in ``ElectraForPreTraining`` and ``ElectraForMaskedLM``."""
    path = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if path is None:
        raise DataError(f"there is neither {' nor '.join(WEIGHTS)}", where=str(folder))
    next_step = "get the model as safetensors" if path.suffix != ".safetensors" else FETCH_AGAIN
    own_parts = read_tensors(folder / OWN_PARTS, FETCH_AGAIN) if (folder / OWN_PARTS).is_file() else {}
    state = read_tensors(path, next_step, BUFFERS)
    if "embeddings.tok_embeddings.weight" in state:  # a plain ModernBertModel
        state = {f"model.{name}": value for name, value in state.items()}
    bare = any(name.startswith("encoder.layer.") for name in state)  # a plain ElectraModel or RoFormerModel
    tensors = {f"electra.{name}" if bare else name: value.float() for name, value in state.items()}
    return Tensors(tensors | {name: value.float() for name, value in own_parts.items()}, str(folder))


def _tokenizer(folder: Path, max_length: int) -> tuple[list[str], dict[str, str], bool]:
    """Return vocabulary, tokenizer files (missing ones are generated), and whether the tokenizer is WordPiece."""
    is_wordpiece = True
    vocab_file, finished = folder / "vocab.txt", folder / "tokenizer.json"
    given = folder / "tokenizer_config.json"
    settings = read_facts(given, TokenizerFacts, FETCH_AGAIN) if given.is_file() else {}
    if finished.is_file():
        tokenizer = read_tokenizer(finished, FETCH_AGAIN)
        kind = type(tokenizer.model).__name__
        is_wordpiece = kind == "WordPiece"
        if kind_of(tokenizer) not in ("wordpiece", "bpe"):
            raise ConfigError(
                f"the tokenizer is {kind}; only WordPiece and byte-level BPE (ModernBERT, Ettin) are supported",
                where=str(finished),
            )
        vocabulary = _entries(tokenizer, finished, padded_with_zeros=is_wordpiece)
        if vocab_file.is_file() and read_vocab_file(vocab_file) != vocabulary:
            raise DataError("vocab.txt and tokenizer.json hold different vocabularies", where=str(folder))
    elif vocab_file.is_file():
        vocabulary = read_vocab_file(vocab_file)
        tokenizer = make_tokenizer(vocabulary, lowercase=_lowercases(settings))
        tokenizer.normalizer = bert_normalizer(
            handle_chinese_chars=settings.get("tokenize_chinese_chars", True),
            strip_accents=settings.get("strip_accents"),
            lowercase=_lowercases(settings),
        )
    else:
        raise DataError("there is neither tokenizer.json nor vocab.txt", where=str(folder))
    lowercase = normalizer_facts(tokenizer).get("lowercase", _lowercases(settings))
    files = tokenizer_files(tokenizer, vocabulary, lowercase=lowercase, max_length=max_length)
    for name in TOKENIZER:
        if (folder / name).is_file():
            files[name] = (folder / name).read_bytes().decode()
    return vocabulary, files, is_wordpiece


def _lowercases(settings: dict[str, Any]) -> bool:
    return settings.get("do_lower_case", True)  # default of transformers' ElectraTokenizer


def _entries(tokenizer: Tokenizer, where: Path, *, padded_with_zeros: bool) -> list[str]:
    """Return the vocabulary in the order of its ids, which must be contiguous from 0."""
    ids = tokenizer.get_vocab(with_added_tokens=True)
    entries = sorted(ids, key=ids.__getitem__)
    if [ids[entry] for entry in entries] != list(range(len(entries))):
        raise DataError("the ids of the vocabulary are not 0, 1, 2, ...", where=str(where))
    if missing := [token for token in SPECIAL_TOKENS if token not in ids]:
        raise DataError(f"the vocabulary lacks {', '.join(missing)}", where=str(where))
    if padded_with_zeros and entries[0] != "[PAD]":
        raise DataError(f"the id 0 is {entries[0]!r}, it must be [PAD]: examples are padded with it", where=str(where))
    return entries


def _warn_of_differences(discriminator: Half, generator: Half) -> None:
    if names := differing_embeddings(discriminator, generator):
        print(
            f"import: warning: {', '.join(names)} differ between discriminator and generator; "
            "both get the discriminator's, so the generator will predict worse than it did"
        )


def _origin(source: Path, folder: Path, revision: str | None) -> dict[str, str]:
    """Return the manifest entry of one half: a hub repository by name and commit, a folder by its weights' checksum."""
    path = next(folder / name for name in WEIGHTS if (folder / name).is_file())
    named = {"name": source.name} if source.is_dir() else {"repository": str(source), "revision": str(revision)}
    return {**named, "weights": path.name, "sha256": sha256(path)}
