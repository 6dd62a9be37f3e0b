"""A sweep loses nothing: points that fail, a sweep that is killed, a store that is away."""

import csv
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tracking import whole

from harness import config
from harness.cli import lines, resume, sweep
from harness.cli.point import same
from harness.config.literal import spelled
from harness.errors import InputProblem
from harness.pipeline.finish import Outcome
from harness.report import summary
from harness.report import sweep as pages
from harness.snapshot import record
from harness.track import contents, description, links, measured
from harness.track.totals import totals

ROOT = Path(__file__).resolve().parents[2]


def table(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "sweep.csv").open()))


def store(runs: Path) -> sqlite3.Connection:
    return sqlite3.connect(runs / "mlflow.db")


def test_one_row_per_point_failed_ones_with_their_reason(swept):
    rows = table(swept)
    assert [r["point"] for r in rows] == [str(i) for i in range(6)]
    assert [r["verdict"] for r in rows[1::2]] == ["failed"] * 3
    assert all("prompt.batch=99" in r["reason"] for r in rows[1::2])
    for row in rows[::2]:
        result = record.read(swept / row["point"] / "result.json")
        assert row["verdict"] == result["verdict"] and row["cache"] == result["options"]["cache"]
        assert float(row["kl_max"]) == result["metrics"]["kl_max"]
        assert float(row["save_s"]) == result["time_s"]["save"]


def test_page_shows_the_verdict_grid_with_links_that_lead_somewhere(swept):
    page = (swept / "sweep.html").read_text()
    for part in (
        "What failed",
        "Verdicts",
        "Size and speed",
        "How far the logits went",
        "Every point",
    ):
        assert part in page
    links = {part.split('"')[0] for part in page.split('href="')[1:]}
    links = {link for link in links if not link.startswith("#")}  # within a picture
    assert {"sweep.csv", "sweep.json"} < links
    assert len(links) == 6 + 2 and all((swept / link).is_file() for link in links)
    assert "src=" not in page and 'href="http' not in page and "url(http" not in page


def test_console_says_how_far_it_is_and_what_failed(swept):
    said = (swept / "console.txt").read_text()
    assert said.startswith("6 points: ") and said.index("folder:  ") < said.index("[1/6]")
    assert "[6/6]" in said and "left" in said and "3 failed" in said
    (first,), (last,) = ([x for x in said.splitlines() if n in x] for n in ("[1/6]", "[6/6]"))
    assert "left" not in first + last  # the first imports, and after the last nothing is left
    assert "sweep.csv" in said and "cache=manual prompt.batch=99" in said
    reason = table(swept)[1]["reason"].splitlines()[0]
    assert said.count(reason[:150]) <= 4  # of three points below their lines, and once at the end
    (line,) = (x for x in said.splitlines() if "[2/6]" in x)
    assert "failed" in line and " .../1: " in line and "point" not in line


