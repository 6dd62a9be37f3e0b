"""Arguments that Hydra's grammar does not take: what was probably meant, and how it is typed."""

import re
import shlex
from difflib import get_close_matches
from itertools import takewhile

from harness.config.option import schemas
from harness.config.schema import Config
from harness.errors import suggestion
from harness.variants import options

FUNCTIONS = (
    "range",
    "choice",
    "interval",
    "glob",
    "sort",
    "shuffle",
    "tag",
    "int",
    "float",
    "str",
    "bool",
    "json_str",
)
FORMS = {
    "range": "range(START,STOP), whole or decimal numbers, with a step after them where it is not 1",
    "interval": "interval(LOW,HIGH), two numbers, for a sweeper that searches",
    "choice": "choice(A,B)",
    "glob": "glob(PATTERN)",
}


def pasted(key: str, value: str) -> str:
    """`key=value` as it is typed in a shell where Hydra is to take the value for one text."""
    escaped = re.sub(r"(\\*)('|\Z)", lambda m: 2 * m[1] + "\\'" * bool(m[2]), value)
    word = f"{key}='{escaped}'"
    return shlex.quote(word) if set(word) & set('"$`\\!') else f'"{word}"'


def odd(argument: str) -> bool:
    """Whether Hydra cannot read an argument that it reads as a text in quotes."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    key, equals, value = argument.partition("=")
    if not equals or key.startswith("-") or set(value) & set("[]{}()"):
        return False
    for typed, sound in ((argument, False), (shlex.split(pasted(key, value))[0], True)):
        try:
            OverridesParser.create().parse_override(typed)
        except HydraException:
            if sound:
                return False
        else:
            if not sound:
                return False
    return True


def quoted_glob(argument: str) -> str:
    """`KEY=glob(PATTERN...)`, whose pattern has brackets that Hydra takes for a list, as it is typed in a shell; empty
    for any other argument."""
    told = re.sub(r"""=glob\(([^"',()]*\[[^"',()]*)""", r'=glob("\1"', argument)
    return shlex.quote(told) if told != argument else ""


def unclosed(argument: str) -> str:
    """What is wrong with an argument whose reference has no end; empty for any other."""
    if argument.count("${") <= argument.count("}"):
        return ""
    return f"{argument}: a brace is missing, a reference is ${{KEY}}: {shlex.quote(argument + '}')}"


def no_pair(word: str, argv: list[str]) -> str:
    """What to do about an argument without an equals sign, which Hydra gives in quotes."""
    bare = word.strip("'")
    at = argv.index(bare) if bare in argv else 0
    first = next((i for i in range(at - 1, -1, -1) if "=" in argv[i]), 0)
    if at and argv[first].startswith(("text=", "prompt.text=")):
        more = takewhile(lambda a: "=" not in a and not a.startswith("-"), argv[first + 1 :])
        text = " ".join([argv[first].replace("'", ""), *more])
        return f'{word} is not key=value. A text with blanks needs quotes: "{text}"'
    follows = argv[at + 1] if argv[at : at + 1] == [bare] and argv[at + 1 :] else ""
    if bare in Config.__dataclass_fields__ and bare not in schemas() and follows.isalnum():
        return f"{word} is not key=value. Did you mean {bare}={follows}?"
    if bare in options("task"):
        return f"{word} is not key=value. Did you mean task={bare}?"
    if bare in (*schemas(), "experiment"):
        return (
            f"{word} is not key=value: {bare}=OPTION. `python -m harness {bare} --help` lists them."
        )
    if bare == "run":
        return (
            f"{word} is not key=value, and a run needs no word: `python -m harness` alone is one."
        )
    if bare == "version":
        return f"{word} is not key=value. Did you mean --version?"
    if near := get_close_matches(bare, options("task"), n=1, cutoff=0.75):
        return f"{word} is not key=value. Did you mean task={near[0]}?"
    if bare == "help":
        return f"{word} is not key=value. Did you mean --help?"
    _, equals, value = bare.partition("=")
    if equals and "" in (each := value.split(",")) and each[1:]:
        return f"{word}: an empty value stands between its commas."
    if (called := re.match(r"(\w+)\(", value)) and called[1] in FUNCTIONS:
        form = f": give {FORMS[called[1]]}" if called[1] in FORMS else ""
        return f"{word}: what stands in its brackets is nothing that {called[1]} takes{form}."
    if called:
        return f"{word}: there is no {called[1]}(...).{suggestion(called[1], FUNCTIONS)}"
    return (
        f"{word} is not key=value. Is something left out, or is a value with blanks or brackets in "
        "need of quotes?"
    )
