"""What the YAML files and the schema say of keys: those of an option, and one by itself."""

import inspect
import re
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from harness.config import options, shared
from harness.config.option import misread, schemas
from harness.errors import ConfigProblem
from harness.variants import folders, inherited, signature


def of_key(conf: Path, word: str, overrides: Sequence[str]) -> str:
    """What is said of a common key, of the keys of a section, or of `group.key` as its options have it (or those
    that `overrides` choose); empty where there is none. Raises ConfigProblem for a key that none of them has."""
    group, _, key = word.partition(".")
    return _of_option(group, key, overrides) if group in schemas() and key else _common(conf, word)


def _of_option(group: str, key: str, overrides: Sequence[str]) -> str:
    key = key.partition(".")[0]
    chosen = [o.partition("=")[2] for o in overrides if o.startswith(f"{group}=")]
    picked = [o for o in chosen if o in options(group)] or options(group)
    if problem := misread(group, picked, [key]):
        raise ConfigProblem(problem)
    found: dict[str, list[str]] = {}  # what is said -> the options that say it
    for option in picked:
        if block := _block(own(group, option), key):
            found.setdefault("\n".join(f"  {line}" for line in block), []).append(option)
    pairs = [(f"of {group}={', '.join(able)}", block) for block, able in found.items()]
    common = [line for line in every(group) if line.startswith(f"  {key}:")]
    pairs = pairs or [("of every option", line) for line in common]
    return "\n\n".join(f"{group}.KEY=VALUE, {whose}:\n\n{block}" for whose, block in pairs)


def _block(lines: Sequence[str], key: str) -> list[str]:
    """Those of `lines` that give `key`, what is below it too."""
    start = next((i for i, line in enumerate(lines) if line.startswith(f"{key}:")), len(lines))
    below = takewhile(lambda line: line[0] in " -", lines[start + 1 :])
    return [*lines[start : start + 1], *below]


def _common(conf: Path, word: str) -> str:
    name, _, inner = word.partition(".")
    lines = (conf / "config.yaml").read_text().splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith(f"{name}:")), None)
    if start is None or name in ("defaults", "hydra"):
        return ""
    held = list(takewhile(lambda line: line.startswith("  "), lines[start + 1 :]))
    if not held:
        return "" if inner else lines[start]
    found = [line.strip() for line in held if not inner or line.strip().startswith(f"{inner}:")]
    return "\n".join([f"{name}.KEY=VALUE:", "", *(f"  {line}" for line in found)] if found else [])


def own(group: str, option: str) -> list[str]:
    """The lines of an option's YAML that give its keys, those that it inherits from others of its group too."""
    signature(group, option)  # which leads to no circle
    lines = lines_of(group, option)
    if group == "task" and "task:" in lines:  # one that also chooses options of other groups
        return [line[2:] for line in lines[lines.index("task:") + 1 :]]
    blocks: dict[str, list[str]] = {}
    for other in inherited(group, option):
        for line in own(group, other):
            blocks.setdefault(line.partition(":")[0], []).append(line)
    given: dict[str, list[str]] = {}
    key = ""
    for line in lines:
        if line and not line.startswith("#"):
            key = line.partition(":")[0] if line[0] not in " -" else key
            given.setdefault(key, []).append(line)
    merged = blocks | given
    return [line for k, b in merged.items() if k not in ("name", "defaults") for line in b]


def every(group: str, beside: Sequence[str] = ()) -> list[str]:
    """The keys that every option of the group reads, with their comments in the schema."""
    if group not in schemas():
        return []
    source = inspect.getsource(schemas()[group])
    lines = []
    for key, usual in shared(group).items():
        if any(line.startswith(f"{key}:") for line in beside) or group == "task":
            continue
        comment = re.search(rf"^    {key}: .*?  # (.+)$", source, re.MULTILINE)
        what = f"  {key}: {'null' if usual is None else str(usual).lower()}"
        lines += [f"{what:<20} # {comment[1]}" if comment else what]
    return ["", f"keys of every option, {group}.KEY=VALUE:", *lines] if lines else []


def lines_of(group: str, option: str) -> list[str]:
    """The option's YAML."""
    path = next(p for f in folders() if (p := f / group / f"{option}.yaml").is_file())
    return [line for line in path.read_text().splitlines() if "@package" not in line]


def head_of(lines: list[str]) -> list[str]:
    """The comments of a YAML."""
    return [line[1:].strip() for line in lines if line.startswith("#")]
