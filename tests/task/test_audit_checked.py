"""An audit leaves evidence: whoever has its report can check the checker, and nobody can change it."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.errors import Untrusted
from harness.snapshot import record
from harness.snapshot.result import write_json
from harness.task import audit
from harness.task.audit.checked import checked


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


def test_it_says_what_was_run_and_what_was_not_compared(audited, recorded):
    document = record.read(audited / "audit.json")
    (told,) = document["evidence"].values()
    assert told["record"] == record.read(recorded / record.NAME)["id"]
    bare = f"{recorded.name}: .hydra/hydra.yaml, harness.log"
    assert document["uncompared"] == {bare: "no seal covers it"}
    page = (audited / "report.html").read_text("utf-8")
    assert "The environment: nothing changed since the recording</h2>" in page
    again = (audited / "again" / "run" / "report.html").read_text("utf-8")
    assert f"python -m harness task=audit run={recorded}" in again and "again.json" not in again


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
    assert list(checked(audited)) == []
    done = harness("task=audit", f"run={audited}", f"trusted=[{keys / 'a.pub'}]")
    assert done.code == 0 and "a.pub" in done.out and "nothing was run" in done.out, done.out
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
    ((name, told),) = document["evidence"].items()
    path = folder / f"evidence-{name}-again-result.json"
    told["again"]["result.json"] = record.digest_bytes(path.read_bytes())
    write_json(folder / "audit.json", document)


def verdict(folder):
    document = record.read(folder / "audit.json")
    write_json(folder / "audit.json", {**document, "verdict": "differs"})


def formless(folder):
    """Evidence that is none of what an audit writes."""
    document = record.read(folder / "audit.json")
    (name,) = document["evidence"]
    write_json(folder / "audit.json", {**document, "evidence": {name: "all was well"}})


@pytest.mark.parametrize("edit", [whitewash, refit, verdict, formless])
def test_an_edited_report_is_named(copy, edit, keys):
    """The twins: edited, then resealed by somebody else, who cannot sign."""
    edit(copy)
    assert any("sealed" in d.explanation for d in checked(copy))
    result, sealed = record.read(copy / "result.json"), record.read(copy / record.NAME)
    signature = (copy / record.SIGNATURE).read_bytes()
    record.seal(copy, result, {**sealed["config"], "sign": None}, sealed["packages"])
    named = [d.what for d in checked(copy)]
    assert named and not any("sealed" in d.explanation for d in checked(copy))
    if edit is refit:
        assert any("metrics.kl_max" in what for what in named)
    (copy / record.SIGNATURE).write_bytes(signature)
    with pytest.raises(Untrusted):
        audit.signed(copy, [str(keys / "a.pub")])
