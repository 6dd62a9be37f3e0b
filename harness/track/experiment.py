"""The experiment that our runs are in: the tags by which its page opens as runs, with columns that tell them
apart, and the address of that page."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.track import names
from harness.track.parent import ABOVE

FIRST = ("attributes.`Created`", "tags.`outcome`")
LAST = ("tags.`conclusion`", "duration")
FIGURES = (
    "logits/top1_agreement",
    "oracle/ratio",
    "size/kv_bytes",
    "size/kept_tokens",
)  # of runs that stand alone; those that a list can show
USUAL = ("cache", "prune")  # where nothing varies
UNTOLD = ("task", "run", "snapshot", "a", "b", "text")  # in every name, or too wide for a column
NOTABLE = ("quantize", "fault")  # told where any run has one
SETTING = ("model", "dtype", "device", "engine")  # and these where runs that stand alone differ
MEASURED = (
    "best/contains",
    "best/kv_bytes",
    "best/top1_agreement",
    "speed/times_faster",
    "answers/contains",
)  # where two runs or more have such a figure, of one it would be an empty column; or where no other has any
MOST, LATEST = 8, 200  # columns of parameters, and runs that are asked for them
NARROW, SHORT = 92, 84  # pixels of a column of figures and of parameters
ROOM = 5  # columns of figures before the sentence, which a window 1600 pixels wide still shows
BEFORE = 3  # columns of parameters before the figures: two of these are in sight at 1280
HELD = ("attributes.`Run Name`", "runDateAndNestInfo")  # what stays at the left, as MLflow calls it
WIDTHS = {
    **dict(zip(HELD, (262, 141))),
    "duration": 68,
    "tags.`outcome`": 104,
    "tags.`conclusion`": 180,
}
VIEW = "mlflow.sharedViewState.harness"


def view(params: Sequence[str] = USUAL, metrics: Sequence[str] = FIGURES) -> str:
    """Our columns as MLflow keeps them: what came out, the first of `params` and of `metrics`, the sentence, and the
    rest of both. Charts draw all runs, not the first ten."""
    figures = [f"metrics.`{key}`" for key in metrics]
    told = [f"params.`{key}`" for key in params]
    columns = [*FIRST, *told[:BEFORE], *figures[:ROOM], *LAST, *figures[ROOM:], *told[BEFORE:]]
    widths = WIDTHS | dict.fromkeys(figures, NARROW) | dict.fromkeys(told, SHORT)
    order = {"selectedColumns": columns, "columnOrder": [*HELD, *columns]}
    return json.dumps({**order, "columnWidths": widths, "runsHiddenMode": "SHOWALL"})


PAGES = "workflowType=machine_learning"  # without it a run's page has the menu of language model applications
KIND = "custom_model_development"  # runs and charts, not traces of language model applications
TAGS = {"mlflow.experimentKind": KIND, VIEW: view()}
NOTE = "mlflow.note.content"
ABOUT = """Transformers that were paused and brought back, each judged beside a run that was never interrupted.

The tag **outcome** says what each came to, **conclusion** in a sentence. The runs of a sweep or an evaluation are below it. The page of a run says how it is run again and audited. To search:

- `tags.verdict = 'diverged'`: another token than the uninterrupted run's
- `attributes.status = 'FAILED'`: worse than was required, refused, or failed
- `params.prune = 'snapkv' and metrics."logits/kl_max" < 0.01`: pruning that costs next to nothing
"""  # of an experiment that we make; its first line is always in sight


def address(server: str, experiment_id: str, run_id: str = "") -> str:
    """Where the browser should go: our experiment's runs, or the one run `run_id`. A password in the server's address
    is left out."""
    shown = f"/{run_id}?{PAGES}" if run_id else f"?viewStateShareKey=harness&{PAGES}"
    return (
        f"{re.sub('//[^/@]*@', '//', server).rstrip('/')}/#/experiments/{experiment_id}/runs{shown}"
    )


def pages(uri: str, experiment_id: str, run_id: str = "") -> dict[str, str]:
    """The address of a run's `page` on a server, and of all `runs` beside one another; a database has none."""
    if not is_server(uri):
        return {}
    return {"page": address(uri, experiment_id, run_id), "runs": address(uri, experiment_id)}


