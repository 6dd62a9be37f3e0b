"""The process that `recorder.py` starts: it answers JSON lines until its parent is gone."""

import json
import os
import sys
from contextlib import suppress
from types import SimpleNamespace

from harness import track
from harness.track import parent, usage


def main() -> None:
    """Answer until the parent is gone."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    watch = usage.Watch(os.getppid())
    try:
        for line in sys.stdin:
            message = json.loads(line)
            os.chdir(message["place"])
            if "begin" in message:
                with suppress(Exception):  # who asks is told what is wrong
                    track.ready(SimpleNamespace(**message["begin"]), message["runs_dir"])
                continue
            if "tell" in message:
                with suppress(Exception):  # it is done at the end, where it was not done now
                    track.CALLS[message["tell"]](watch, **message["arguments"])
                continue
            try:
                answer = {"answer": track.CALLS[message["call"]](watch, **message["arguments"])}
            except Exception as problem:
                answer = {"fault": f"{type(problem).__name__}: {problem}"}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
        track.abandon(watch)
    except (KeyboardInterrupt, BrokenPipeError):
        pass
    finally:
        parent.abandon()


if __name__ == "__main__":
    main()
