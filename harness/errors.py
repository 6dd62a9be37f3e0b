"""What a user can get wrong: one class each, carrying the message they need and the exit code.

Every message says what is wrong, where, and how to mend it. `__main__` prints it without a traceback.
"""

import errno
from collections.abc import Sequence
from difflib import get_close_matches


class HarnessError(Exception):
    """An expected failure. `exit_code`: 2 bad configuration or input, 3 invalid or refused snapshot."""

    exit_code = 2
    reason_code = "harness_error"  # of `harness/results/reason.py`
    known: dict[str, object] | None = None  # what had been read before, in keys of `result.json`

    def arguments(self) -> dict[str, object]:
        """The arguments of its code."""
        return {"message": str(self)}


class ConfigProblem(HarnessError):
    """An unknown key, an unknown option or a value outside its range."""

    reason_code = "config_problem"


class InputProblem(HarnessError):
    """A missing or unreadable input, an unwritable output, a prompt the model cannot take."""

    reason_code = "input_problem"


class UnsupportedModel(HarnessError):
    """The chosen cache, policy or tokenizer cannot serve this model; the message names what can."""

    reason_code = "unsupported_model"


class Misfit(UnsupportedModel):
    """A state that belongs to a model of other shapes: nothing can be attended to, whatever was waived."""

    exit_code = 3
    reason_code = "misfit"


class MissingExtra(InputProblem):
    """Something asks for an optional package that is not installed; the message says the command."""

    reason_code = "missing_extra"

    def __init__(self, what: str, extra: str, module: str):
        super().__init__(
            f"{what} needs the package {module.rpartition('.')[2]}, which is not installed: "
            f"pip install 'harness[{extra}]' (in a checkout: .venv/bin/pip install -e '.[{extra}]')."
        )


class DiskFull(BaseException):
    """No further point of a sweep can be kept, so none is begun. No Exception: after one of those Hydra and
    its launchers go on with the next point."""


def disk_is_full(problem: BaseException | None) -> bool:
    """Whether what went wrong comes of a full disk, or of a quota that is used up."""
    while problem is not None:
        if isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        problem = problem.__cause__ or problem.__context__
    return False


class TooLong(HarnessError):
    """A job that was given so much time and took more."""

    exit_code = 1
    reason_code = "too_long"

    def __init__(self, seconds: float):
        super().__init__(
            f"stopped after limit_s={seconds:g} seconds. Give a larger limit_s, or find out what it waited "
            "for: `harness.log` of its folder may say."
        )


class UntrustedPlugin(ConfigProblem):
    """A record names code that is not part of the harness, and nobody here has vouched for it."""

    reason_code = "untrusted_plugin"

    def __init__(self, where: str, what: str, target: str, module: str):
        super().__init__(
            f"{where} names {what}, which is {target}: not part of the harness, so it is not "
            f"imported on a record's word. If you trust it, say so: plugins.trust=[{module}], with "
            "plugins.path=DIR where it lies outside of PYTHONPATH."
        )


FEW = 8  # differences that are still listed where the first explains the others
MANY = 40  # names that are still listed one by one
STRANGE = (
    "is not part of this snapshot"  # says of a fault that a file lies there which nobody saved
)
REFERRED = "which this one goes on from"  # says of a fault that it is in another snapshot's folder
MISSING_PARENT = (
    "It refers to another snapshot: put that one into the same folder, under any name, or, where both lie together, "
    "make this one self-contained (task=save compact=true snapshot=DIR out=DIR2) and take that. "
)
DAMAGED_PARENT = (
    "The damage is in the snapshot that this one goes on from: put an undamaged copy of that folder beside it, under "
    "any name, and this one can be restored as it is. Without one, save again; "
)


def mending(faults: Sequence[str]) -> str:
    """What can be done about the faults of a snapshot."""
    if faults and all(f.endswith(STRANGE) for f in faults):
        it = "that file" if len(faults) == 1 else "those files"
        return f"Every file that was saved is whole: take {it} out of its folder. `restore.strict=false` does not waive it."
    missing = any("does not lie beside it" in f for f in faults)
    whole = "Restore it from a backup or save it again; "
    if all(REFERRED in f for f in faults) and not missing:
        whole = DAMAGED_PARENT
    return f"{MISSING_PARENT * missing}{whole}`restore.strict=false` does not waive damage."


class NotRestored(HarnessError):
    """What a restore refuses. found: what does not fit. remedy: how to mend it. instead: what else lets a damaged state through."""

    exit_code = 3
    found, remedy, instead = "", "", ""

    def on_purpose(self, fault: str) -> None:
        """Say that this very run did the damage, by `fault=`: there is nothing to be mended."""
        self.remedy = (
            f"Damaged on purpose by fault={fault}, and refused as it should be: leave fault={fault} out for a run "
            f"without damage{self.instead}."
        )
        self.args = (f"{self.found}{self.remedy}",)


class Altered(str):
    """A fault of a snapshot that a digest found: what is stored is not what was written."""


class DigestMismatch(ValueError):
    """Bytes that are not those of their digest."""

    def __init__(self) -> None:
        super().__init__("does not match its digest")


