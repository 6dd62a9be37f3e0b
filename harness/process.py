"""What one command's process does around its work: import libraries, and end.

Half of a short job was neither: Python's collector walks the growing heap dozens of times while
libraries are imported, and takes five thousand modules apart before the process ends.
"""

import atexit
import gc
import os
import sys
import threading

OBJECTS = (20_000, 20, 50)  # between collections; Python's own (700, 10, 10) suits a small heap
UNUSED = ("hypothesis",)  # pandera imports it to make up test data


def begin() -> None:
    """Before the first import: collect less often, and keep out what no command uses."""
    gc.set_threshold(*OBJECTS)
    for package in UNUSED:
        sys.modules.setdefault(package, None)  # type: ignore[arg-type]


def leave(code: int) -> None:
    """End the process with `code`: what was registered for its end runs, what was written is flushed,
    modules are not taken apart. Where another thread still runs, end as Python does."""
    if threading.active_count() > 1:
        sys.exit(code)
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # nobody reads any more; Python says so with a code of its own
        sys.exit(code)
    os._exit(code)
