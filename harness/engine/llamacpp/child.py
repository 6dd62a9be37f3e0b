"""The process that a llama.cpp server lives in: `python child.py`, told what to do on its stdin.

First line: JSON with `model`, `slots` (a folder), `key`, `params` (attributes of CommonParams, dotted).
It answers with one JSON line on stdout, `address` or `problem`. A line `stop` ends it; so does the end
of its stdin, which comes when the harness is gone for whatever reason: then it also removes `slots`.
Nothing of the harness is imported.
"""

import json
import os
import shutil
import sys
import threading
from typing import Any


def main() -> None:
    lines = sys.stdin
    order = json.loads(lines.readline())
    threading.Thread(target=_watch, args=(lines, order["slots"]), daemon=True).start()
    try:
        import xllamacpp

        server = xllamacpp.Server(params(xllamacpp, order))
        print(json.dumps({"address": server.listening_address}), flush=True)
    except BaseException as problem:  # whatever it is, the harness wants to read it
        print(json.dumps({"problem": f"{type(problem).__name__}: {problem}"}), flush=True)
        os._exit(1)
    threading.Event().wait()


def params(library: Any, order: dict[str, Any]) -> Any:
    """CommonParams with the order's values, each turned into the type of the default that it replaces."""
    common = library.CommonParams()
    common.model.path, common.slot_save_path = order["model"], order["slots"] + os.sep
    common.hostnames, common.port, common.api_keys = ["127.0.0.1"], 0, [order["key"]]
    for name, value in order["params"].items():
        place, _, last = name.rpartition(".")
        target = common
        for part in filter(None, place.split(".")):
            target = getattr(target, part)
        if name.startswith("cache_type_"):
            value = getattr(library.ggml_type, f"GGML_TYPE_{value.upper()}")
        setattr(target, last, value)
    return common


def _watch(lines: Any, slots: str) -> None:
    if lines.readline().strip() != "stop":  # the harness is gone
        shutil.rmtree(slots, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main()