def is_server(uri: str) -> bool:
    """Whether a store has pages of its own."""
    return uri.startswith(("http://", "https://"))


def database(uri: str) -> Path | None:
    """The file of a store that is one."""
    held = re.match(r"sqlite(?:\+\w+)?:///([^?]+)", uri)
    return Path(held[1]) if held else None


def opened(client: Any, name: str, place: str | None) -> str:
    """The id of the experiment `name`, made with its artifacts at `place` if need be; one that lacks our tags
    gets them, where we may give it any. Raises MlflowException."""
    from mlflow.exceptions import MlflowException

    known = client.get_experiment_by_name(name)
    if known is None:
        try:
            return str(client.create_experiment(name, place, {**TAGS, NOTE: ABOUT}))
        except MlflowException:  # another worker was quicker
            known = client.get_experiment_by_name(name)
            if known is None:
                raise
    for tag in [tag for tag in TAGS if tag not in known.tags]:
        with suppress(MlflowException):
            client.set_experiment_tag(known.experiment_id, tag, TAGS[tag])
    return str(known.experiment_id)


def varied(
    runs: Iterable[Mapping[str, str]], first: Sequence[str] = (), alone: Sequence[str] = ()
) -> list[str]:
    """The parameters that tell `runs` apart, at most eight: those of `first` as far as `alone` has room too, those
    of `alone`, then the option of a fault or a quantizer where any run has one, then those with the most runs that
    have another value than most. A run that has none of a name says nothing about it."""
    values: dict[str, Counter[str]] = defaultdict(Counter)
    for params in runs:
        for key, value in params.items():
            values[key][value] += 1
    notable = [key for key in NOTABLE if values[key].keys() - {"none"}]
    kept = [*dict.fromkeys(first)][: MOST - len({*alone} - {*first})]
    begun = list(dict.fromkeys([*kept, *alone, *notable]))[:MOST]
    others = {k: v.total() - max(v.values()) for k, v in values.items() if v and k not in UNTOLD}
    most = sorted((k for k, count in others.items() if count), key=lambda k: -others[k])
    return [*begun, *sorted([k for k in most if k not in begun][: MOST - len(begun)])] or [*USUAL]


def apart(runs: Iterable[Any]) -> list[str]:
    """What the runs that stand alone were run with (model, dtype, device, engine), where that differs."""
    values: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        for key in SETTING if ABOVE not in run.data.tags else ():
            values[key] |= {run.data.params[key]} if key in run.data.params else set()
    return [key for key in SETTING if len(values[key]) > 1]


def swept(runs: Iterable[Any]) -> list[str]:
    """The parameters in which the runs below one run differ, those of the first such run first, of what a task takes
    several of each part's own."""
    below: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for run in runs:
        if above := run.data.tags.get(ABOVE):
            for key, value in run.data.params.items():
                below[above][key].add(value)
    several = (
        names.ranked({k: v for k, v in told.items() if len(v) > 1 and k not in names.EVALUATED})
        for told in below.values()
    )
    return [key for told in several for key in told]


def show(client: Any, experiment_id: str) -> None:
    """Let our view of the experiment have the parameters that vary in it as columns, as far as its latest runs
    say. A sweep's own has lists of values and is left out; a store that can only be read stays as it is."""
    from mlflow.exceptions import MlflowException

    found = client.search_runs([experiment_id], max_results=LATEST)
    runs = [run for run in found if "kind" not in run.data.tags]
    params = varied((run.data.params for run in runs), swept(runs), apart(runs))
    with suppress(MlflowException):
        client.set_experiment_tag(experiment_id, VIEW, view(params, figures(found)))


def figures(runs: Sequence[Any]) -> list[str]:
    """The metrics that are columns. A list shows what is below a sweep or an evaluation folded: so those come first that
    a run which is in sight has."""
    above = [run for run in runs if ABOVE not in run.data.tags]
    alone = [key for key in FIGURES if any(key in run.data.metrics for run in above)]
    least = 2 if alone or not above else 1  # else there is nothing to read in any row
    more = [key for key in MEASURED if sum(key in run.data.metrics for run in runs) >= least]
    return [*(alone or ([] if more and above else FIGURES)), *more]