def test_mlflow_has_tagged_runs_below_a_parent_with_the_totals(swept, runs):
    base = store(runs)
    tagged = base.execute(
        "select run_uuid from tags where key='sweep' and value=?", (swept.name,)
    ).fetchall()
    assert len(tagged) == 7  # six points and the parent
    parent = json.loads((swept / "sweep.json").read_text())["mlflow"]["run_id"]
    nested = base.execute(
        "select run_uuid, value from tags where key='mlflow.parentRunId'"
    ).fetchall()
    points = {r["mlflow_run_id"] for r in table(swept)}
    assert {run for run, above in nested if above == parent} == points and len(points) == 6
    names = dict(base.execute("select run_uuid, name from runs").fetchall())
    told = "2 exact, 1 equivalent, 3 failed"  # as on the console
    assert (
        names[parent] == f"cache=dynamic,cloned,manual prompt.batch=1,99 name=swept steps=6: {told}"
    )
    assert "manual batch=99: failed" in names.values()
    ((shown,),) = base.execute("select value from experiment_tags where key like '%ViewState%'")
    assert {"params.`cache`", "params.`prompt.batch`"} <= {*json.loads(shown)["columnOrder"]}
    assert "params.`prune`" not in shown, "it is the same in all"
    found = dict(base.execute("select key, value from latest_metrics where run_uuid=?", (parent,)))
    assert found["sweep/points"] == 6 and found["sweep/failed"] == 3
    tags = dict(base.execute("select key, value from tags where run_uuid=?", (parent,)))
    best = next(r for r in table(swept) if f"[{tags['best']}]" == f"[{r['cache']} batch=1]")
    assert found["best/stored_bytes"] == int(best["stored_bytes"])
    assert tags["exit_code"] == str(max(int(r["exit_code"]) for r in table(swept))) == "2"
    assert f"runs/{best['mlflow_run_id']}?" in tags["mlflow.note.content"], "its page"
    assert f"{found['sweep/seconds']:.1f} s (`sweep/seconds`" in tags["mlflow.note.content"]
    states = dict(base.execute("select run_uuid, status from runs").fetchall())
    assert states[parent] == "FAILED"  # as are its points that failed, and no other
    assert {states[r["mlflow_run_id"]] for r in table(swept) if r["verdict"] == "failed"} == {"FAILED"}  # fmt: skip
    assert {states[r["mlflow_run_id"]] for r in table(swept) if r["verdict"] != "failed"} == {"FINISHED"}  # fmt: skip
    rows = [r for r in table(swept) if r["kl_max"]]
    assert found["sweep/largest_kl_max"] == max(float(r["kl_max"]) for r in rows)
    states = base.execute("select status, count(*) from runs group by status").fetchall()
    assert all(status in ("FINISHED", "FAILED") for status, _ in states), states


def test_a_point_whose_configuration_is_no_sound_one_has_its_run_and_its_row(harness, runs):
    """It fails before there is a checked configuration: what Hydra composed stands in for it. In batches only
    what comes next is composed, so nobody looks at all of them before the first."""
    done = harness("-m", "prune=knorm", "prune.ratio=1.5,2.5", "text= let k be 5 .", f"runs_dir={runs}",
                   "name=unsound", "hydra.sweeper.max_batch_size=1", track="mlflow")  # fmt: skip
    assert done.code == 2, done.out
    (place,) = (runs / "unsound").iterdir()
    rows = table(place)
    assert [(r["verdict"], r["prune"], r["model"], r["text"]) for r in rows] == [("failed", "knorm", "tiny", " let k be 5 .")] * 2  # fmt: skip
    assert pages.varied(rows) == ["prune.ratio"]
    base, run = store(runs), rows[1]["mlflow_run_id"]
    status, name = base.execute("select status, name from runs where run_uuid=?", (run,)).fetchone()
    assert (status, name) == ("FAILED", "ratio=2.5: failed")
    params = dict(base.execute("select key, value from params where run_uuid=?", (run,)))
    assert (params["prune.ratio"], params["text"]) == ("2.5", " let k be 5 .")
    tags = dict(base.execute("select key, value from tags where run_uuid=?", (run,)))
    assert tags["reason"] == "prune.ratio=2.5 is not possible: give 0 < ratio <= 1."
    assert "'text= let k be 5 .'" in tags["mlflow.note.content"]
    parent = json.loads((place / "sweep.json").read_text())["mlflow"]["run_id"]
    assert tags["mlflow.parentRunId"] == parent and list(record.broken(place / "1")) == []
    found = dict(base.execute("select key, value from latest_metrics where run_uuid=?", (parent,)))
    assert found["sweep/failed"] == found["sweep/points"] == 2


def test_what_hydra_writes_anew_is_no_other_choice():
    for typed, written in (("a=true", "a=True"), ("a=1e-3", "a=0.001"), ("a='x y'", "a=xy"), ("a=null", "a=NULL")):  # fmt: skip
        assert spelled(typed) == spelled(written)
    assert len({spelled(o) for o in ("a=true", "a=false", "a=1", "a=10", "a=True,False", "a=b", "a=B")}) == 7  # fmt: skip


