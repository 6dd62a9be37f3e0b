"""An audit leaves evidence: whoever has its report can check the checker, and nobody can change it."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.errors import Untrusted
from harness.snapshot import record
from harness.snapshot.result import write_json
from harness.task import audit
from harness.task.audit import report


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in "ab":
        make = f"openssl ecparam -name prime256v1 -genkey -noout -out {name}.pem"
        show = f"openssl ec -in {name}.pem -pubout -out {name}.pub"
        done = f"{make} && {show}"
        subprocess.run(done, shell=True, check=True, capture_output=True, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def audited(recorded, shell, keys, tmp_path_factory) -> Path:
    """A signed audit of the shared record."""
    runs = tmp_path_factory.mktemp("audits")
    done = shell("task=audit", f"run={recorded}", f"sign={keys / 'a.pem'}", f"runs_dir={runs}",
                 "track=none", "name=audit")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (runs / "audit").iterdir()
    return folder


@pytest.fixture
def copy(audited, tmp_path) -> Path:
    return shutil.copytree(audited, tmp_path / audited.name)


def test_it_says_what_was_run_where_and_what_cannot_be_known(audited, recorded):
    document = record.read(audited / "audit.json")
    (told,) = document["evidence"].values()
    assert told["record"] == record.read(recorded / record.NAME)["id"]
    assert told["where"]["platform"] and told["kept"] and "max_abs_diff" in told["noise_floor"]
    assert any("where and when the record was first made" in said for said in document["unknown"])
    bare = f"{recorded.name}: no seal covers .hydra/hydra.yaml, harness.log, and the audit did not look at it"
    assert bare in document["unknown"] and told["unsealed"] == [".hydra/hydra.yaml", "harness.log"]
    page = (audited / "report.html").read_text("utf-8")
    assert (
        "The environment: nothing changed since the recording</h2>" in page
        and "as the record has them" in page
    )
    assert re.search(r"What cannot be known</h2>\s*<ul><li>", page) and told["record"] in page


def test_the_second_run_says_what_ran_it(audited, recorded):
    """The audit's own command, as it was typed; no list of jobs, which is no argument."""
    page = (audited / "again" / "run" / "report.html").read_text("utf-8")
    assert f"python -m harness task=audit run={recorded}" in page and "again.json" not in page


def test_what_cannot_be_known_follows_from_the_record():
    elsewhere = {
        "p": [{"what": "cpu", "decisive": True}],
        "q": [{"what": "date", "decisive": False}],
    }
    said = report.unknown({"p": {"kept": False}, "q": {"kept": True}}, elsewhere, {"q"})
    assert [s.partition(":")[0] for s in said[2:]] == ["p", "p", "q"]
    assert "cpu" in said[2] and "in memory" in said[3] and "encrypted" in said[4]


def test_what_no_seal_covers_is_named(tmp_path):
    """The twin: a file that the seal covers."""
    record.seal(tmp_path, {}, {}, {})
    assert record.unsealed(tmp_path) == []
    (tmp_path / "a.txt").write_text("later")
    (tmp_path / "link").symlink_to("a.txt")
    assert record.unsealed(tmp_path) == ["link"], "the file is found to be added"
    assert ("a.txt", None, "added") in record.broken(tmp_path)


def test_a_third_person_checks_the_checker(audited, keys, harness, monkeypatch):
    monkeypatch.setattr(audit, "rerun", lambda *a: pytest.fail("nothing is to be run"))
    assert list(report.checked(audited)) == []
    done = harness("task=audit", f"run={audited}", f"trusted=[{keys / 'a.pub'}]")
    assert done.code == 0 and "a.pub" in done.out, done.out
    assert done.reason.endswith("nothing was run again"), "and no figure reproduced"
    done = harness("task=audit", f"run={audited}", f"trusted=[{keys / 'b.pub'}]")
    assert done.code == 3 and "Traceback" not in done.out


def whitewash(folder):
    """A difference between record and rerun, and a report that does not mention it."""
    path = next(folder.glob("evidence-*-again-result.json"))
    result = json.loads(path.read_text())
    result["metrics"]["kl_max"] = 0.5
    path.write_text(json.dumps(result))


def refit(folder):
    """The same, the report's own digests made to fit."""
    whitewash(folder)
    document = record.read(folder / "audit.json")
    (told,) = document["evidence"].values()
    row = told["again"]["result.json"]
    row["digest"] = record.digest_bytes((folder / row["file"]).read_bytes())
    write_json(folder / "audit.json", document)


def verdict(folder):
    document = record.read(folder / "audit.json")
    write_json(folder / "audit.json", {**document, "verdict": "differs"})


def generous(folder):
    """A bound that nothing was held to."""
    document = record.read(folder / "audit.json")
    (told,) = document["evidence"].values()
    told["bounds"] = {"oracle.restored": {"held_to": "at most 900 times larger", "why": "so I say"}}
    write_json(folder / "audit.json", document)


def formless(folder):
    """Evidence that is none of what an audit writes."""
    document = record.read(folder / "audit.json")
    (name,) = document["evidence"]
    write_json(folder / "audit.json", {**document, "evidence": {name: "all was well"}})


@pytest.mark.parametrize("edit", [whitewash, refit, verdict, generous, formless])
def test_an_edited_report_is_named(copy, edit, keys):
    """The twins: edited, then resealed by somebody else, who cannot sign."""
    edit(copy)
    assert any("sealed" in d.explanation for d in report.checked(copy))
    result, sealed = record.read(copy / "result.json"), record.read(copy / record.NAME)
    signature = (copy / record.SIGNATURE).read_bytes()
    record.seal(copy, result, {**sealed["config"], "sign": None}, sealed["packages"])
    named = [d.what for d in report.checked(copy)]
    assert named and not any("sealed" in d.explanation for d in report.checked(copy))
    if edit is refit:
        assert any("metrics.kl_max" in what for what in named)
    if edit is generous:
        assert any(what.endswith(": bounds") for what in named)
    (copy / record.SIGNATURE).write_bytes(signature)
    with pytest.raises(Untrusted):
        audit.signed(copy, [str(keys / "a.pub")])


def test_an_audit_of_a_long_run_says_how_long_that_took(tmp_path):
    """A record without its log says nothing, whatever the times of its files."""
    (tmp_path / "record.json").write_text("{}")
    os.utime(tmp_path / "record.json", (1_000, 1_000))
    assert audit.recorded_in([tmp_path]) == ""
    said = "2026-01-02 03:04:05,678 INFO harness: {} ({} s)\n"
    log = tmp_path / "harness.log"
    log.write_text(said.format("capture: 9 tokens", "180.25") + said.format("save:", "4.75"))
    assert audit.recorded_in([tmp_path]) == " (3m05s when recorded)"
    assert audit.recorded_in([tmp_path] * 2) == " (6m10s when recorded)"
    log.write_text(said.format("capture: 9 tokens (of 99 s)", "0.25"))
    assert audit.recorded_in([tmp_path]) == "", "no wait"
