"""Words that stand alone on the command line: what is no job, and needs no configuration."""

import sys
from collections.abc import Callable

from harness.errors import ConfigProblem, suggestion

REPORTED = ("torch", "transformers", "hydra-core", "mlflow", "numba")


def dashboard(given: list[str]) -> int:
    """`dashboard [runs_dir=DIR] [port=N]`: MLflow's pages over our runs, until Ctrl-C."""
    known = {"runs_dir": "--runs-dir", "port": "--port"}
    pairs = [argument.partition("=") for argument in given]
    for key, equals, _ in pairs:
        if key not in known or not equals:
            near = suggestion(key.lstrip("-").replace("-", "_"), tuple(known))
            raise ConfigProblem(f"dashboard takes runs_dir=DIR and port=N, not '{key}'.{near}")
    from harness.track import dashboard as server

    sys.argv[1:] = [word for key, _, value in pairs for word in (known[key], value)]
    server.main()
    return 0


def completion(given: list[str]) -> int:
    """`completion [bash|zsh|fish]`: have the shell complete `harness`, from the next one on."""
    from harness.cli import completion as shells

    print(shells.install(given))
    return 0


def complete(given: list[str]) -> int:
    """`complete LINE`: what the last word of a command line may become; the shell asks this."""
    from harness.cli import completion as shells

    print("\n".join(shells.candidates(given[0] if given else "")))
    return 0


VERBS: dict[str, Callable[[list[str]], int]] = {
    "dashboard": dashboard,
    "completion": completion,
    "complete": complete,
}


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