@pytest.mark.parametrize(
    "override, said, brief",
    [
        ("prune.ratio=0.5", "prune.ratio=0.5", "prune.ratio=0.5"),
        ("snapshot=/far/away/mine", "snapshot=/far/away/mine", "snapshot=mine"),
        ("text=' a, b'", 'text=" a, b"', 'text=" a, b"'),
        ("text='${literal:\"IGxldCBrIGJlIDUgLg==\"}'", 'text=" let k be 5 ."', 'text=" let k be 5 ."'),
    ],
)  # fmt: skip
def test_a_run_is_named_in_words(override, said, brief):
    assert contents.read(override) == said and contents.read(override, True) == brief


def test_every_metric_of_a_point_arrives(swept, runs):
    for point in ("0", "4"):
        result = record.read(swept / point / "result.json")
        found = dict(
            store(runs).execute(
                "select key, value from latest_metrics where run_uuid=?",
                (result["mlflow"]["run_id"],),
            )
        )
        sections = {"logits": "metrics", "noise": "noise_floor", "time": "time_s", "size": "size"}
        for section, block in sections.items():
            wanted = {
                k: v
                for k, v in result[block].items()
                if isinstance(v, int | float) and not isinstance(v, bool)
            }
            flat = measured.FLAT.get(block, ())
            assert wanted and all(
                found[f"{section}/{k}"] == float(v) for k, v in wanted.items() if k not in flat
            )
        assert not any(key.endswith(("bitwise_equal", "mutated")) for key in found)
        steps = store(runs).execute(
            "select step, value from metrics where run_uuid=? and key='by_step/kl' order by step",
            (result["mlflow"]["run_id"],),
        )
        told = list(enumerate(result["curves"]["restored"]["kl"], 1))  # the first step is step 1
        assert sorted(steps) == told


def test_resume_runs_only_what_is_missing(swept, runs, resumed, tmp_path):
    """Killed half-way: one point gone, one half-written; the finished ones are left alone."""
    folder = tmp_path / "half" / swept.name
    shutil.copytree(swept, folder)
    shutil.rmtree(folder / "4")
    (folder / "2" / "record.json").unlink()
    kept = (folder / "0" / "result.json").read_bytes()
    stamp = (folder / "0" / "result.json").stat().st_mtime_ns
    asked = {p: p.stat().st_mtime_ns for p in folder.glob("0/.hydra/*.yaml")}
    code, said = resumed(folder)
    assert code == 2, said  # the failed points fail again
    ran = [line for line in said.splitlines() if line.startswith("[")]
    counts = [line.split("]")[0].strip("[ ") for line in ran]  # the failed ones are not yet done
    assert counts == ["2/6", "3/6", "4/6", "5/6", "6/6"], ran
    assert "cache=dynamic prompt.batch=1" not in said.replace("99", "")
    assert (folder / "0" / "result.json").read_bytes() == kept
    assert (folder / "0" / "result.json").stat().st_mtime_ns == stamp
    assert len(asked) == 3 and {p: p.stat().st_mtime_ns for p in asked} == asked
    assert [r["verdict"] for r in table(folder)] == [r["verdict"] for r in table(swept)]


