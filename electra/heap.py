"""What the C library's allocator does with memory that was freed, on Linux with glibc; elsewhere nothing is changed."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # <malloc.h>
_GIVE_BACK = 2**20  # bytes


def keep_freed_memory() -> None:
    """Keep it for the next step, which asks for the same sizes again.

    By default large blocks go back to the system as soon as they are freed, and every page of the next one is zeroed
    and mapped anew: half a million page faults in ten steps of ELECTRA-Small.
    """
    _set(_M_MMAP_THRESHOLD, 2**30)
    _set(_M_TRIM_THRESHOLD, 2**31 - 1)
    _set(_M_TOP_PAD, 2**26)


def give_back_freed_memory() -> None:
    """Give large blocks back at once: where memory is short, holes in the heap would take more than is saved."""
    _set(_M_MMAP_THRESHOLD, _GIVE_BACK)
    _set(_M_TRIM_THRESHOLD, _GIVE_BACK)
    _set(_M_TOP_PAD, 0)


def _set(option: int, value: int) -> None:
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):
        mallopt(option, value)
