"""YAML as text: in block style, with strings quoted that other readers would take for other values."""

import io
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString
from yaml import ScalarNode
from yaml.resolver import Resolver

from electra.config import SENTENCES

_RESOLVER = Resolver()


def yaml_text(values: dict[str, Any]) -> str:
    """Return YAML in block style, as DVC writes it, so that `dvc exp run -S` changes single lines."""
    text = io.StringIO()
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.dump(_quoted(values), text)
    return text.getvalue()


def with_profile(params: str, profile: str, tasks: list[str]) -> str:
    """Return the text of ``params.yaml`` with the new profile and its tasks, and with its comments."""
    round_trip = YAML()  # keeps comments; creates only plain values
    round_trip.preserve_quotes = True
    values = round_trip.load(params)
    values["profile"] = _quoted(profile)
    if "share_cores" in values.get("cluster", {}):
        values["cluster"]["share_cores"] = False  # only useful for runs of minutes, as with the default profile
    cells = values["cells"]
    for key, wanted in with_tasks(cells, tasks).items():
        if list(cells.get(key) or []) != wanted:
            cells[key] = CommentedSeq(_quoted(wanted))
            cells[key].fa.set_flow_style()  # ruamel would write an empty list in block style at column 0
    text = io.StringIO()
    round_trip.dump(values, text)
    return text.getvalue()


def with_tasks(cells: Mapping[str, Any], tasks: list[str]) -> dict[str, list[str]]:
    """Return the keys of ``cells`` that name tasks, with these tasks and without those of another profile."""
    of_the_text = [kind for kind in cells.get("embeddings") or [] if kind == SENTENCES]
    return {"tasks": tasks, "intermediate": [], "from_intermediate": [], "embeddings": of_the_text}


def _quoted(value: Any) -> Any:
    """Return the value with quotes around strings that YAML 1.1, the version of the settings, reads as other types."""
    if isinstance(value, dict):
        return {_quoted(key): _quoted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_quoted(item) for item in value]
    if isinstance(value, str) and _RESOLVER.resolve(ScalarNode, value, (True, False)) != "tag:yaml.org,2002:str":
        return DoubleQuotedScalarString(value)
    return value
