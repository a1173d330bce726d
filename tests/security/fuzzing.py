"""Random bytes for the readers of external input, and the outcomes that are allowed.

A test tries a few examples, the same ones every time. With ELECTRA_FUZZ_SECONDS=600 it tries others for so long
(`make fuzz`).
"""

import json
import os
import secrets
import time
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from electra.common.errors import ElectraError

EXAMPLES = 25
SECONDS = float(os.environ.get("ELECTRA_FUZZ_SECONDS", "0"))
OPTIONS: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "phases": [Phase.generate, Phase.shrink],
    "suppress_health_check": list(HealthCheck),
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


def fuzz(strategy: st.SearchStrategy[Any], check: Callable[[Any], None], examples: int = EXAMPLES) -> None:
    """Call ``check`` with examples of the strategy; the first that fails is made as small as possible and shown."""

    end, has_failed = time.monotonic() + SECONDS, False

    def run(example: Any) -> None:
        nonlocal has_failed
        if SECONDS and not has_failed and time.monotonic() > end:
            return  # the last round of a slow reader ends early, but not the search for the smallest failure
        try:
            check(example)
        except BaseException:
            has_failed = True
            raise

    if not SECONDS:
        settings(max_examples=examples, derandomize=True, **OPTIONS)(given(strategy)(run))()
        return
    while time.monotonic() < end:
        seed(secrets.randbits(64))(settings(max_examples=500, **OPTIONS)(given(strategy)(run)))()


def only_documented(read: Callable[[], Any]) -> None:
    """Call a reader; it may raise the project's errors with a message and an exit code, and nothing else."""
    try:
        read()
    except ElectraError as error:
        assert str(error) and error.exit_code in (2, 3, 5)


def mutated(valid: bytes) -> st.SearchStrategy[bytes]:
    """A valid file with bytes changed, removed or put in, or anything at all."""

    def change(edits: list[tuple[int, int, bytes]]) -> bytes:
        data = bytearray(valid)
        for at, length, new in edits:
            start = at % (len(data) + 1)
            data[start : start + length] = new
        return bytes(data)

    edit = st.tuples(st.integers(0, 10**6), st.integers(0, 20), st.binary(max_size=12))
    return st.lists(edit, min_size=1, max_size=4).map(change) | st.binary(max_size=200)


def changed_values(valid: Any) -> st.SearchStrategy[Any]:
    """A JSON value with one or two of its parts replaced by another value, removed, or put in twice."""
    places = list(_places(valid))

    def change(edits: list[tuple[int, int, Any]]) -> Any:
        value = json.loads(json.dumps(valid))
        for number, what, new in edits:
            path = places[number % len(places)]
            try:
                holder = value
                for key in path[:-1]:
                    holder = holder[key]
                if not path:
                    value = new
                elif what == 0:
                    del holder[path[-1]]
                elif what == 1 and isinstance(holder, list):
                    holder.append(holder[path[-1]])
                else:
                    holder[path[-1]] = new
            except (KeyError, IndexError, TypeError):
                continue  # an edit before has removed the place
        return value

    edit = st.tuples(st.integers(0, 10**6), st.integers(0, 3), JSON | st.sampled_from([-1, 0, 1, 2**40, 0.5, "", "x"]))
    return st.lists(edit, min_size=1, max_size=2).map(change)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Any:
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from _places(part, (*path, key))


def json_bytes(valid: Any) -> st.SearchStrategy[bytes]:
    """A JSON file that is nearly valid: other values at its places, or other bytes."""
    written = changed_values(valid).map(lambda value: json.dumps(value).encode())
    return written | mutated(json.dumps(valid).encode())
