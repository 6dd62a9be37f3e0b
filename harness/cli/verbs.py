"""Words that stand alone on the command line: what is no job, and needs no configuration."""

import inspect
import re
import sys
from collections.abc import Callable
from difflib import get_close_matches

from harness.cli import completion as shells
from harness.errors import ConfigProblem, suggestion

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
    known = {key: f"--{re.sub('[._]', '-', key)}" for key in shells.DASHBOARD}
    pairs = [argument.partition("=") for argument in argv]
    for key, equals, _ in pairs:
        if key not in known or not equals:
            near = suggestion(key.lstrip("-").replace("-", "_"), tuple(known))
            raise ConfigProblem(f"dashboard takes {', '.join(known)}, not '{key}'.{near}")
    from harness.track import dashboard as server

    sys.argv[1:] = [word for key, _, value in pairs for word in (known[key], value)]
    server.main()
    return 0


def completion(argv: list[str]) -> int:
    """harness completion [install] [bash, zsh or fish]

    Print the script that has the shell complete `harness`: groups, options, keys and flags, those of
    --config-dir too. `install` writes it where the shell looks for it from its next start on: one
    file below $XDG_DATA_HOME (default ~/.local/share), whose path is printed; delete that file to
    undo it. Without a name: the shell of $SHELL.

    example: python -m harness completion bash
    example: python -m harness completion install
    """
    print(shells.run(argv))
    return 0


def complete(argv: list[str]) -> int:
    """harness complete LINE

    What the last word of a command line may become, one per line: the shell asks this.

    example: python -m harness complete 'harness cache=ma'
    """
    print("\n".join(shells.candidates(argv[0] if argv else "")))
    return 0


VERBS: dict[str, Callable[[list[str]], int]] = {
    "dashboard": dashboard,
    "completion": completion,
    "complete": complete,
}


def check(argv: list[str]) -> None:
    """Raise ConfigProblem for a first word that is nearly one of `VERBS`."""
    word = argv[0] if argv else "-"
    near = get_close_matches(word, VERBS, n=1, cutoff=0.75)
    if near and word not in VERBS and not word.startswith("-"):
        raise ConfigProblem(f"'{word}' is not key=value. Did you mean {near[0]}?")


def described(word: str) -> str:
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
