"""`resume=DIR` on the command line: the rest of a sweep, or the upload of a run that is pending."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from harness import machine
from harness.cli.arguments import check_folder, chosen_primary, parted
from harness.config import launched
from harness.config.launched import options_dir, primary
from harness.config.literal import decoded
from harness.config.tracking import USUAL, check_experiment, check_uri
from harness.errors import ConfigProblem, InputProblem
from harness.snapshot.record import NAME, PENDING
from harness.snapshot.result import write_text
from harness.variants import config_dirs

MOVED = "track.uri="  # the tracking server may have another address by now
RENAMED = "track.experiment="  # of a single run: what it was to go into may be deleted by now
PLACES = ("hydra.sweep.dir", "hydra.run.dir", "hydra.mode")  # which the resume itself sets
PLUGINS = ("launcher", "sweeper")  # another one has keys of its own


def resumed(arguments: list[str]) -> list[str]:
    """`resume=DIR` becomes the sweep's recorded overrides in its old directory.

    All that was typed is taken from the record, of Hydra's own settings too, and its `--config-dir`; flags,
    `limit_s`, `track.uri`, and what is typed of Hydra anew, come from the command line: another launcher or sweeper
    with all its keys. Raises InputProblem when DIR is no sweep, or a search that would draw other values for its finished
    points; ConfigProblem when its options are gone; OSError where nothing can be written.
    """
    typed = [a for a in arguments if a.startswith("resume=")]
    if not typed:
        return arguments
    folder = Path(typed[-1].removeprefix("resume=")).expanduser()
    flags, others = parted([a for a in arguments if a not in (*typed, "-m", "--multirun")])
    heeded = ("hydra", "+hydra", "limit_s=", MOVED)
    if wrong := [a for a in others if not a.startswith(heeded)]:
        raise InputProblem(
            f"resume={folder} repeats the sweep's own points; leave out {' '.join(wrong)}."
        )
    try:
        import yaml

        text = (folder / "multirun.yaml").read_text("utf-8")
        tree = yaml.safe_load(text)
        recorded = [str(a) for a in tree["hydra"]["overrides"]["task"]]
        recorded = [a for a in recorded if not a.startswith(MOVED) or not _named(a, others)]
        before = [str(a) for a in tree["hydra"]["overrides"]["hydra"]]
        kept = [a for a in before if not _named(a, [*others, *PLACES]) and not _replaced(a, others)]
        sampler = (tree["hydra"].get("sweeper") or {}).get("sampler") or {}
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        raise InputProblem(f"resume={folder}{_no_sweep(folder)}") from None
    grid = str(sampler.get("_target_")).endswith("GridSampler")  # walks its grid in no order
    if grid or ("seed" in sampler and sampler["seed"] is None):
        remedy = "the values themselves, KEY=A,B" if grid else "hydra.sweeper.sampler.seed=0"
        raise InputProblem(
            f"resume={folder} is a search without a seed: it would draw other values and write over the points "
            f"that are there. Begin one with {remedy}; these points stay as they are."
        )
    if not config_dirs(flags):
        flags += options_dir(folder)
    if not chosen_primary(flags):
        flags += primary(folder)
    check_folder([*flags, *kept])
    aged = (folder / "multirun.yaml").stat()
    write_text(folder / "multirun.yaml", text)  # where the disk is full, before Hydra empties it
    os.utime(folder / "multirun.yaml", ns=(aged.st_atime_ns, aged.st_mtime_ns))
    return ["-m", *flags, *recorded, *kept, *others, f"hydra.sweep.dir={json.dumps(str(folder))}"]


def check_place(folder: Path, whose: str) -> None:
    """Raise ConfigProblem where the records of a job would lie in the working directory itself or above it, but for
    a sweep that is there. whose: the key that says so."""
    here = Path.cwd()
    if here.is_relative_to(folder.resolve()) and not (folder / "multirun.yaml").is_file():
        raise ConfigProblem(
            f"{whose}={folder} is the working directory or one above it, and a record has a folder of its own. "
            f"Choose another {whose}, or leave it out."
        )


def check_apart(folder: Path) -> None:
    """Raise ConfigProblem where a single run in `folder` would be taken for a point of the sweep that it lies in."""
    if (folder.parent / "multirun.yaml").is_file():
        raise ConfigProblem(
            f"{folder.parent} is the folder of a sweep, which would count a run in {folder.name} below it as a point of "
            "its own. Choose another hydra.run.dir."
        )


def check_run(folder: Path, typed: list[str], main: list[str]) -> None:
    """Raise ConfigProblem where the sealed record of a run that was typed otherwise lies in `folder`, which one
    of `typed` would write over, or a sweep's. main: the flags of its primary config, as of `primary`."""
    if (folder / "multirun.yaml").is_file():
        raise ConfigProblem(
            f"{folder} is the folder of a sweep, whose record a run in it would mix with its own. Choose another "
            "hydra.run.dir."
        )
    try:
        ended = json.loads((folder / "result.json").read_text("utf-8"))["verdict"] != "failed"
    except (OSError, ValueError, KeyError, TypeError):
        return
    if (before := launched.typed(folder)) is None:
        return
    if (
        ended
        and (folder / NAME).is_file()
        and (_asked(before) != _asked(typed) or primary(folder) != main)
    ):
        told = " ".join([*primary(folder), *map(decoded, before)]) or "nothing typed"
        raise ConfigProblem(
            f"{folder} holds the record of another run ({told}), which would "
            "be written over. Choose another hydra.run.dir (in a sweep hydra.sweep.subdir), or delete it."
        )


