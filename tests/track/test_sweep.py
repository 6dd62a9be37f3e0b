"""A tracked sweep: a row, a run and a line for each of its points, and what is missing is run again."""

import json
import os
import re
import resource
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from stores import client, store, table

from harness import config
from harness.cli import lines, resume, sweep
from harness.pipeline.finish import Outcome
from harness.report.sweep import write
from harness.results import points as pages
from harness.snapshot import record
from harness.track import metrics


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
        "Error, bytes and speed",
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
    told = "3 failed, 2 exact, 1 equivalent"  # as on the console
    assert names[parent] == f"cache=dynamic,cloned,manual prompt.batch=1,99 steps=6: {told}"
    assert "cache=manual prompt.batch=99: failed" in names.values()
    found = dict(base.execute("select key, value from latest_metrics where run_uuid=?", (parent,)))
    assert found["sweep/points"] == 6 and found["sweep/failed"] == 3
    tags = dict(base.execute("select key, value from tags where run_uuid=?", (parent,)))
    best = next(r for r in table(swept) if tags["best"] == f"cache={r['cache']} prompt.batch=1")
    assert found["best/stored_bytes"] == int(best["stored_bytes"])
    assert tags["exit_code"] == str(max(int(r["exit_code"]) for r in table(swept))) == "2"
    assert found["sweep/seconds"] > 0
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
    assert (status, name) == ("FAILED", "prune.ratio=2.5: failed")
    params = dict(base.execute("select key, value from params where run_uuid=?", (run,)))
    assert (params["prune.ratio"], params["text"]) == ("2.5", " let k be 5 .")
    tags = dict(base.execute("select key, value from tags where run_uuid=?", (run,)))
    assert tags["reason"] == "prune.ratio=2.5 is not possible: give 0 < ratio <= 1."
    parent = json.loads((place / "sweep.json").read_text())["mlflow"]["run_id"]
    assert tags["mlflow.parentRunId"] == parent and list(record.broken(place / "1")) == []
    found = dict(base.execute("select key, value from latest_metrics where run_uuid=?", (parent,)))
    assert found["sweep/failed"] == found["sweep/points"] == 2


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
            flat = metrics.ALIKE if section == "noise" else ()
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


def test_a_long_text_is_told_by_how_it_begins():
    done = SimpleNamespace(verdict="exact", reason="", folder="")
    line = lines.point(done, "0", [f"text={'word ' * 200}", "cache=view"], "1.0 s", {})
    assert len(line) < 120 and "word\u2026" in line.replace(" ", "") and line.endswith("cache=view")


def test_a_point_is_told_in_the_word_of_its_task(tmp_path):
    (tmp_path / "result.json").write_text('{"task": "audit", "verdict": "diverged", "metrics": {}}')
    done = SimpleNamespace(verdict="diverged", reason="edited", folder=str(tmp_path))
    assert lines.point(done, "0", [], "1.0 s", {}) == "differs    1.0 s .../0"


def test_the_heading_says_what_would_else_happen_in_silence():
    said = lines._unsaid(["prune=glob(k*)", "prune=none,knorm", "prune.ratio=0.5"])
    assert said == ["note:    prune.ratio is not read by prune=none, which runs without it"]
    assert lines._unsaid(["prune=glob(k*)", "prune.ratio=0.5"]) == []


def test_points_are_counted_as_hydra_sweeps_them():
    options = config.options("prune")
    assert config.jobs(["prune=glob(*)", "seed=1,2"]) == 2 * len(options)
    assert config.jobs(["cache=a,b", "seed=range(3)", "steps=4", "name=choice(x,y)"]) == 12
    assert config.jobs(["seed=1,2", "seed=1,2,3"]) == 3
    assert config.jobs(["steps=4"]) == 1


@pytest.mark.parametrize("axis", ["prune.ratio=interval(0.1, 0.9)", "seed=tag(t, 1, 2", "a=[1,"])
def test_points_of_another_grammar_only_their_sweeper_counts(axis):
    assert config.jobs([axis, "seed=1,2"]) is None


def test_pages_of_a_single_point(tmp_path, swept):
    """Nothing was varied: no grid, still a table."""
    shutil.copytree(swept / "0", tmp_path / "0")
    found = pages.rows([tmp_path / "0"])
    write(tmp_path, found, None)
    assert "Every point" in (tmp_path / "sweep.html").read_text()


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
    assert "1 ran before the code changed" in said


def test_every_recipe_of_the_page_finds_what_it_says(swept, recorded, runs):
    page = (Path(__file__).resolve().parents[2] / "harness" / "track" / "README.md").read_text()
    found = re.findall(
        r"^\| (?:`` (.+?) ``|`((?:tags|metrics|params|attributes)\..+?)`) \|", page, re.MULTILINE
    )
    there = client(runs)
    (held,) = [e for e in there.search_experiments() if e.name == "harness"]
    counted = {
        recipe: len(there.search_runs([held.experiment_id], recipe))
        for recipe in (a or b for a, b in found)
    }
    assert (
        len(counted) > 12 and counted["attributes.status = 'FAILED'"] >= 4
    )  # three points and their sweep
    served = "tags.`cache.served` = 'manual' and metrics.`size/stored_bytes` < 1000000"
    assert counted[served] and counted["tags.kind = 'sweep summary'"]
