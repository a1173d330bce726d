"""Reading tensor files: loaders of weights get finite floating-point numbers or a clear error."""

import math
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, is_tensor

from electra.common.errors import DataError

LARGEST = math.sqrt(torch.finfo(torch.float32).max)  # 1.8e19: the square of a larger weight overflows float32
BUFFERS = ("position_ids", "token_type_ids")  # integer buffers that older versions of transformers save with weights
FETCH_AGAIN = "get the weights again from where they came from, or make them again"

TensorFacts = tuple[str, tuple[int, ...]]  # type and shape


def read_tensors(path: Path, next_step: str = FETCH_AGAIN, buffers: Collection[str] = ()) -> dict[str, Tensor]:
    """Return the tensors of a ``.safetensors`` or ``.bin`` file, on the CPU; code in a ``.bin`` file is never run.

    Args:
        buffers: last parts of the names of tensors that may be of any type; they are not returned.

    Raises:
        DataError: the file is missing or damaged, or its tensors cannot be weights (:func:`check_tensors`).
    """
    if not path.is_file():
        raise DataError(f"there is no file {path.name}", where=str(path), next_step=next_step)
    with _readable(path, next_step):
        found = load_file(path) if path.suffix == ".safetensors" else _read_bin(path)
    tensors = {name: tensor for name, tensor in found.items() if name.rpartition(".")[2] not in buffers}
    check_tensors(tensors, str(path), next_step)
    return tensors


def check_tensors(tensors: Mapping[str, Tensor], where: str, next_step: str = FETCH_AGAIN) -> None:
    """Check that tensors can be weights, in one pass over the numbers and without a copy.

    Raises:
        DataError: a tensor is not of a floating type, or a number in it is not finite or above :data:`LARGEST`.
    """
    for name, tensor in tensors.items():
        require_floating(name, str(tensor.dtype).removeprefix("torch."), tensor.is_floating_point(), where, next_step)
        if not tensor.numel():
            continue
        values = tensor.detach()
        least, most = (values.float() if values.element_size() == 1 else values).aminmax()  # not implemented for 8 bits
        if not (-LARGEST <= least.item() and most.item() <= LARGEST):  # false for NaN
            found = "NaN" if math.isnan(most.item()) else f"{max(least.item(), most.item(), key=abs):g}"
            raise DataError(
                f"the weights cannot be used: {name} holds {found}, not a finite number of at most {LARGEST:.1e}",
                where=where,
                next_step=next_step,
            )


def require_floating(name: str, dtype: str, is_floating: bool, where: str, next_step: str = FETCH_AGAIN) -> None:
    """Raise a :class:`DataError` for a tensor of whole numbers, booleans or complex numbers."""
    if not is_floating:
        what = f"the weights cannot be used: {name} is of type {dtype}, not of a floating type"
        raise DataError(what, where=where, next_step=next_step)


def tensor_header(path: Path) -> dict[str, TensorFacts]:
    """Return type ("F32", "I64") and shape of each tensor of a ``.safetensors`` file without reading the tensors.

    Raises:
        DataError: the file is damaged or not a safetensors file.
    """
    with _readable(path, FETCH_AGAIN), safe_open(path, framework="pt") as opened:
        slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
        return {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}


def _read_bin(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file that ``torch.save`` wrote.

    Raises:
        ValueError: the file does not hold plain tensors by name, or would take more memory than its size.
    """
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size:
                raise ValueError("it is compressed, which torch.save does not do")
    state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        raise ValueError(f"it holds {type(state).__name__}, not tensors by name")
    tensors = {name: value for name, value in state.items() if is_tensor(value)}
    for name, tensor in tensors.items():
        is_plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
        if not is_plain or tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise ValueError(f"{name} is not stored as plain numbers")
    return tensors


@contextmanager
def _readable(path: Path, next_step: str) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # damaged files make the libraries raise errors of any class
        what = f"the weights cannot be read: {_reason(path, error)}"
        raise DataError(what, where=str(path), next_step=next_step) from None


def _reason(path: Path, error: Exception) -> str:
    if path.suffix == ".safetensors":
        with open(path, "rb") as file:
            start = file.read(4)
        is_pickle = start == b"PK\x03\x04" or start[:1] == b"\x80"
        return "this is a pickle, which can run code, and no safetensors file" if is_pickle else str(error)
    # torch's message advises to run the code in the file, so it is not passed on
    return str(error) if type(error) is ValueError else "it is damaged, or holds more than tensors"
