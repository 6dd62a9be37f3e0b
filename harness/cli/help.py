"""`--help`, answered from the YAML files' own first lines, without a single heavy import."""

import textwrap
from pathlib import Path
from typing import Any

from harness import variants
from harness.cli.arguments import SPOKEN, VALUED
from harness.cli.keys import every, head_of, lines_of, of_key, own
from harness.config import Config, options
from harness.config.choice import unread
from harness.config.explain import PLUGINS, installed
from harness.config.unknown import unknown_option
from harness.errors import ConfigProblem, suggestion
from harness.extras import for_launcher
from harness.variants import inherited, signature

GROUPS = ("task", "model", "tokenizer", "cache", "prune", "quantize", "save", "prompt", "sampling", "compare",
          "fault", "engine", "track", "experiment")  # fmt: skip
EVERYDAY = ("experiment", "save", "resume", "chat", "verify", "inspect", "diff", "evaluate", "audit",
            "referee", "prune", "ui")  # fmt: skip
KEYS = {
    "name=NAME": "folder under runs/",
    "seed=N": "of the sampler; prompt.seed draws the prompts",
    "device=auto": "auto, cpu, cuda",
    "steps=32": "tokens to continue",
    "text='...'": "exactly as typed",
    "run=DIR": "a recorded run",
    "snapshot=DIR": "restore from",
    "out=DIR": "write a snapshot to",
    "dtype=float32": "bfloat16, float16, float64",
    "restore.strict=false": "waive identity",
    "restore.verify=proof": "or digest (bytes), identity (and documents; no forward)",
}
MORE_KEYS = {  # that some tasks read, told in their help
    "at=N": "go back to N tokens",
    "a=DIR": "a snapshot",
    "b=DIR": "the other one",
    "from=FILE": "another program's cache",
    "compact=true": "refer to no other snapshot",
    "save.compact=true": "out= needs no other",
    "overwrite=true": "lets out= replace",
    "sign=KEY.pem": "private key that signs",
    "trusted=[KEY.pub]": "who must have signed",
    "encrypt=KEYFILE": "writes encrypted",
    "decrypt=KEYFILE": "reads encrypted",
}
WIDTH = 80
HYDRAS = tuple(f"hydra/{kind}" for kind in PLUGINS)
MANY = 40  # options; a longer list is not read
USAGE = """\
Prove that a paused transformer is still thinking the same thought.

usage: python -m harness [task=NAME] [group=option ...] [key=value ...]
       python -m harness -m cache=dynamic,cloned   (sweep every combination)
       python -m harness -m 'text="a .","b ."'      (of texts: each in quotes)
       python -m harness -m resume=DIR             (the rest of a sweep)
       python -m harness task=NAME --help          (one task, with an example)
       python -m harness task --help               (what each task is)
       python -m harness cache=static --help       (the keys of one option)
"""
MORE = """\
more: --cfg job prints the composed config, --config-dir DIR adds options,
      --shell-completion install=bash, --version, dashboard (MLflow's pages).
exit: 0 done, 1 worse than required, or differs, 2 bad input, 3 refused."""


def show(conf: Path, arguments: list[str]) -> str:
    """Help for what is among `arguments`, or for everything. Raises ConfigProblem for what there is not."""
    words = [
        argument
        for i, argument in enumerate(arguments)
        if not argument.startswith("-") and not (i and arguments[i - 1] in VALUED)
    ]
    pairs = [word.partition("=") for word in words]
    for word, equals, _ in pairs:
        if equals or word in (*GROUPS, *HYDRAS):
            continue
        if text := of_key(conf, word, [each for each in words if "=" in each]):
            return text
        near = suggestion(word, sorted({*GROUPS, *Config.__dataclass_fields__} - {"called"}))
        near = f" Did you mean task={word}?" if word in options("task") else near
        raise ConfigProblem(f"there is no help for '{word}', which is no group and no key.{near}")
    for key, _, option in pairs:
        if key == "task" and option:
            return _task(option)
    pages = [_page(conf, key, option) for key, _, option in pairs if key in (*GROUPS, *HYDRAS)]
    return "\n\n".join(pages) or _overview(conf)


def _page(conf: Path, group: str, option: str) -> str:
    """Of one option, or of a whole group."""
    if group in HYDRAS:
        return _plugin(group, option)
    return _option(group, option) if option else _group(conf, group)


def _overview(conf: Path) -> str:
    usual = _defaults(conf)
    lines = [USAGE, "tasks (* is the default):"]
    lines += _wrapped("  everyday  ", _marked("task", usual, [*EVERYDAY]))
    lines += _wrapped("  workshop  ", [t for t in options("task") if t not in EVERYDAY])
    lines += ["", "groups and options (* is the default):"]
    for group in GROUPS[1:]:
        marked = _marked(group, usual, options(group))
        if len(marked) > MANY:  # the user's own first
            kept = [*variants.outside(group)[:MANY], *(m for m in marked if m.endswith("*"))]
            marked = [*kept, f"and {len(marked) - len(kept)} more: {group} --help"]
        lines += _wrapped(f"  {group:<11}", marked)
    return "\n".join([*lines, "", "common keys:", *_rows([*KEYS]), "", MORE])


