"""The processor's speed in bf16. Imports nothing slow: `electra check` needs it."""

from pathlib import Path

SLOW_BF16 = (
    "cluster.precision is bf16, which this processor computes more slowly than fp32, up to 40 times\n"
    "  next:  set cluster.precision to auto"
)


def is_bf16_faster(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether this CPU multiplies matrices faster in bf16 than in fp32.

    True with AMX. AVX-512's bf16 instructions are twice as fast as fp32's on AMD's processors; on an Intel Xeon without
    AMX they were half as fast (128 against 74 GFLOP/s for 1,024 x 128 x 512; 162 against 83 for wider matrices).
    Other CPUs emulate bf16.
    """
    try:
        text = cpuinfo.read_text()
    except OSError:
        return False
    return "amx_bf16" in text or ("avx512_bf16" in text and "AuthenticAMD" in text)
