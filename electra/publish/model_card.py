"""The README.md of an exported model: what it is, what it was trained on, how good it is, how to load it."""

from electra.common.paths import Paths
from electra.config import Settings
from electra.report.build import table
from electra.report.content import METHODS, count, data_in_words, pretraining, score_card
from electra.report.facts import Facts, gather, leakage, plateaus, score_remarks


def model_card(settings: Settings, paths: Paths, *, is_modern: bool = False, main: str = "discriminator") -> str:
    """Markdown with the front matter of the Hugging Face hub.

    Works before the tasks are scored: then the card says so. The licence is left to the publisher, since it depends on
    the training text.

    Args:
        is_modern: the folders are ModernBERT's, not ELECTRA's.
        main: folder of the encoder to fine-tune.
    """
    facts = gather(settings, paths)
    parts = [
        _front_matter(facts),
        f"# ELECTRA, profile {settings.profile}\n",
        f"Pre-trained by {METHODS[settings.pretrain.objective]}.\n",
        data_in_words(facts) + "\n",
        _sources(facts),
        _shape(facts),
        table(pretraining(facts)) if facts.pretrain else "",
        _listed(plateaus(facts)),
        _scores(facts),
        _listed(score_remarks(facts)),
        _how_to_load_modern(main) if is_modern else _how_to_load(),
        _limits(facts),
    ]
    return "\n".join(part for part in parts if part)


def _scores(facts: Facts) -> str:
    if facts.scores and facts.scores["tasks"]:
        return table(score_card(facts))
    return f"## Scores\n\n{'No tasks were asked for.' if facts.scores else 'Not fine-tuned yet.'}\n"


def _listed(lines: list[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)


def _front_matter(facts: Facts) -> str:
    datasets = [source.dataset for source in facts.settings.corpus.sources if source.kind == "hub"]
    lines = ["---", "# license: set it to fit the training text before publishing", "library_name: transformers"]
    lines += ["tags:", "- electra", "- replaced-token-detection"]
    if any(source.kind == "embedded" for source in facts.settings.corpus.sources):
        lines.append("- synthetic-data")
    if datasets:
        lines += ["datasets:", *(f"- {name}" for name in sorted(datasets))]
    return "\n".join([*lines, "---"]) + "\n"


def _sources(facts: Facts) -> str:
    """Licences of the training text, and what became of evaluation text in it; empty where nothing is known of both."""
    manifest = facts.manifests.get("corpus", {})
    licences = [f"- {name}: {f['license']}" for name, f in manifest.get("sources", {}).items() if f.get("license")]
    parts = ["## Licences of the training text", "", *licences, ""] if licences else []
    leaks = leakage(facts)
    return "\n".join([*parts, table(leaks) if leaks.rows else ""])


def _shape(facts: Facts) -> str:
    model, pretrain, shards = facts.settings.model, facts.settings.pretrain, facts.settings.shards
    tokenizer = facts.manifests.get("tokenizer", {})
    vocabulary = tokenizer.get("vocab_size", facts.settings.tokenizer.vocab_size)
    return "\n".join(
        [
            "## Size and training",
            "",
            f"- discriminator: {model.num_layers} layers, width {model.hidden_size}, {model.num_heads} heads, "
            f"embeddings of {model.embedding_size}",
            f"- generator: {model.generator_width:g} of the width, {model.generator_depth:g} of the depth",
            f"- vocabulary: {count(vocabulary)} wordpieces, {'lowercased' if _lowercase(facts) else 'cased'}",
            f"- training: {count(pretrain.num_steps)} steps of {count(pretrain.batch_size)} examples of up to "
            f"{shards.max_length} tokens, learning rate {pretrain.learning_rate:g}",
            "",
        ]
    )


def _lowercase(facts: Facts) -> bool:
    return facts.manifests.get("tokenizer", {}).get("lowercase", facts.settings.tokenizer.lowercase)


def _how_to_load() -> str:
    return """## How to load

```python
from transformers import AutoTokenizer, ElectraForPreTraining, ElectraModel

tokenizer = AutoTokenizer.from_pretrained("path/to/discriminator")
encoder = ElectraModel.from_pretrained("path/to/discriminator")  # the encoder to fine-tune
detector = ElectraForPreTraining.from_pretrained("path/to/discriminator")  # says which tokens were replaced
```

The generator loads with `ElectraForMaskedLM.from_pretrained("path/to/generator")`.
"""


def _how_to_load_modern(main: str) -> str:
    """The same for folders of ModernBERT's classes; an encoder that is a masked language model is its own folder."""
    lines = [
        "## How to load",
        "",
        "```python",
        "from transformers import AutoModel, AutoTokenizer, pipeline",
        "",
        f'tokenizer = AutoTokenizer.from_pretrained("path/to/{main}")',
        f'encoder = AutoModel.from_pretrained("path/to/{main}")  # ModernBertModel: the encoder to fine-tune',
    ]
    if main == "discriminator":
        lines.append('pipeline("token-classification", "path/to/detector")  # says which tokens were replaced')
        lines.append('pipeline("fill-mask", "path/to/generator")  # where one was trained')
    else:
        lines.append(f'pipeline("fill-mask", "path/to/{main}")')
    return "\n".join([*lines, "```", ""])


def _limits(facts: Facts) -> str:
    if all(source.kind == "embedded" for source in facts.settings.corpus.sources):
        limit = "Trained on generated text of a small made-up world: a test of the pipeline, not a model of English."
    else:
        limit = "The model repeats what stands in its training text, errors and prejudice included."
    return f"## Limits\n\n{limit}\n"
