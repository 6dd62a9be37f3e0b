"""`--help`, answered from the YAML files' own first lines, without a single heavy import."""

import re
import shutil
import textwrap
from dataclasses import fields
from pathlib import Path

from harness import variants
from harness.cli.arguments import SPOKEN, VALUED, chosen_primary
from harness.cli.keys import every, lines_of, of_key, own, said_in
from harness.config import Config, options
from harness.config.choice import unread
from harness.config.explain import PLUGINS, installed
from harness.errors import ConfigProblem, suggestion
from harness.extras import for_launcher
from harness.variants import inherited, signature

GROUPS = ("task", "model", "tokenizer", "cache", "prune", "quantize", "save", "prompt", "sampling", "compare",
          "fault", "engine", "track", "experiment")  # fmt: skip

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
MORE = (
    "more: --cfg job prints the composed config, --config-dir DIR adds options,",
    "      --version, dashboard (MLflow's pages), completion (of bash, zsh, fish).",
    "exit: 0 done, 1 worse than required, or differs, 2 bad input, 3 refused.",
)


def show(conf: Path, arguments: list[str]) -> str:
    """Help for what is among `arguments`, or for everything, as wide as the terminal and at most 80 columns."""
    own = chosen_primary(arguments).get("name")
    more = f"\n\nShipped defaults; `--cfg job` shows those of {own}." if own else ""
    return _narrowed(_told(conf, arguments) + more, _width())


def _width() -> int:
    return min(shutil.get_terminal_size().columns, WIDTH)


