"""Compiling ``cpu.cpp`` for the machine at hand, once: two seconds, kept beside the environment's other builds."""

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("cpu.cpp")
# All of -ffast-math but its blindness for NaN and its change of the process' rounding mode.
FLAGS = [
    *("-O3", "-march=native", "-fopenmp", "-fPIC", "-shared", "-std=c++17"),
    *("-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros", "-freciprocal-math"),
]
OFF = "ELECTRA_PLAIN_KERNELS"  # set: PyTorch's own operations, to compare with


@cache
def library() -> ctypes.CDLL | None:
    """The compiled loops; None where there is no compiler, with a warning, or where they are switched off."""
    if os.environ.get(OFF):
        return None
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        warnings.warn("there is no C++ compiler: CPU training runs on PyTorch's own, slower operations", stacklevel=2)
        return None
    try:
        # The loops share PyTorch's OpenMP threads: its runtime is in the process already, under the same name.
        return ctypes.CDLL(str(_compiled(compiler)))
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", None) or error
        warnings.warn(f"cpu.cpp does not compile, CPU training runs slower: {said}", stacklevel=2)
        return None


def _compiled(compiler: str) -> Path:
    """The shared library for this source, compiler and processor; processes that build it at once do not meet."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    facts = "\n".join([SOURCE.read_text(), *FLAGS, version, _processor()])
    file = _folder() / f"electra_kernels_{hashlib.sha256(facts.encode()).hexdigest()[:16]}.so"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
            built = Path(scratch) / file.name
            subprocess.run(
                [compiler, *FLAGS, str(SOURCE), "-o", str(built)], capture_output=True, text=True, check=True
            )
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
