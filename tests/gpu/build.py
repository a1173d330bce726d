"""Build the pretended device for the CUDA build of PyTorch that runs this: ``python -m tests.gpu.build FOLDER``.

``device/`` stands in for the CUDA runtime, driver and cuBLAS; NCCL's functions are written here from the symbols that
this PyTorch wants. Needs g++, nm and CUDA's headers, which come with PyTorch's wheels and ``nvidia-cuda-cccl``.
"""

import re
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parent / "device"
COLLECTIVES = re.compile(r"nccl(AllReduce|AllGather|Broadcast|Bcast|Reduce|ReduceScatter|Send|Recv|Alltoall\w*)$", re.I)
WRITES_A_NUMBER = {"ncclGetVersion": 22907}  # functions whose first argument is an int*
WRITES_SECOND = {"ncclCommCount": 1, "ncclCommCuDevice": 0, "ncclCommUserRank": 0, "ncclCommGetAsyncError": 0}
NEW_COMMUNICATOR = {"ncclCommInitRank", "ncclCommInitRankConfig", "ncclCommInitRankScalable"}
WORDS = {"ncclGetErrorString", "ncclGetLastError"}


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a process on the pretended device that :func:`build` has written to ``folder``."""
    return {
        "LD_PRELOAD": str(folder / "libpretended.so"),
        "LD_LIBRARY_PATH": str(folder / "lib"),
        "PYTORCH_NVML_BASED_CUDA_CHECK": "0",
        "TORCH_CUDNN_SDPA_DEPRIORITIZED": "1",  # cuDNN's kernels are not pretended
    }


def build(folder: Path) -> dict[str, str]:
    """Compile into ``folder``; returns the environment for processes on the device."""
    import torch

    (folder / "lib").mkdir(parents=True, exist_ok=True)
    package = Path(torch.__file__).parent
    (folder / "nccl.cpp").write_text(_nccl(package))
    site = package.parent
    found = {header.parent for header in site.glob("nvidia/**/include/*.h")}
    found |= {header.parents[1] for header in site.glob("nvidia/**/nv/target")}
    includes = [*sorted(map(str, found)), str(site / "triton/backends/nvidia/include"), str(SOURCE)]
    flags = ["-O1", "-fPIC", "-shared", "-std=c++17", "-w", *(f"-I{include}" for include in includes)]
    runtime = [SOURCE / "runtime.cpp", SOURCE / "blas.cpp", folder / "nccl.cpp"]
    for sources, target in ((runtime, "libpretended.so"), ([SOURCE / "driver.cpp"], "lib/libcuda.so.1")):
        subprocess.run(["g++", *flags, *map(str, sources), "-o", str(folder / target), "-ldl"], check=True)
    link = folder / "lib/libcuda.so"
    link.unlink(missing_ok=True)
    link.symlink_to("libcuda.so.1")
    return environment(folder)


def _nccl(package: Path) -> str:
    """C++ of every NCCL function that PyTorch's libraries leave open."""
    libraries = [str(package / "lib" / name) for name in ("libtorch_cuda.so", "libtorch_python.so")]
    command = ["nm", "-D", "--undefined-only", *libraries]
    symbols = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = ["#include <cstdlib>", '#include "record.h"', "static void* communicator() { return calloc(1, 64); }"]
    for name in sorted(set(re.findall(r"\bnccl[A-Za-z0-9]+", symbols))):
        body = "return 0;"
        arguments = ""
        if name in WORDS:
            lines.append(f'extern "C" const char* {name}(void*) {{ return "pretended"; }}')
            continue
        if name in WRITES_A_NUMBER:
            arguments, body = "int* value", f"*value = {WRITES_A_NUMBER[name]}; return 0;"
        elif name in WRITES_SECOND:
            arguments, body = "void*, int* value", f"*value = {WRITES_SECOND[name]}; return 0;"
        elif name == "ncclCommSplit":
            arguments, body = "void*, int, int, void** made, void*", "*made = communicator(); return 0;"
        elif name in NEW_COMMUNICATOR:
            arguments, body = "void** made", "*made = communicator(); return 0;"  # the others are not looked at
        elif COLLECTIVES.match(name):
            body = f'pretended_launch("{name}"); return 0;'
        lines.append(f'extern "C" int {name}({arguments}) {{ {body} }}')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for variable, value in build(Path(sys.argv[1]).resolve()).items():
        print(f"export {variable}={value}")