def _group(conf: Path, group: str) -> str:
    usual, known = _defaults(conf), options(group)
    default = " (* is the default)" * (usual.get(group) in known)
    lines = [f"{group}=OPTION, one of{default}:"]
    column = max(map(len, known)) + 5
    parts = [known]
    if group == "task":
        parts = [[t for t in EVERYDAY if t in known], [t for t in known if t not in EVERYDAY]]
    for part in parts:
        lines.append("")
        for option, marked in zip(part, _marked(group, usual, part), strict=True):
            bases = ", ".join(inherited(group, option))
            head = head_of(lines_of(group, option)) or [f"inherits {bases}" if bases else ""]
            text = f"{f'  {marked}':<{column}}{head[0]}"
            lines += textwrap.wrap(text, WIDTH, subsequent_indent=" " * column)
    more = ["", f"`python -m harness {group}=OPTION --help` lists the keys of one."]
    return "\n".join([*lines, *every(group), *more])


def _option(group: str, option: str) -> str:
    if option not in options(group):
        raise ConfigProblem(f"{group}={option}: {unknown_option(group, option)}")
    lines = lines_of(group, option)
    first, *more = head_of(lines) or [""]
    text = _folded(f"{group}={option}: {first}") + [p for m in more for p in _folded(f"  {m}")]
    if group == "experiment":
        keys = [f"  {line}" for line in lines if line and not line.startswith("#")]
        return "\n".join([*text, *(["", "it sets:", *keys] if keys else [])])
    keys = own(group, option)
    if keys:
        text += ["", f"its keys, {group}.KEY=VALUE:", *(p for k in keys for p in _key(f"  {k}"))]
    return "\n".join([*text, *(every(group, keys) if option != "none" else [])])


def _plugin(group: str, option: str) -> str:
    """One of Hydra's own groups: what can be chosen, and where the keys of a choice are listed."""
    kind = group.partition("/")[2]
    known = installed(kind)
    if option and option not in known:
        for_launcher([f"{group}={option}"])
        raise ConfigProblem(f"{group}={option} is not installed.{suggestion(option, known)}")
    command = f"`python -m harness {group}={option or 'OPTION'} --cfg hydra -p hydra.{kind}`"
    lines = [f"{group}=OPTION, one of:", "", f"  {' '.join(known)}", "", command]
    return "\n".join([*lines, f"lists the keys of {option or 'one'}, hydra.{kind}.KEY=VALUE."])


def _task(name: str) -> str:
    if name not in options("task"):
        raise ConfigProblem(f"task={name}: {unknown_option('task', name)}")
    first, *more = head_of(lines_of("task", name)) or [""]
    text = [*_folded(f"task={name}: {first}"), "", *(p for m in more for p in _folded(f"  {m}"))]
    hidden = ("#", " ", "-", "name:", "reads:", "unread:", "defaults:")
    top = [line for line in own("task", name) if line and not line.startswith(hidden)]
    if top:
        keys = [f"  {line} ..." if line.endswith(":") else f"  {line}" for line in top]
        text += ["", "its keys, task.KEY=VALUE:", *keys]
    listed, reads = _common(name), signature("task", name).get("reads") or []
    spoken = {key: word for word, key in SPOKEN.items()}
    rest = {spoken.get(key, key) for key in reads}
    if "out" in reads and "compact" not in reads:
        rest.add("save.compact")
    more_keys = [key for key in MORE_KEYS if key.partition("=")[0] in rest]
    return "\n".join([*text, "", "common keys:", *_rows([*listed, *more_keys])])


def _common(task: str) -> list[str]:
    """The common keys that the task reads, with what each is."""
    reads = signature("task", task).get("reads") or []
    hidden = {*(key for key in Config.ASKED if key not in reads), *unread(task)}
    if "prompt" in unread(task) or ("snapshot" not in reads and task != "experiment"):
        hidden |= {"restore.strict", "restore.verify"}
    return [key for key in KEYS if key.partition("=")[0] not in hidden]


def _rows(keys: list[str]) -> list[str]:
    """Keys with what each is, two in a row where both are short: those first."""
    rows: list[str] = []
    entries = [f"{key:<14} {KEYS.get(key) or MORE_KEYS[key]}" for key in keys]
    for entry in sorted(entries, key=lambda entry: len(entry) > 38):
        if rows and len(rows[-1]) <= 39 and len(entry) <= 38:
            rows[-1] = f"{rows[-1]:<41}{entry}"
        else:
            rows.append(f"  {entry}")
    return rows


def _defaults(conf: Path) -> dict[str, Any]:
    """The option of each group in `config.yaml`, without an import that parses it."""
    entries = [line.strip() for line in (conf / "config.yaml").read_text().splitlines()]
    pairs = [e[2:].split(": ", 1) for e in entries if e.startswith("- ") and ": " in e]
    return {pair[0]: pair[1] for pair in pairs if not pair[0].startswith("override")}


def _marked(group: str, usual: dict[str, Any], known: list[str]) -> list[str]:
    return [f"{option}*" if usual.get(group) == option else option for option in known]


def _folded(line: str) -> list[str]:
    """A long line as several; a command in it can still be copied."""
    return [line] if "python -m" in line else textwrap.wrap(line, WIDTH, subsequent_indent="  ")


def _key(line: str) -> list[str]:
    """A line of a YAML; a comment that is too long goes on below itself."""
    head, sign, comment = line.partition("  # ")
    if len(line) <= WIDTH or not sign:
        return [line]
    first, *more = textwrap.wrap(comment, max(WIDTH - len(head) - 4, 30))
    return [f"{head}  # {first}", *(f"{' ' * len(head)}  # {part}" for part in more)]


def _wrapped(head: str, words: list[str]) -> list[str]:
    lines, line = [], head
    for word in words:
        if len(line) + len(word) + 2 > WIDTH and line.strip():
            lines.append(line.rstrip())
            line = " " * len(head)
        line += f" {word}"
    return [*lines, line.rstrip()]
