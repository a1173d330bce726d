"""Parsing JSON, YAML and Parquet that others wrote: whatever they hold, the result is a value or a message."""

import json
import os
import re
import reprlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from electra.common.errors import ConfigError, DataError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_SHORT = reprlib.Repr()  # aliases of YAML can make a value of any size
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 3, 60, 60


def parse_json(text: str | bytes, *, where: str, next_step: str | None = None, what: str = "") -> Any:
    """Parse a JSON text.

    Args:
        where: the file, with the line's number where the text is one line of it.
        what: begins the message, such as a task's name with a colon.

    Raises:
        DataError: it is not UTF-8, malformed, too deeply nested, or holds a number of thousands of digits.
    """
    try:
        # UTF-8 only: json itself would also take UTF-16, which no other reader of the same file does
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text
        return json.loads(decoded.rstrip())  # the end of a line is not its second line
    except json.JSONDecodeError as error:
        where = f"{where}:{error.lineno}" if error.lineno > 1 else where
        reason = f"{error.msg} at column {error.colno}"
    except RecursionError:
        reason = "it is nested too deeply"
    except UnicodeDecodeError as error:
        raise DataError(f"{what}not UTF-8 text: {error}", where=where, next_step=next_step) from None
    except ValueError as error:  # a number of thousands of digits
        reason = str(error)
    raise DataError(f"{what}not valid JSON: {reason}", where=where, next_step=next_step)


def is_text(text: str) -> bool:
    """True if a string can be written: JSON may hold half of a surrogate pair, ``"\\ud83d"``, which is none."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def parquet_errors(where: str) -> Iterator[None]:
    """Turn what pyarrow raises for a damaged file into a message; other errors pass through.

    Raises:
        DataError: the file is no Parquet file, is damaged, or holds text that is not UTF-8.
    """
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:
        raise DataError(f"not a readable parquet file: {error}", where=where) from error
    except OSError as error:
        # damaged pages come as an OSError without a number; a disk or a network gives one
        if type(error) is not OSError or error.errno is not None:
            raise
        raise DataError(f"not a readable parquet file: {error}", where=where) from error


def read_tokenizer(
    path: Path, next_step: str = "get the file again from where it came from, or make it again"
) -> "Tokenizer":
    """Return the tokenizer of a ``tokenizer.json``.

    Raises:
        DataError: the file is missing, damaged or no tokenizer.
    """
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic of the library is no Exception, and all its errors are of that class
        raise DataError(f"the tokenizer cannot be read: {error}", where=str(path), next_step=next_step) from None


def read_yaml(path: Path) -> Any:
    """The value in a YAML file; tags that make Python objects are refused.

    Raises:
        FileNotFoundError: there is no such file.
        ConfigError: it cannot be read, or is not YAML.
    """
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {os.strerror(error.errno or 0)}") from None
    except RecursionError:
        reason = "it is nested too deeply"
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a number of thousands of digits, a 13th month
        reason = str(error)
    raise ConfigError(f"{path} is not valid YAML: {reason}")


def quick_yaml(content: bytes) -> Any:
    """The value in a YAML text, ten times faster than :func:`read_yaml` where libyaml is there; plain values only.

    Raises:
        yaml.YAMLError, ValueError: it is not YAML.
    """
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(content)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def shown(value: Any) -> str:
    """A value in a message: a few words of it, however large it is."""
    return f"{_SHORT.repr(value):.80}"


_EXPONENT = re.compile(r"[-+]?\d+e[-+]?\d+")  # 1e-06, as DVC writes it, is a text in YAML 1.1


def flat(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of nested settings by the path of their key; a list of plain values is a leaf."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from flat(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for number, inner in enumerate(value):
            yield from flat(inner, f"{key}[{number}]")
    else:
        yield key, float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value