def test_a_disk_that_is_full_leaves_the_sweep_as_it_is(swept):
    """A limit on the size of files is a real failure to write."""
    before = (swept / "multirun.yaml").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(OSError):
            resume.resumed([f"resume={swept}"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (swept / "multirun.yaml").read_bytes() == before
    assert not list(swept.glob(".multirun*"))


def test_a_changed_point_is_not_taken_for_finished(swept, compose):
    overrides = ["steps=6", f"runs_dir={swept.parent.parent}", "name=swept", "cache=dynamic",
                 "prompt.batch=1"]  # fmt: skip
    cfg = compose(*overrides)
    held = record.read(swept / "0" / "record.json")["config"]
    assert same(cfg, held)
    assert not same(compose(*overrides, "seed=1"), held)


def test_resume_of_what_is_no_sweep(tmp_path):
    with pytest.raises(InputProblem, match="not a sweep"):
        resume.resumed([f"resume={tmp_path}"])
    with pytest.raises(InputProblem, match="leave out steps=3"):
        resume.resumed([f"resume={tmp_path}", "steps=3"])
    with pytest.raises(InputProblem, match="not a sweep"):  # a limit may be another
        resume.resumed([f"resume={tmp_path}", "limit_s=3"])


def test_points_that_end_together_are_counted_one_after_the_other(tmp_path, monkeypatch, capsys):
    """Two workers see each other's records before they tell of their own."""
    for i, name in enumerate(("0", "1", "2")):
        (tmp_path / name).mkdir()
        for file in ("result.json", "record.json"):
            (tmp_path / name / file).write_text("{}")
            os.utime(tmp_path / name / file, ns=(0, (i + 1) * 10**9))
    os.utime(tmp_path / "0" / "result.json")  # its run was uploaded meanwhile
    for key, value in (
        ("folder", tmp_path),
        ("aim", 3),
        ("there", 0),
        ("done", {}),
        ("failed", {}),
        ("first", None),
    ):
        monkeypatch.setattr(sweep.Watch, key, value)
    outcome = Outcome(0, "exact", str(tmp_path))
    for name in ("1", "0", "2"):
        sweep._tell(outcome, name, [], 1.0, {})
    lines = capsys.readouterr().out.splitlines()
    told = [line[:5] for line in lines]
    assert lines[0].endswith("/1"), "nothing was varied: no colon with nothing after it"
    assert told == ["[1/3]", "[2/3]", "[3/3]"], "as the lines are told, whoever was first to write"


def test_resume_of_a_search_goes_on_with_the_same_sweeper(tmp_path):
    told = {
        "task": ["seed=1"],
        "hydra": ["hydra.sweeper.n_trials=6", "hydra/sweeper=optuna", "hydra.mode=MULTIRUN"],
    }
    (tmp_path / "multirun.yaml").write_text(json.dumps({"hydra": {"overrides": told}}))
    words = resume.resumed([f"resume={tmp_path}"])
    assert words[:4] == ["-m", "seed=1", "hydra.sweeper.n_trials=6", "hydra/sweeper=optuna"]
    assert "hydra.mode=MULTIRUN" not in words
    again = resume.resumed([f"resume={tmp_path}", "hydra.sweeper.n_trials=9"])
    assert [w for w in again if "n_trials" in w] == ["hydra.sweeper.n_trials=9"]


def test_resume_goes_on_with_the_launcher_that_there_was_unless_another_is_asked_for(tmp_path):
    ran = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    told = {"task": ["seed=1,2"], "hydra": ran}
    (tmp_path / "multirun.yaml").write_text(json.dumps({"hydra": {"overrides": told}}))
    assert resume.resumed([f"resume={tmp_path}"])[2:4] == ran
    other = resume.resumed([f"resume={tmp_path}", "hydra/launcher=basic"])
    assert "hydra/launcher=basic" in other and not set(ran) & set(other)


def test_a_search_that_draws_other_values_each_time_is_not_resumed(tmp_path):
    hydra = {
        "overrides": {"task": [], "hydra": ["hydra/sweeper=optuna"]},
        "sweeper": {"sampler": {"seed": None}},
    }
    (tmp_path / "multirun.yaml").write_text(json.dumps({"hydra": hydra}))
    with pytest.raises(InputProblem, match="a search without a seed"):
        resume.resumed([f"resume={tmp_path}"])
    hydra["sweeper"]["sampler"]["seed"] = 0
    (tmp_path / "multirun.yaml").write_text(json.dumps({"hydra": hydra}))
    assert "hydra/sweeper=optuna" in resume.resumed([f"resume={tmp_path}"])


def test_a_long_text_is_told_by_how_it_begins():
    done = SimpleNamespace(verdict="exact", reason="", folder="")
    line = lines.point(done, "0", [f"text={'word ' * 200}", "cache=view"], "1.0 s", {})
    assert len(line) < 120 and "word\u2026" in line.replace(" ", "") and line.endswith("cache=view")


def test_the_heading_says_what_would_else_happen_in_silence():
    said = lines._unsaid(["text='one,two'", "steps=4"])
    assert said == [
        """note:    text is one text with a comma, not swept; several: 'text="a","b"'"""
    ]
    assert lines._unsaid(["text='one','two'", "text='one'", "seed=1,2", "sampling=sample"]) == []
    (said,) = lines._unsaid(["prune=random,knorm", "seed=1,2"])
    assert (
        said == "note:    seed draws nothing with sampling=greedy; prune=random draws by prune.seed"
    )
    assert lines._unsaid(["prune=random", "seed=1"]) == []
    said = lines._unsaid(["prune=glob(k*)", "prune=none,knorm", "prune.ratio=0.5"])
    assert said == ["note:    prune.ratio is not read by prune=none, which runs without it"]
    assert lines._unsaid(["prune=glob(k*)", "prune.ratio=0.5"]) == []
    said = lines._unsaid(["steps=4,4,8", "cache=choice(view,view)"])
    assert said[0] == "note:    steps=4 is there more than once, and is run as often"
    assert len(said) == 2 and "cache=view is" in said[1]
    assert lines._unsaid(["steps=4,8", "steps=interval(1,4)"]) == []  # a search draws what it likes


def test_points_are_counted_as_hydra_sweeps_them():
    options = config.options("prune")
    assert config.jobs(["prune=glob(*)", "seed=1,2"]) == 2 * len(options)
    assert config.chosen("prune", ["prune=glob(k*)"]) == [o for o in options if o[0] == "k"] != []
    assert config.jobs(["cache=a,b", "seed=range(3)", "steps=4", "name=choice(x,y)"]) == 12
    assert config.jobs(["seed=1,2", "seed=1,2,3"]) == 3
    assert config.jobs(["steps=4"]) == 1


@pytest.mark.parametrize("axis", ["prune.ratio=interval(0.1, 0.9)", "seed=tag(t, 1, 2", "a=[1,"])
def test_points_of_another_grammar_only_their_sweeper_counts(axis):
    assert config.jobs([axis, "seed=1,2"]) is None


SIX = ("steps=4", "prompt=text", "seed=range(6)")
FIFTY = ("model=tiny", "cache=dynamic,cloned,static,view,manual",
         "save=safetensors,torch,pickle,gzip,blosc2", "prune=none,keep_last")  # fmt: skip


@pytest.mark.parametrize(
    "points, varied", [(6, SIX), pytest.param(50, FIFTY, marks=pytest.mark.slow)]
)
def test_killed_sweep_is_finished_by_resume(tmp_path, shell, points, varied):
    """A real SIGKILL half-way; then the rest, and only the rest."""
    runs = tmp_path / "runs"
    command = [sys.executable, "-m", "harness", "-m", *varied, f"runs_dir={runs}", "name=killed"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    give_up = time.time() + 240
    while len(list(runs.glob("killed/*/*/result.json"))) < points // 2 and time.time() < give_up:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (folder,) = (runs / "killed").iterdir()
    before = {p: p.stat().st_mtime_ns for p in folder.glob("*/record.json")}
    assert points // 2 - 1 <= len(before) < points and not (folder / "sweep.csv").exists()
    done = shell("-m", f"resume={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(p.stat().st_mtime_ns == before[p] for p in before)
    ran = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(ran) == points - len(before), done.stdout
    whole(runs / "mlflow.db", folder, points)
    assert [r["point"] for r in table(folder)] == [str(i) for i in range(points)]
    links = set((folder / "sweep.html").read_text().split('href="')[1:])
    assert len({link.split('"')[0] for link in links if link[0].isdigit()}) == points


def test_resume_with_nothing_left_says_so_and_names_points_of_other_code(swept, resumed, tmp_path):
    folder = tmp_path / "done" / swept.name
    shutil.copytree(
        swept, folder, ignore=lambda _, names: [n for n in names if n in ("1", "3", "5")]
    )
    tree = folder / "multirun.yaml"
    tree.write_text(tree.read_text().replace("prompt.batch=1,99", "prompt.batch=1"))
    for i, old in enumerate(("0", "2", "4")):
        (folder / old).rename(folder / f"moved{i}")
    for i in range(3):
        (folder / f"moved{i}").rename(folder / str(i))
    result = record.read(folder / "1" / "result.json")
    result["environment"]["code"] = "0" * 64
    record.write_json(folder / "1" / "result.json", result)
    os.utime(folder / "1" / "result.json")
    code, said = resumed(folder)
    assert code == 0, said
    assert "3 points were there, 0 were run now" in said
    assert "other code:   .../1 ran before the code changed" in said


def test_the_parent_run_describes_what_was_varied(swept):
    text = summary.markdown(pages.rows(sweep.finished(swept)))
    head, _, first, second = text.splitlines()[:4]
    assert head == "| folder | cache | prompt.batch | outcome | reason |"
    assert first.startswith("| 0 | dynamic | 1 | exact |") and "| 99 | failed |" in second


def test_a_point_is_named_by_what_was_varied(tmp_path):
    """Hydra spells a point's overrides its own way; what is shared by all is left out."""
    (tmp_path / "multirun.yaml").write_text(
        "hydra: {overrides: {task: ['seed=1,2', 'track.uri=http://127.0.0.1:9', \"text='a b'\"]}}"
    )
    (tmp_path / "0" / ".hydra").mkdir(parents=True)
    (tmp_path / "0" / ".hydra" / "overrides.yaml").write_text(
        r"['seed=1', 'track.uri=http\://127.0.0.1\:9', 'text=a\ b']"
    )
    assert contents.varied(tmp_path / "0") == ["seed=1"]


def test_pages_of_a_single_point(tmp_path, swept):
    """Nothing was varied: no grid, still a table."""
    shutil.copytree(swept / "0", tmp_path / "0")
    found = pages.rows([tmp_path / "0"])
    pages.write(tmp_path, found, None)
    assert "Every point" in (tmp_path / "sweep.html").read_text()


def test_a_sweeps_description_leads_to_its_points_side_by_side():
    """The addresses are those of MLflow 3.17's own pages."""
    text = links.comparison("1", "abc", ["r1", "r2"])
    assert "[Compare the 2 points](#/compare-runs?runs=%5B%22r1%22%2C%22r2%22%5D&experiments=%5B%221%22%5D&workflowType=machine_learning)" in text  # fmt: skip
    assert "tags.%60mlflow.parentRunId%60%20%3D%20%27abc%27" in text
    many = links.comparison("1", "abc", [f"{i:032x}" for i in range(1000)])
    assert "first 50 points" in many and "all 1000" in many and len(many) < 3000
    assert links.comparison("1", "abc", ["r1"]) == ""


@pytest.mark.parametrize("many", (60, 5000))
def test_a_description_ends_with_a_row_below_the_limit_of_a_tag(tmp_path, many):
    """MLflow would cut it within a word, and say so on the console."""
    rows = [f"| {i} | {'x' * 140} |" for i in range(many)]
    table = ["| folder | reason |", "|---|---|", *rows]
    text = description.of_sweep("words", "", "", "\n".join(table))
    *told, blank, last = text.splitlines()
    assert 7700 < len(text) <= description.LIMIT
    assert [line.replace("&emsp;", "") for line in told[2:]] == table[: len(told) - 2]
    assert (blank, last) == ("", f"{many - (len(told) - 4)} more rows.")
    whole = description.of_sweep("words", "", "", "\n".join(table[:40]))
    assert whole.replace("&emsp;", "").endswith(table[39])
    parts = [{"name": row, "metrics": {"kl": 1.0}} for row in rows]
    result = {"task": "experiment", "reason": "r", "verdict": "unjudged", "folder": "f"}
    note = description.note(result, "id", tmp_path, parts)
    assert len(note) <= description.LIMIT and note.endswith("task=audit run=id`")
    there = description.there("http://me:word@host:5000", "mine")
    note = description.note(result, "id", tmp_path, parts, there)
    assert note.endswith("task=audit run=id track.uri=http://...@host:5000 track.experiment=mine`")
    assert description.there(None, "harness") == ""
    refused = {**result, "reason": "\n".join(["refused:", *rows])}
    note = description.note(refused, "id", tmp_path)
    assert 7700 < len(note) <= description.LIMIT and note.splitlines()[-1] in rows


def test_a_search_tells_its_objectives_to_its_parent_run():

    rows = [
        {"verdict": "unjudged", "point": str(value), "evaluate.contains": value}
        for value in (0.5, None, 1.0)
    ]
    best = [told for told in totals(rows, ["evaluate.contains"], (), "1.0") if "best" in told[0]]
    assert best == [("best/contains", 1.0, 0)]
    told = list(totals(rows, ["evaluate.contains"]))
    assert ("sweep/largest_contains", 1.0, 0) in told
    older = dict.fromkeys(["sweep/largest_evaluate.contains", "best/contains"])
    kept = {key: value for key, value, _ in totals(rows, ["evaluate.contains"], older)}
    assert kept["sweep/largest_evaluate.contains"] == 1.0, "as an older version called it"
    assert kept["best/contains"] != kept["best/contains"], "none is best any more"
    assert not any(step for *_, step in told), (
        "of a series the last point's would pose as the sweep's"
    )
    assert "sweep/exact" not in {key for key, *_ in told}  # nothing to draw
    assert ("sweep/exact", 0.0, 0) in totals(
        rows, before=["sweep/exact"]
    )  # a later try may correct it
    alike = [{"verdict": "exact", "kl_max": value} for value in (0.0, 0.0)]
    assert {key for key, *_ in totals(alike)} == {"sweep/points", "sweep/exact"}


def test_a_sweep_without_a_choice_says_what_was_varied_and_how_it_came_out():
    rows = [{"point": str(i), "verdict": "equivalent", "reason": "", "exit_code": 0, "seed": str(i),
             "error_ratio": 0.3 + i / 10, "stored_bytes": 145408 * (1 + i)} for i in range(2)]  # fmt: skip
    said = "Varied: seed; the largest error is 0.4 of rounding's own (2 allowed); 142 KiB to 284 KiB on disk."
    assert summary.measured(rows) == said and summary.measured([]) == ""


def test_a_search_is_described_by_its_front_and_its_best_and_not_by_verdicts():
    ways = {"evaluate.contains": 1, "evaluate.kv_bytes": -1}
    rows = [
        {"point": str(i), "verdict": "unjudged", "outcome": "done", "exit_code": 0, "reason": "r",
         "prune.ratio": f"0.{i}", "evaluate.contains": 1.0, "evaluate.kv_bytes": size}
        for i, size in enumerate((204800.0, 102400.0))
    ]  # fmt: skip
    words, sentence = summary.told(rows, ways)
    assert (words, sentence) == (
        "2 points searched",
        "1 of 2 on the Pareto front. The best: prune.ratio=0.1 (share of right answers 1 at 100 KiB).",
    )
    assert summary.told(rows, ways, 2) == (words, sentence)
    words_of, so_far = summary.told(rows, ways, 9)
    assert words_of == f"2 of 9 points: {words}" and so_far.startswith("2 of 9 points, 1 of 2 on")
    table = summary.markdown(rows, ways)
    assert table.splitlines()[0] == "| folder | prune.ratio | evaluate.contains | evaluate.kv_bytes | front |"  # fmt: skip
    assert table.splitlines()[2:] == ["| 0 | 0.0 | 1 | 200 KiB |  |", "| **1** (best) | 0.1 | 1 | 100 KiB | \u25c6 |"]  # fmt: skip
    assert description.of_sweep(words, sentence, "LINKS ", table).startswith(
        f"**{words}**\n\n{sentence}\n\nLINKS |"
    )
    grid = [{k: v for k, v in row.items() if "evaluate" not in k} for row in rows]
    assert summary.told(grid, {}, 9) == ("2 of 9 points: 2 done", "")  # nothing to choose
    assert summary.told(grid, {})[0] == "2 done"  # nothing was asked: nothing is unjudged either
    saved = [{**row, "outcome": "saved"} for row in grid]
    assert summary.told(saved, {})[0] == "2 saved"
    judged = [{**row, "verdict": "exact", "outcome": "exact"} for row in rows]
    assert summary.told(judged, ways)[0] == "2 exact", "what was judged is counted"
    assert "| outcome | reason |" in summary.markdown(judged, ways)


def test_a_description_has_what_was_measured_and_each_sentence_once(tmp_path):
    nothing = dict.fromkeys(("kl_max", "top1_agreement"))
    result = {"task": "evaluate", "verdict": "unjudged", "reason": "24 prompts: all right", "metrics": nothing,
              "conclusion": "24 prompts: all right.", "folder": "f"}  # fmt: skip
    cells = [{"name": "full cache", "metrics": {"answers/contains": 1.0, "size/kv_bytes": 10}},
             {"name": "knorm 50%", "metrics": {"answers/contains": 0.25}}]  # fmt: skip
    note = description.note(result, "id", tmp_path, cells)
    assert note.count("24 prompts: all right") == 1 and "None" not in note and "kl_max" not in note
    table = ("| &emsp; | contains (share)&emsp; | kv_bytes |", "|---|---|---|", "| full&nbsp;cache&emsp; | 1&emsp; | 10 bytes |",
             "| knorm&nbsp;50%&emsp; | 0.25&emsp; | - |", "", "&nbsp;", "", "Folder: `f`")  # fmt: skip
    assert "\n".join(table) in note, "MLflow draws no room around a cell"
    marked = description.note(
        result, "id", tmp_path, [cells[0] | {"as": "best"}, cells[1]], None, "LINKS\n\n"
    )
    assert (
        "\n\nLINKS\n\n| &emsp;" in marked and "| **full&nbsp;cache**&nbsp;(best)&emsp; |" in marked
    )
    assert "|" not in description.note(result, "id", tmp_path)  # nothing measured, no table
    judged = {
        **result,
        "task": "experiment",
        "metrics": {**nothing, "kl_max": 2.0, "bitwise_equal": False},
    }
    assert "`time/` are seconds" in description.note(
        judged | {"time_s": {"load": 1.0}}, "id", tmp_path
    )
    note = description.note({**judged, "reason": "other tokens"}, "id", tmp_path, cells)
    assert (
        "| kl_max (nats)&emsp; | 2&emsp; | - |\n| bitwise_equal&emsp; | no&emsp; | - |" in note
        and "top1" not in note
        and "other tokens" in note
    )


def test_a_point_of_a_search_is_named_by_the_figures_that_it_was_asked_for(tmp_path):
    result = {"task": "evaluate", "verdict": "unjudged", "size": {"kv_bytes": 173568}}
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert contents.word(result, tmp_path) == ""
    config = {"config": {"report": {"objectives": ["size.kv_bytes", "size.no"]}}}
    (tmp_path / "record.json").write_text(json.dumps(config))
    assert contents.word(result, tmp_path) == "kv_bytes 170 KiB, no -"
    assert contents.word({**result, "verdict": "failed"}, tmp_path) == "failed"
    assert "verdict" not in contents.tags(result, tmp_path)
    assert contents.tags({**result, "task": "experiment"}, tmp_path)["verdict"] == "unjudged"
