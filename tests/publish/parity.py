"""Exported folders of random models with our outputs, for comparison by any version of ``transformers``.

    python -m tests.publish.parity FOLDER       write them (with this project's environment)
    python tests/publish/parity.py FOLDER       compare (with torch, transformers and safetensors alone)

`make test-transformers` does both, for the versions in environments of their own.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

SIZES: dict[str, Any] = {
    "num_layers": 3, "hidden_size": 32, "num_heads": 2, "intermediate_size": 48, "embedding_size": 24,
    "generator_width": 0.5, "max_positions": 512, "dropout": 0.0, "attention_dropout": 0.0,
}  # fmt: skip
WIDE = {"generator_width": 1.0, "embedding_size": 32}  # nothing to project, and a generator of full size
BLOCKS: dict[str, dict[str, Any]] = {
    "electra": {"architecture": "electra"},
    "roformer": {"architecture": "electra", "positions": "rotary", "rotary_base": 20_000.0},
    "modern": {"architecture": "modern", "layer_norm_eps": 1e-5, "rotary_base": 20_000.0, "local_rotary_base": 5_000.0},
}
# the generator narrow or full, the three kinds of sharing and DeBERTa-v3's; a full one that shares all needs its width
SHARING: dict[str, dict[str, Any]] = {
    "narrow": {},
    "none": {"embedding_sharing": "none"},
    "full": WIDE,
    "all": {"embedding_sharing": "all", "generator_width": 1.0},
    "gradient_disentangled": {"embedding_sharing": "gradient_disentangled"},
}
LOCAL = {"local_attention": 16, "global_every": 2}
# `all` asks for a generator of the discriminator's shape: four times as wide inside, where it is not gated
for kind in ("electra", "roformer"):
    BLOCKS[kind]["intermediate_size"] = 128
CASES: dict[str, tuple[str, dict[str, Any]]] = {  # name: objective, settings of the model
    **{f"{name}-{kind}": ("electra", {**blocks, **changes})
       for name, blocks in BLOCKS.items() for kind, changes in SHARING.items()},
    **{f"{name}-bert": ("bert", blocks) for name, blocks in BLOCKS.items()},
    "modern-local": ("electra", {**BLOCKS["modern"], **LOCAL}),
}  # fmt: skip
LENGTHS, TOLERANCE = (16, 512), 1e-4
TEXTS = ["The robin sang in the old garden.", "A dog slept."]


def inputs(length: int, padded: bool) -> dict[str, Tensor]:
    """Two rows of random tokens in two segments, the second of half the length where padded."""
    tokens = torch.randint(5, 600, (2, length), generator=torch.Generator().manual_seed(length))
    mask = torch.ones(2, length, dtype=torch.long)
    if padded:
        mask[1, length // 2 :] = 0
    segments = (torch.arange(length) >= length // 3).long().expand(2, -1)
    return {"input_ids": tokens * mask, "attention_mask": mask, "token_type_ids": segments.contiguous()}


def settings_of_inputs() -> Iterator[tuple[str, int, bool]]:
    for length in LENGTHS:
        for padded in (False, True):
            yield f"{length}{'-padded' if padded else ''}", length, padded


# ---- this project's side -------------------------------------------------------------------------------------------


def build(case: tuple[str, dict[str, Any]]) -> tuple[Any, Any, Any]:
    """Settings and module of a case: random weights, norms and biases away from their start."""
    from electra.config import Method, Model
    from electra.objectives.base import build_objective

    objective, changes = case
    model, method = Model(**{**SIZES, **changes}), Method(objective=objective)
    module = build_objective(model, 600, 4, method).initialize(0.2, seed=1)
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=random))
    return model, method, module.eval()


@torch.no_grad()
def expected(module: Any) -> dict[str, Tensor]:
    """Our outputs by folder and inputs: hidden states, logits of the discriminator, logits of the generator."""
    found: dict[str, Tensor] = {}
    for case, length, padded in settings_of_inputs():
        given = inputs(length, padded)
        rows = (given["input_ids"], given["token_type_ids"], given["attention_mask"].bool())
        hidden = getattr(module, module.encoder_name)(*rows)
        found[f"{module.encoder_name}/hidden/{case}"] = hidden
        if module.encoder_name == "encoder":
            found[f"encoder/words/{case}"] = module.head(hidden)
            continue
        found[f"discriminator/replaced/{case}"] = module.discriminator_head(hidden)
        found[f"generator/words/{case}"] = module.generator_head(module.generator(*rows))
    return {name: tensor.contiguous().clone() for name, tensor in found.items()}


def write(case: tuple[str, dict[str, Any]], prepared: Any, root: Path) -> tuple[Any, Any]:
    """Write ``models/export`` of a case below ``root``, with what to expect beside it; the module and the paths."""
    from electra.common.paths import Paths
    from electra.config import Settings
    from electra.hub.export.pretrained import export_model
    from electra.model.pretrained import save_pretrained

    settings, paths = prepared.settings(), Paths(root)
    root.mkdir(parents=True)
    (root / "data").symlink_to(prepared.root / "data")
    model, method, module = build(case)
    weights = {key: parameter.detach() for key, parameter in module.named_parameters()}
    save_pretrained(paths.pretrained, weights, model, 600, paths.tokenizer, method)
    export_model(Settings(**{**dict(settings), "model": model}), paths)
    return module, paths


def write_all(target: Path) -> None:
    """Write every case, each to a folder of its name."""
    from electra.text.corpus.build import build_corpus
    from electra.text.shards.build import build_shards
    from electra.text.tokenizer.build import build_tokenizer
    from tests.workspace import Workspace

    (target / "text").mkdir(parents=True)
    prepared = Workspace(target / "text").write()
    for stage in (build_corpus, build_tokenizer, build_shards):
        stage(prepared.settings(), prepared.paths)
    for name, case in CASES.items():
        module, paths = write(case, prepared, target / "cases" / name)
        save_file(expected(module), paths.root / "expected.safetensors")
    write_finetuned(target / "finetuned")


def write_finetuned(root: Path) -> None:
    """Write the export of a fine-tuned model with byte-level BPE, with our ids of ``TEXTS`` beside it."""
    from electra.common.paths import Paths
    from electra.config import Finetune, Model
    from electra.finetune.features import Vocabulary
    from electra.finetune.model import TaskModel
    from electra.finetune.saved import save_model
    from electra.hub.finetuned import export_task
    from electra.model.encoder import Encoder
    from electra.model.shape import EncoderConfig
    from electra.tasks.catalogue import TASKS
    from electra.text.tokenizer.byte_level import train_byte_level

    paths, spec, random = Paths(root), TASKS["CoLA"], torch.Generator().manual_seed(1)
    tokenizer = train_byte_level(iter([TEXTS * 10]), size=300, min_frequency=1, lowercase=True)
    paths.tokenizer.mkdir(parents=True)
    tokenizer.save(str(paths.tokenizer / "tokenizer.json"))
    vocabulary = Vocabulary.load(paths)
    shape = EncoderConfig.discriminator(Model(**{**SIZES, **BLOCKS["electra"]}), vocabulary.size)
    run = paths.kept("CoLA-1")
    run.mkdir(parents=True)
    save_model(run, TaskModel(spec, Encoder(shape), random), spec, vocabulary, Finetune(learning_rate=1e-4))
    export_task(paths, "CoLA", out=root / "exported")
    (root / "ids.json").write_text(json.dumps([encoding.ids for encoding in tokenizer.encode_batch(TEXTS)]))


# ---- their side: nothing of this project ---------------------------------------------------------------------------


def model_of(folder: Path, kind: str, attention: str) -> Any:
    """A folder's model with every key matched; None where its class has no such attention."""
    try:
        model, loading = getattr(transformers, kind).from_pretrained(
            folder, attn_implementation=attention, output_loading_info=True
        )
    except ValueError as error:
        if attention == "sdpa" and "scaled_dot_product_attention" in str(error):
            return None
        raise
    complaints = [loading[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys") if loading[key]]
    assert not complaints, f"{folder}: {kind}: {complaints}"
    if kind.endswith("ForMaskedLM"):
        tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
        assert tied, f"{folder}: the output matrix would be trained apart from the word table"
    return model.eval()


@torch.no_grad()
def compare(export: Path, wanted: dict[str, Tensor], attentions: tuple[str, ...] = ("sdpa", "eager")) -> dict[str, Any]:
    """Largest difference of each folder to what is expected, by attention; None where a class lacks the attention.

    The bare encoder is compared by its states, classes with a head by their logits.
    """
    found: dict[str, Any] = {}
    for folder in sorted(path for path in export.iterdir() if path.is_dir()):
        kind = json.loads((folder / "config.json").read_text())["architectures"][0]
        source = "discriminator" if folder.name == "detector" else folder.name
        for attention in attentions:
            model, worst = model_of(folder, kind, attention), 0.0
            if model is None:
                found[f"{folder.name}, {attention}"] = None
                continue
            for case, length, padded in settings_of_inputs():
                given = inputs(length, padded)
                given = given if "ModernBert" not in kind else {k: v for k, v in given.items() if "type" not in k}
                outputs, real = model(**given), given["attention_mask"].bool()
                if kind.endswith("Model"):
                    pairs = [(outputs.last_hidden_state, wanted[f"{source}/hidden/{case}"])]
                elif kind.endswith("ForMaskedLM"):
                    pairs = [(outputs.logits, wanted[f"{source}/words/{case}"])]
                elif kind.endswith("ForTokenClassification"):
                    logits = wanted[f"discriminator/replaced/{case}"]
                    pairs = [(outputs.logits[..., 1] - outputs.logits[..., 0], logits)]
                    pairs.append((outputs.logits.softmax(-1)[..., 1], logits.sigmoid()))
                else:
                    pairs = [(outputs.logits, wanted[f"{source}/replaced/{case}"])]
                assert all(ours[real].abs().max() > 0.1 for _, ours in pairs), "nothing to compare"
                worst = max(worst, *(float((theirs - ours)[real].abs().max()) for theirs, ours in pairs))
            found[f"{folder.name}, {attention}"] = worst
    return found


@torch.no_grad()
def use(export: Path) -> dict[str, Any]:
    """Return the outputs of pipelines and mean pooling, called as users do."""
    main = export / ("discriminator" if (export / "discriminator").is_dir() else "encoder")
    words = export / "generator" if (export / "generator").is_dir() else main
    found: dict[str, Any] = {"fill-mask": transformers.pipeline("fill-mask", str(words))("The [MASK] sang.")}
    if (export / "detector").is_dir():
        found["token-classification"] = transformers.pipeline("token-classification", str(export / "detector"))(TEXTS)
    tokenizer = transformers.AutoTokenizer.from_pretrained(main)
    encoder = transformers.AutoModel.from_pretrained(main).eval()
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    weights = batch["attention_mask"][..., None].float()
    pooled = (encoder(**batch).last_hidden_state * weights).sum(1) / weights.sum(1)
    return {**found, "inputs": dict(batch), "pooled": pooled}


def main(target: Path) -> None:
    """Compare all cases in a folder, print the largest differences, and exit with 1 where one is too large."""
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    failed = 0
    for case in sorted((target / "cases").iterdir()):
        found = compare(case / "models/export", load_file(case / "expected.safetensors"))
        use(case / "models/export")
        wrong = [name for name, worst in found.items() if worst is not None and not worst < TOLERANCE]
        failed += len(wrong)
        values = ", ".join(f"{name} {'not there' if w is None else f'{w:.0e}'}" for name, w in found.items())
        print(f"{'FAILED ' if wrong else ''}{case.name}: {values}")
    tokenizer = transformers.AutoTokenizer.from_pretrained(target / "finetuned/exported")
    same_ids = tokenizer(TEXTS)["input_ids"] == json.loads((target / "finetuned/ids.json").read_text())
    failed += not same_ids
    print(f"{'' if same_ids else 'FAILED '}fine-tuned, byte-level BPE: {'the same' if same_ids else 'other'} ids")
    print(f"{failed} folders differ, in ids or by {TOLERANCE:g} or more" if failed else f"all within {TOLERANCE:g}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    # as a module it has the project around it
    write_all(Path(sys.argv[1])) if __spec__ is not None else main(Path(sys.argv[1]))
