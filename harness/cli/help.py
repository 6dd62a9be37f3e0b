"""`--help`, answered from the YAML files' own first lines, without a single heavy import."""

import textwrap
from pathlib import Path

from harness.config import options
from harness.errors import ConfigProblem, suggestion
from harness.variants import folders

GROUPS = ("task", "model", "tokenizer", "cache", "prune", "quantize", "save", "prompt", "sampling", "compare",
          "fault", "engine", "track", "experiment")  # fmt: skip

KEYS = """\
  name=NAME      folder under runs/       seed=N           seeds of everything
  device=auto    auto, cpu, cuda          dtype=float32    bfloat16, float16
  steps=32       tokens to continue       text='...'       exactly as typed
  snapshot=DIR   restore from             out=DIR          write a snapshot to
  run=DIR        a recorded run           restore.strict=false   waive identity
  restore.verify=proof   or digest (bytes), identity (and documents; no forward)"""


WIDTH = 80
MANY = 40  # options; a longer list is not read
MORE = (
    "more: --cfg job prints the composed config, --config-dir DIR adds options,",
    "      --version, dashboard (MLflow's pages), completion (of bash, zsh, fish).",
    "exit: 0 done, 1 a worse verdict, 2 bad input, 3 snapshot refused.",
)


def show(conf: Path, arguments: list[str]) -> str:
    """Help for the task among `arguments`, or for everything."""
    for argument in arguments:
        if argument.startswith("task="):
            return _task(argument.removeprefix("task="))
    return _overview(conf)


def _overview(conf: Path) -> str:
    defaults = _defaults(conf)
    lines = [
        "Prove that a paused transformer is still thinking the same thought.",
        "",
        "usage: python -m harness [task=NAME] [group=option ...] [key=value ...]",
        "       python -m harness -m cache=dynamic,cloned   (sweep every combination)",
        "       python -m harness task=NAME --help          (one task, with an example)",
        "",
        "groups and options (* is the default):",
    ]
    for group in GROUPS:
        marked = [f"{o}*" if defaults.get(group) == o else o for o in options(group)]
        if len(marked) > MANY:
            marked = [
                *(m for m in marked if m.endswith("*")),
                f"and {len(marked) - 1} more, see conf/{group}/",
            ]
        lines += _wrapped(f"  {group:<11}", marked)
    lines += ["", "common keys:", KEYS, ""]
    return "\n".join([*lines, *MORE])


def _task(name: str) -> str:
    known = options("task")
    if name not in known:
        raise ConfigProblem(f"task={name} is not a task.{suggestion(name, known)}")
    path = next(p for f in folders() if (p := f / "task" / f"{name}.yaml").is_file())
    lines = [line for line in path.read_text().splitlines() if "@package" not in line]
    said = [line[1:].strip() for line in lines if line.startswith("#")]
    if "task:" in lines:  # a task that also chooses options of other groups
        lines = [line[2:] for line in lines[lines.index("task:") + 1 :]]
    reads = "".join(line[len("reads: [") : -1] for line in lines if line.startswith("reads: ["))
    top = [
        line for line in lines if line and not line.startswith(("#", " ", "-", "name:", "reads:"))
    ]
    keys = [f"  {line} ..." if line.endswith(":") else f"  {line}" for line in top]
    body = [*_folded(f"task={name}: {said[0]}" if said else f"task={name}"), ""]
    body += [part for line in said[1:] for part in _folded(f"  {line}")]
    common = f"common keys (read here: {reads}):" if reads else "common keys:"
    told = [*body, *(["", "its keys:", *keys] if keys else []), "", *_folded(common), KEYS]
    return "\n".join(told)


def _defaults(conf: Path) -> dict[str, str]:
    found = {}
    for line in (conf / "config.yaml").read_text().splitlines():
        entry = line.strip().removeprefix("- ")
        if line.startswith("  - ") and ": " in entry and not entry.startswith("override"):
            group, option = entry.split(": ", 1)
            found[group] = option
    return found


def _folded(line: str) -> list[str]:
    """A long line as several; a command in it can still be copied."""
    if "python -m" in line:
        return [line]
    return textwrap.wrap(line, WIDTH, subsequent_indent="  ")


def _wrapped(head: str, words: list[str], width: int = 80) -> list[str]:
    lines, line = [], head
    for word in words:
        if len(line) + len(word) + 2 > width and line.strip():
            lines.append(line.rstrip())
            line = " " * len(head)
        line += f" {word}"
    return [*lines, line.rstrip()]
