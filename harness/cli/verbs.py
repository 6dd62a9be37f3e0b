"""Words that stand alone on the command line: what is no job, and needs no configuration."""

import inspect
import re
import sys
from collections.abc import Callable

from harness.errors import ConfigProblem, suggestion

DASHBOARD = ("run", "runs_dir", "track.uri", "track.experiment", "port")
REPORTED = ("torch", "transformers", "hydra-core", "mlflow", "numba")


def dashboard(argv: list[str]) -> int:
    """harness dashboard [run=ID] [runs_dir=DIR] [track.uri=ADDRESS] [track.experiment=NAME] [port=N]

    MLflow's pages over our runs, on 127.0.0.1 only, until Ctrl-C; the address is printed. Of a server that runs
    already (track.uri=http://HOST:PORT) the address of our runs there, and nothing is started.

      run=ID          the page of that run, instead of the list of all
      runs_dir=runs   the folder of the runs, with mlflow.db in it
      track.uri=      another database than that: sqlite:///PATH.db, or a server
      port=5000       where it listens

    example: python -m harness dashboard port=5001
    """
    known = {key: f"--{re.sub('[._]', '-', key)}" for key in DASHBOARD}
    pairs = [argument.partition("=") for argument in argv]
    for key, equals, _ in pairs:
        if key not in known or not equals:
            near = suggestion(key.lstrip("-").replace("-", "_"), tuple(known))
            raise ConfigProblem(f"dashboard takes {', '.join(known)}, not '{key}'.{near}")
    from harness.track import dashboard as server

    sys.argv[1:] = [word for key, _, value in pairs for word in (known[key], value)]
    server.main()
    return 0


VERBS: dict[str, Callable[[list[str]], int]] = {"dashboard": dashboard}


def help(word: str) -> str:
    """The help of a word."""
    return f"usage: {inspect.getdoc(VERBS[word])}"


def versions() -> str:
    """What a report of a fault should say."""
    from importlib.metadata import PackageNotFoundError, version

    lines = [f"harness {sys.modules['harness'].__version__}", f"Python {sys.version.split()[0]}"]
    for package in REPORTED:
        try:
            lines.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return "\n".join(lines)