class SnapshotInvalid(NotRestored):
    """A snapshot whose manifest, digests or files do not hold. `faults` lists every one found."""

    def __init__(self, where: str, faults: Sequence[str], saving: bool = False):
        """saving: it is the state about to be written at `where` that does not hold."""
        self.reason_code = "state_invalid" if saving else "snapshot_invalid"
        self.where, self.faults = where, [type(f)(printable(f)) for f in faults]
        shown = "\n".join(f"  - {f}" for f in self.faults[:20])
        more = f"\n  ... and {len(self.faults) - 20} more" if len(self.faults) > 20 else ""
        what = f"the snapshot at {where} is not valid, nothing was restored from it"
        remedy = mending(self.faults)
        if any("memory of a process" in f for f in self.faults):
            remedy = (
                "save=memory keeps it for that process only: save again, say with save=safetensors."
            )
        if saving:
            what = f"the state cannot be saved at {where}, nothing was written"
            remedy = (
                "What made this state (a variant of your own, or the harness) has to be mended."
            )
        self.found, self.remedy = f"{what}:\n{shown}{more}\n", remedy
        super().__init__(f"{self.found}{remedy}")

    def arguments(self) -> dict[str, object]:
        return {"where": f" at {self.where}", "faults": self.faults[:20]}


class Untrusted(HarnessError):
    """What nobody trusted has signed, or what is encrypted and cannot be opened with the given key."""

    exit_code = 3
    reason_code = "untrusted"


UNPROVEN = {
    "": "Either something changed the state between its capture and its files, or this model now computes "
    "otherwise (a module replaced, a hook, a setting). Save it again, or build the model anew",
    "state": "A prefill of its ids gives the stored logits and other K/V, so something changed the state "
    "between its capture and its files. Save it again",
    "model": "A prefill of its ids gives the stored logits and K/V, so the state is sound: this model "
    "computes one token otherwise than all at once (a hook, a memory of its own, dropout). Mend the model",
}


class RestoreRefused(NotRestored):
    """A sound snapshot that belongs to another model, tokenizer or format. `differences` are rows;
    `diagnosis` says the cause, once somebody asked for it."""

    instead = ", or pass `restore.strict=false` to see what it does to a continuation"
    diagnosis: dict[str, object] | None = None

    def __init__(
        self,
        where: str,
        differences: Sequence["object"],
        why: str = "",
        within: str | None = None,
        mixed: bool = False,
        fits: bool = True,
        load: str = "",
    ):
        """why: how the first difference explains the others, of which a few are listed then. within: the weights are those it was
        saved with, and the proof fails; a key of UNPROVEN, who is to blame. mixed: the differences
        were waived before. fits: whether K/V of these shapes could go on at all, waived or not. load: the options that
        load what it was saved with, where they are known."""
        self.reason_code = (
            "waived_before" if mixed else "restore_refused" if within is None else "proof_failed"
        )
        self.where, self.differences = where, list(differences)
        rows = "\n".join(f"  - {d}" for d in self.differences[: FEW if why else None])
        if more := len(self.differences[FEW:]) if why else 0:
            rows += f"\n  ... and {more} more (`differences` holds all)"
        what = "is not what is loaded now"
        remedy = f"Load the model and tokenizer it was saved with{load and f': {printable(load)}'}"
        if within is not None:
            what = "fails its proof: on this model its K/V do not reproduce its stored logits"
            remedy = f"Weights and tokenizer are the ones it was saved with. {UNPROVEN[within]}"
        if mixed:
            what = "went on although differences were waived: it is no model's own"
            remedy = "Go on from a snapshot without a waiver"
        whose = f"what was saved at {where}" if where else "what this state was captured from"
        told, why = f"restore refused: {whose} {what}:\n{rows}\n", why and f"{why} "
        blame, stop, _ = remedy.rpartition(". ")
        self.found = f"{told}{why}{blame}{stop}"
        anyway = (
            ", or pass `restore.strict=false` to restore anyway (what was waived is recorded and the verdict is at "
            "best `drifted`)"
        )
        self.remedy = f"{why}{remedy}{anyway * fits}."
        super().__init__(f"{told}{self.remedy}")

    def arguments(self) -> dict[str, object]:
        where = f" at {self.where}" if self.where else None
        return {"where": where, "differences": [str(d) for d in self.differences[:20]]}


def printable(text: str, layout: bool = False) -> str:
    """`text` with everything escaped that a hostile file could play tricks on a terminal with. layout: line ends,
    tabs and wide spaces stay."""
    if text.isprintable():
        return text

    def stays(c: str) -> bool:
        return c.isprintable() or (layout and (c in "\n\t" or (c.isspace() and c > "\x9f")))

    return "".join(c if stays(c) else c.encode("unicode_escape").decode() for c in text)


def suggestion(word: str, known: Sequence[str]) -> str:
    """Return ` Did you mean 'x'?` for the closest of `known`, or a list of what there is."""
    close = [k for k in known if k.lower() == word.lower()]
    close = close or get_close_matches(word, known, n=1, cutoff=0.55)
    if close:
        return f" Did you mean '{close[0]}'?"
    more = f" and {len(known) - MANY} more" if len(known) > MANY else ""
    return f" There is: {', '.join(sorted(known)[: MANY if more else None])}{more}."


class Unreachable(Exception):
    """The tracking server cannot be used now; the result is safe in its folder.

    tried: whether it was asked at all, or known to be away.
    """

    def __init__(self, message: str, tried: bool = True):
        super().__init__(message)
        self.tried = tried