def check(folder: Path, typed: list[str], params: Mapping[str, str] | None, runs_dir: str) -> None:
    """Raise ConfigProblem where points of a sweep that was typed otherwise lie in `folder`, which one of
    `typed` would write over, or the record of a run, or runs that are no points of it, or all runs will lie there.
    params: what a file varies, by `hydra.sweeper.params`, where the order of its values numbers the points."""
    import yaml

    if not (folder / "multirun.yaml").is_file():
        runs = [p.parent for p in (folder / "result.json", *folder.glob("*/result.json")) if p.is_file()]  # fmt: skip
        all_runs = folder.resolve() == Path(runs_dir).resolve()
        if runs or all_runs:
            which = runs[0].name if runs else f"runs_dir={runs_dir}"
            raise ConfigProblem(
                f"{folder} is the folder of other runs ({which}), which the sweep would take for its own. "
                "Choose another hydra.sweep.dir."
            )
    try:
        tree = yaml.safe_load((folder / "multirun.yaml").read_text("utf-8"))
        before = [str(a) for a in tree["hydra"]["overrides"]["task"]]
        sweeper = tree["hydra"].get(
            "sweeper", {"params": params}
        )  # not in one of which less was kept
        varied = {str(k): str(v) for k, v in (sweeper.get("params") or {}).items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        return
    if _asked(before) != _asked(typed) and any(folder.glob("*/result.json")):
        raise ConfigProblem(
            f"{folder} holds the points of another sweep ({' '.join(map(decoded, before))}), which would be written "
            "over. Choose another hydra.sweep.dir; -m resume=DIR goes on with the one that is there."
        )
    other = [k for k in {**varied, **(params or {})} if varied.get(k) != (params or {}).get(k)]
    if params is not None and other and any(folder.glob("*/result.json")):
        key = other[0]
        was, now = (some.get(key, "not varied") for some in (varied, params))
        raise ConfigProblem(
            f"{folder} holds the points of a sweep whose hydra.sweeper.params.{key} was {was} and is {now} by now: its "
            "points would be others. Put it back where a file says it, or begin another sweep."
        )


def keep(folder: Path, typed: list[str]) -> Callable[[], None]:
    """What puts the `multirun.yaml` that is in `folder` now back as it was, for a resume that found nothing to do: Hydra
    writes it whatever there is. Does nothing where none was there, or one that was typed otherwise than `typed`."""
    import yaml

    file = folder / "multirun.yaml"
    try:
        text, aged = file.read_text("utf-8"), file.stat()
        same = list(map(str, yaml.safe_load(text)["hydra"]["overrides"]["task"])) == typed
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError):
        same = False

    def back() -> None:
        if same:
            write_text(file, text)
            os.utime(file, ns=(aged.st_atime_ns, aged.st_mtime_ns))

    return back


