"""Links from the description of a run to others: those below it side by side, the one that it audits, those that left
what it read."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness import machine
from harness.config import launched
from harness.snapshot.digest import digest_document
from harness.track import contents, parent, provenance
from harness.track import snapshot as written
from harness.track.parent import ABOVE

COMPARED = 50  # points of a sweep in one comparison
GOES_ON = "evaluate"  # a task that the same command goes on with where it was stopped
PAGES = "workflowType=machine_learning"
SAME = 100  # latest runs of one state, among which the one is looked for that left it at its place
AT_FIRST = 10  # runs that MLflow's charts show before one asks for more
DRAWN = " (MLflow may draw ten at first: the eye above its list shows the rest)"
COMMAND = (
    "command_digest"  # the tag of a stopped run that the same command goes on from: what that is
)
NOTE = "mlflow.note.content"
BETWEEN = " \u00b7 "


def comparison(experiment: str, above: str, points: list[str], called: str = "points") -> str:
    """To the runs below `above` side by side, a sweep's points: MLflow's own comparison (of so many that its address
    stays short), and their charts. called: what they are."""
    if len(points) < 2:
        return ""
    some = points[:COMPARED]
    runs, where = (quote(json.dumps(ids, separators=(",", ":"))) for ids in (some, [experiment]))
    which = f"the {'first ' * (len(some) < len(points))}{len(some)} {called}"
    if called == "faults":  # one of which is a control, without a fault
        which = f"the {machine.many(len(points) - 1, 'fault')} and the control"
    asked = quote(f"tags.`{ABOVE}` = '{above}'")
    charts = f"#/experiments/{experiment}/runs?searchFilter={asked}&compareRunsMode=CHART&{PAGES}"
    charts += f"&orderByKey={quote('tags.`mlflow.runName`')}&orderByAsc=true"  # by time it would fold them
    return (
        f"**[Compare {which}](#/compare-runs?runs={runs}&experiments={where}&{PAGES})**{BETWEEN}"
        f"[the charts of all {len(points)}]({charts}){DRAWN * (len(points) > AT_FIRST)}\n\n"
    )


def of_sweep(
    experiment: str, above: str, points: Mapping[str, str], best: str, many: int = 1
) -> str:
    """All that a sweep's description leads to. points: folder as tagged -> run id. best: the folder of its marked
    point. many: how many are marked."""
    mine = [run_id for folder, run_id in points.items() if Path(folder).name == best]
    one = "".join(f"{opened(experiment, run_id, marked(many))}\n\n" for run_id in mine)
    return comparison(experiment, above, list(points.values())) + one


def marked(many: int) -> str:
    """What the point is called that stands for a sweep. many: how many it marks."""
    return "the first marked point" if many > 1 else "the marked point"


def opened(experiment: str, run_id: str, what: str = "the audited run") -> str:
    """To one run. what: which it is."""
    return f"**[Open {what}](#/experiments/{experiment}/runs/{run_id}?{PAGES})**"


def of(client: Any, experiment: str, run_id: str, result: dict[str, Any], below: Sequence[str], called: str) -> str:  # fmt: skip
    """All that the description of the run `run_id` leads to. below: the runs below it, which are `called` so."""
    if of := result.get("audit_of") and parent.there(client, result["audit_of"]):
        return f"{opened(of.info.experiment_id, of.info.run_id)}\n\n"
    compared = comparison(experiment, run_id, list(below), called)
    started = client.get_run(run_id).data.tags
    sources = []
    for what, (snapshot, place) in _read(result, provenance.of(started)).items():
        others = [r for r in _left(client, experiment, snapshot) if r.info.run_id != run_id]
        whole = Path(started.get("directory", ""), place)
        mine = [run for run in others if place and _at(run, whole)]
        if others:
            said = "the run that left" if mine else "a run that left the same state as"
            sources.append(opened(experiment, (mine or others)[0].info.run_id, f"{said} {what}"))
    return compared + f"{BETWEEN.join(sources)}\n\n" * bool(sources)


def backwards(client: Any, experiment: str, run_id: str, result: dict[str, Any], folder: Path) -> None:  # fmt: skip
    """Say on earlier runs what became of them in the run `run_id`: on one that it audited, on those it went on from."""
    audited(client, run_id, result, folder)
    if result.get("task") == GOES_ON:
        continued(client, experiment, run_id, launched.of_point(folder))


def request(command: str) -> dict[str, str]:
    """The tag by which a stopped run is found once `command` has gone on from it; none where nobody typed one."""
    return {COMMAND: digest_document(command)[:32]} if command else {}


def continued(client: Any, experiment: str, run_id: str, command: str) -> None:
    """Have the stopped runs of `command` lead to the run `run_id`, which has come to the end of it."""
    for tag, value in request(command).items():
        wanted = f"tags.{tag} = '{value}' and attributes.status = 'KILLED'"
        for run in client.search_runs([experiment], wanted):
            if "superseded" in run.data.tags:
                continue
            link = opened(experiment, run_id, "the run that went on from there and came to its end")
            client.set_tag(run.info.run_id, "superseded", run_id)
            client.set_tag(run.info.run_id, NOTE, f"{link}\n\n{run.data.tags.get(NOTE, '')}")


def audited(client: Any, run_id: str, result: dict[str, Any], folder: Path) -> None:
    """Say on the run that was audited, where it is there, what the latest audit of it, the run `run_id` in `folder`,
    came to. Of a copy elsewhere that differs nothing is said: the run's own files may be as they were."""
    of = result.get("audit_of") and parent.there(client, result["audit_of"])
    if not of or of.info.lifecycle_stage != "active":
        return
    where = Path(str(contents.audited(folder).get("run") or ""))
    word = contents.word(result, folder)
    if word == "same" or where.resolve() == provenance.of(of.data.tags).resolve():
        client.set_tag(of.info.run_id, "audited", f"{word} (run {run_id})")


def _read(result: dict[str, Any], folder: Path) -> dict[str, tuple[str, str]]:
    """The id and the place of each snapshot that the run in `folder` has read, by what it is to it."""
    sides = {
        key: (side.get("id"), side.get("path")) for key, side in (result.get("sides") or {}).items()
    }
    place = (
        (result.get("snapshot") or {}).get("path")
        if result.get("task") == written.READING
        else None
    )
    place = place or contents.config(folder).get("snapshot")
    told = {"its snapshot": (written.parent(result), place), **sides}
    return {what: (str(own), str(place or "")) for what, (own, place) in told.items() if own}


def _left(client: Any, experiment: str, snapshot: str) -> list[Any]:
    """The runs that left a snapshot of this id, the latest first: the same state has the same id wherever it lies."""
    asked = f"tags.snapshot_id = '{snapshot}'"
    return client.search_runs([experiment], asked, max_results=SAME) if snapshot.isalnum() else []


def _at(run: Any, place: Path) -> bool:
    """Whether what a run left lies at `place`: in its folder, or where `out=` said."""
    tags, (folder, whole) = run.data.tags, map(_plain, (provenance.of(run.data.tags), place))
    out = tags.get("out") and _plain(Path(tags.get("directory", ""), tags["out"]))
    inside = bool(tags.get("folder")) and folder in whole.parents
    return inside or (bool(out) and out in (whole, *whole.parents))


def _plain(place: Path) -> Path:
    """Without `..` and `~`, which a person may type."""
    return Path(os.path.normpath(place.expanduser()))
