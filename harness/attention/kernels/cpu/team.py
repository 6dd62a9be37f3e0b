"""The threads that torch computes with, lent to compiled code.

A second pool beside torch's own would fight with it for the same cores: the threads of the one spin
for a while after each piece of work, where the other's should run. So compiled code is started by
the OpenMP library that torch itself brought and loaded.
"""

import ctypes
from array import array
from functools import cache
from pathlib import Path
from typing import Any

import torch

_ALONE = 2**15  # numbers to read; below, waking other threads costs more than they save


def available() -> bool:
    """Whether compiled code gets as many threads here as torch itself uses."""
    return torch.get_num_threads() == 1 or _parallel() is not None


def run(function: int, task: "array[int]", jobs: int, numbers: int) -> None:
    """Call the C function at address `function`, `void (int64_t *)`, with `task` on several threads at
    once; returns when all have. The function hands out its `jobs` itself, counting in the task. numbers: how many it reads.
    The interpreter is free meanwhile."""
    threads = min(torch.get_num_threads(), jobs) if numbers > _ALONE else 1
    parallel = _parallel()
    if threads > 1 and parallel is not None:
        parallel(function, task.buffer_info()[0], threads, 0)
    else:
        _CALL(function)(task.buffer_info()[0])


_CALL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@cache
def _parallel() -> Any:
    """`GOMP_parallel` of torch's own OpenMP library, or None where torch uses another one."""
    packages = Path(torch.__file__).parent
    for folder in (packages / "lib", packages.parent / "torch.libs"):
        for path in sorted(folder.glob("libgomp*.so*")):
            function = ctypes.CDLL(str(path)).GOMP_parallel
            function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
            function.restype = None
            return function
    return None