def _asked(overrides: list[str]) -> set[str]:
    """The overrides but for those of which nothing is measured."""
    keys = {o: o.lstrip("+").partition("=")[0].partition(".")[0] for o in overrides}
    return {o for o, key in keys.items() if key not in ("track", "report", "limit_s")}


def _named(override: str, others: list[str]) -> bool:
    """Whether the command line says the key of `override` anew."""
    return any(_key(other) == _key(override) for other in others)


def _replaced(override: str, others: list[str]) -> bool:
    """Whether it is a key of a launcher or sweeper in whose place the command line puts another."""
    return any(
        _key(override).startswith(f"hydra.{kind}.") and _named(f"hydra/{kind}", others)
        for kind in PLUGINS
    )


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


def _no_sweep(folder: Path) -> str:
    """Why there is nothing to resume in `folder`, and where there is."""
    if not folder.is_dir():
        return ": there is no such directory. Give the one that `python -m harness -m ...` wrote."
    if sweeps := [p for depth in ("*", "*/*") for p in folder.glob(f"{depth}/multirun.yaml")]:
        newest = max(sweeps, key=lambda file: (file.stat().st_mtime_ns, file)).parent
        return f" holds {machine.many(len(sweeps), 'sweep')}; the newest is resume={newest}"
    return (
        " is not a sweep: it holds no readable multirun.yaml. Give the directory that "
        "`python -m harness -m ...` wrote."
    )


def delivered(arguments: list[str]) -> str | None:
    """`resume=RUN` of a single run uploads it to its tracking server, or to that of `track.uri=`, into its experiment
    or that of `track.experiment=`; what to say then.

    None when nothing asks for that. Raises InputProblem when the server is still away, and for any other key;
    ConfigProblem for an address that no server can have.
    """
    places = [Path(a.removeprefix("resume=")).expanduser() for a in arguments if a.startswith("resume=")]  # fmt: skip
    if not places or (places[-1] / "multirun.yaml").exists() or not (places[-1] / NAME).is_file():
        return None
    run = places[-1]
    _, others = parted(arguments)
    if wrong := [a for a in others if not a.startswith(("resume=", MOVED, RENAMED))]:
        raise InputProblem(f"resume={run} uploads that run; leave out {' '.join(wrong)}.")
    uris = [a.removeprefix(MOVED).strip("'\"") for a in arguments if a.startswith(MOVED)]
    moved = {"uri": None if uris[-1] == "null" else uris[-1]} if uris else {}
    check_uri(moved.get("uri"))
    names = [a.removeprefix(RENAMED).strip("'\"") for a in arguments if a.startswith(RENAMED)]
    moved |= {"experiment": names[-1]} if any(names) else {}
    check_experiment(moved.get("experiment") or USUAL)
    if not (run / PENDING).exists():
        return f"{run} is complete; there is nothing to upload."
    from harness.track import upload

    problem = upload([run], **moved)
    if problem or (run / PENDING).exists():
        from harness.pipeline.finish import remedy

        typed = [word for word in others if word.startswith((MOVED, RENAMED))]
        problem = problem or f"{run} was not uploaded: its server is away."
        raise InputProblem(f"{problem} {remedy(run, problem, True, typed)}")
    from harness.report.terminal.tracked import places as told

    tracked = json.loads((run / "result.json").read_text("utf-8")).get("mlflow") or {}
    said = [f"{label + ':':<14}{words}" for label, words in told(tracked)] if tracked else []
    return "\n".join([f"{run} was uploaded.", *said])