def _narrowed(text: str, width: int) -> str:
    """`text` folded where it is too wide, below the second column of its line; a command stays whole."""
    lines: list[str] = []
    for line in text.splitlines():
        near = len(line) - len(line.lstrip())
        pair = re.search(r"^( *\S.*?(?:  +| # ))(\S.*)$", line)
        head, said = pair.groups() if pair else (line, "")
        if len(line) <= width or width == WIDTH or ("python -m" in (said or head) and not pair):
            lines.append(line)
        elif "python -m" in head:
            lines += [head.rstrip(), *_hung(f"{'':{near + 4}}{said}", width, near + 4)]
        else:
            lines += _hung(line, width, min(len(head), width // 2) if said else near and near + 4)
    return "\n".join(lines)


def _hung(line: str, width: int, indent: int) -> list[str]:
    return textwrap.wrap(
        line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )


def _told(conf: Path, arguments: list[str]) -> str:
    words = [
        argument
        for i, argument in enumerate(arguments)
        if not argument.startswith("-") and not (i and arguments[i - 1] in VALUED)
    ]
    pairs = [word.partition("=") for word in words]
    for word, equals, _ in pairs:
        if not equals and word not in (*GROUPS, *HYDRAS):
            if re.match(r"hydra\b", word):
                part = ".".join(re.split(r"[./]", word)[:2])
                shown = f"`python -m harness --cfg hydra -p {part}`"
                raise ConfigProblem(
                    f"'{word}' is Hydra's own, without help here: {shown} shows it."
                )
            if said := of_key(conf, word, [each for each in words if "=" in each]):
                return said
            known = {*GROUPS, *(key.name for key in fields(Config))} - {"called"}
            near = suggestion(word, sorted(known))
            near = f" Did you mean task={word}?" if word in options("task") else near
            raise ConfigProblem(
                f"there is no help for '{word}', which is no group and no key.{near}"
            )
    for key, _, option in pairs:
        if key == "task" and option:
            return _task(option)
    pages = [_page(conf, key, option) for key, _, option in pairs if key in (*GROUPS, *HYDRAS)]
    return "\n\n".join(pages) or _overview(conf)


def _group(conf: Path, group: str) -> str:
    usual, known = _defaults(conf).get(group), options(group)
    lines = [f"{group}=OPTION, one of{' (* is the default)' * (usual in known)}:", ""]
    column = max(map(len, known)) + 5
    for option in known:
        name = f"  {option}{'*' * (option == usual)}".ljust(column)
        bases = ", ".join(inherited(group, option))
        said = (said_in(lines_of(group, option)) or [f"inherits {bases}" if bases else ""])[0]
        lines += textwrap.wrap(f"{name}{said}", _width(), subsequent_indent=" " * column)
    more = ["", f"`python -m harness {group}=OPTION --help` lists the keys of one."]
    return "\n".join([*lines, *every(group), *more])


def _option(group: str, option: str) -> str:
    known = options(group)
    if option not in known:
        raise ConfigProblem(
            f"{group}={option}: '{option}' is not an option of {group}.{suggestion(option, known)}"
        )
    lines = lines_of(group, option)
    first, *more = said_in(lines) or [""]
    told = _folded(f"{group}={option}: {first}")
    told += [part for line in more for part in _folded(f"  {line}")]
    keys = [line for line in lines if line and not line.startswith("#")]
    if group == "experiment":
        return "\n".join(
            [*told, *(["", "it sets:", *(f"  {line}" for line in keys)] if keys else [])]
        )
    keys = own(group, option)
    told += (
        [
            "",
            f"its keys, {group}.KEY=VALUE:",
            *(part for line in keys for part in _key(f"  {line}")),
        ]
        if keys
        else []
    )
    return "\n".join([*told, *(every(group, keys) if option != "none" else [])])


def _page(conf: Path, group: str, option: str) -> str:
    """Of one option, or of a whole group."""
    if group in HYDRAS:
        return _plugin(group, option)
    return _option(group, option) if option else _group(conf, group)


def _plugin(group: str, option: str) -> str:
    """One of Hydra's own groups: what can be chosen, and where the keys of a choice are listed."""
    kind = group.partition("/")[2]
    known = installed(kind)
    if option and option not in known:
        for_launcher([f"{group}={option}"])
        raise ConfigProblem(f"{group}={option} is not installed.{suggestion(option, known)}")
    shown = f"python -m harness {group}={option or 'OPTION'} --cfg hydra -p hydra.{kind}"
    lines = [f"{group}=OPTION, one of:", "", f"  {' '.join(known)}", "", f"`{shown}`"]
    return "\n".join([*lines, f"lists the keys of {option or 'one'}, hydra.{kind}.KEY=VALUE."])


def _overview(conf: Path) -> str:
    defaults = _defaults(conf)
    lines = [
        "Prove that a paused transformer is still thinking the same thought.",
        "",
        "usage: python -m harness [task=NAME] [group=option ...] [key=value ...]",
        "       python -m harness -m cache=dynamic,cloned   (sweep every combination)",
        """       python -m harness -m 'text="a .","b ."'      (of texts: each in quotes)""",
        "       python -m harness -m resume=DIR             (the rest of a sweep)",
        "       python -m harness task=NAME --help          (one task, with an example)",
        "       python -m harness task --help               (what each task is)",
        "       python -m harness cache=static --help       (the keys of one option)",
        "",
        "groups and options (* is the default):",
    ]
    for group in GROUPS:
        marked = [f"{o}*" if defaults.get(group) == o else o for o in options(group)]
        if len(marked) > MANY:  # one's own first
            own = variants.outside(group)[:MANY]
            kept = [*own, *(m for m in marked if m.endswith("*"))]
            marked = [*kept, f"and {len(marked) - len(kept)} more: {group} --help"]
        lines += _wrapped(f"  {group:<11}", marked)
    lines += ["", "common keys:", *_rows([*KEYS]), ""]
    return "\n".join([*lines, *MORE])


def _task(name: str) -> str:
    known = options("task")
    if name not in known:
        raise ConfigProblem(f"task={name} is not a task.{suggestion(name, known)}")
    lines = lines_of("task", name)
    said = said_in(lines)
    lines = own("task", name)
    told_apart = ("#", " ", "-", "name:", "reads:", "unread:", "defaults:")
    top = [line for line in lines if line and not line.startswith(told_apart)]
    keys = [f"  {line} ..." if line.endswith(":") else f"  {line}" for line in top]
    body = [*_folded(f"task={name}: {said[0]}" if said else f"task={name}"), ""]
    body += [part for line in said[1:] for part in _folded(f"  {line}")]
    listed = _common(name)
    told_by_name = {key.partition("=")[0] for key in listed}
    reads = signature("task", name).get("reads") or []
    spoken = {key: word for word, key in SPOKEN.items()}
    rest = {spoken.get(key, key) for key in reads if key not in told_by_name}
    if "out" in reads and "compact" not in reads:
        rest.add("save.compact")
    told = [
        *body,
        *(["", "its keys, task.KEY=VALUE:", *keys] if keys else []),
        "",
        "common keys:",
        *_rows([*listed, *(key for key in MORE_KEYS if key.partition("=")[0] in rest)]),
    ]
    return "\n".join(told)


def _common(task: str) -> list[str]:
    """The common keys that the task reads, with what each is."""
    reads = signature("task", task).get("reads") or []
    hidden = {*(key for key in Config.ASKED if key not in reads), *unread(task)}
    if "prompt" in unread(task) or ("snapshot" not in reads and task != "experiment"):
        hidden |= {"restore.strict", "restore.verify"}
    return [key for key in KEYS if key.partition("=")[0] not in hidden]


def _rows(keys: list[str]) -> list[str]:
    """Keys with what each is, two in a row where both are short and the terminal is wide: those first."""
    rows: list[str] = []
    wide = _width() == WIDTH
    entries = [f"{key:<14} {KEYS.get(key) or MORE_KEYS[key]}" for key in keys]
    for entry in sorted(entries, key=lambda entry: len(entry) > 38):
        if wide and rows and len(rows[-1]) <= 39 and len(entry) <= 38:
            rows[-1] = f"{rows[-1]:<41}{entry}"
        else:
            rows.append(f"  {entry}")
    return rows


def _defaults(conf: Path) -> dict[str, str]:
    defaults = {}
    for line in (conf / "config.yaml").read_text().splitlines():
        entry = line.strip().removeprefix("- ")
        if line.startswith("  - ") and ": " in entry and not entry.startswith("override"):
            group, option = entry.split(": ", 1)
            defaults[group] = option
    return defaults


def _folded(line: str) -> list[str]:
    """A long line as several; a command in it can still be copied."""
    if "python -m" in line:
        return [line]
    return textwrap.wrap(line, _width(), subsequent_indent="  ")


def _key(line: str) -> list[str]:
    """A line of a YAML; a comment that is too long goes on below itself."""
    head, sign, comment = line.partition("  # ")
    if len(line) <= _width() or not sign:
        return [line]
    first, *more = textwrap.wrap(comment, max(_width() - len(head) - 4, 30))
    return [f"{head}  # {first}", *(f"{' ' * len(head)}  # {part}" for part in more)]


def _wrapped(head: str, words: list[str]) -> list[str]:
    lines, line, width = [], head, _width()
    for word in words:
        if len(line) + len(word) + 2 > width and line.strip():
            lines.append(line.rstrip())
            line = " " * len(head)
        line += f" {word}"
    return [*lines, line.rstrip()]
