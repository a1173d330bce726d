"""Compilation of ``cpu.cpp``, once per machine, and registration of its loops as operators of PyTorch.

The file is compiled in a few seconds and kept beside the environment's other builds.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("cpu.cpp")
# All of -ffast-math but its blindness for NaN and its change of the process' rounding mode.
FLAGS = [
    *("-O3", "-march=native", "-fopenmp", "-fPIC", "-shared", "-std=c++20"),
    *("-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros", "-freciprocal-math"),
]
TORCH = Path(torch.__file__).parent
LIBRARIES = [f"-I{TORCH / 'include'}", f"-L{TORCH / 'lib'}", "-ltorch_cpu"]
OPERATORS = (
    *("add_norm_forward", "add_norm_backward", "residual_norm_forward", "residual_norm_backward"),
    *("gelu_forward", "gelu_backward", "geglu_forward", "geglu_backward"),
    *("split_heads", "merge_heads", "rotate", "softmax_forward", "softmax_backward"),
    *("vocabulary_forward", "vocabulary_backward"),
)
OFF = "ELECTRA_PLAIN_KERNELS"  # set: PyTorch's own operations, to compare with


@cache
def has_operators() -> bool:
    """Return whether ``torch.ops.electra`` has the loops of ``cpu.cpp``; compiles them at the first call.

    False where there is no compiler, with a warning, or where they are switched off.
    """
    return not os.environ.get(OFF) and _load()


@cache
def _load() -> bool:
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        warnings.warn("there is no C++ compiler: CPU training runs on PyTorch's own, slower operations", stacklevel=2)
        return False
    try:
        # The loops share PyTorch's OpenMP threads: its runtime is in the process already, under the same name.
        torch.ops.load_library(str(_compiled(compiler)))
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or error
        warnings.warn(f"cpu.cpp does not compile, CPU training runs slower: {said}", stacklevel=2)
        return False
    for name in OPERATORS:  # on tensors without bytes (electra/cluster/estimate/memory.py) nothing is written
        torch.library.register_fake(f"electra::{name}", lambda *_: None)
    return True


def _compiled(compiler: str) -> Path:
    """The shared library for this source, compiler, processor and PyTorch; several processes may build it at once."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    facts = "\n".join([SOURCE.read_text(), *FLAGS, version, torch.__version__, _processor()])
    file = _folder() / f"electra_kernels_{hashlib.sha256(facts.encode()).hexdigest()[:16]}.so"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
            built = Path(scratch) / file.name
            command = [compiler, *FLAGS, str(SOURCE), *LIBRARIES, "-o", str(built)]
            subprocess.run(command, capture_output=True, text=True, check=True)
            os.replace(built, file)
    return file


def _folder() -> Path:
    beside = Path(sys.prefix)
    return (beside if os.access(beside, os.W_OK) else Path.home() / ".cache") / "electra_kernels"


def _processor() -> str:
    """Description of the processor, which ``-march=native`` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return sys.platform
    return "\n".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))
