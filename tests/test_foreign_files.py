"""Files from elsewhere cost their reader a bounded amount of bytes, parts and seconds."""

import os
import time
from pathlib import Path

import pytest

from harness import config, foreign
from harness.config import launched
from harness.errors import ConfigProblem, HarnessError, InputProblem
from harness.snapshot import record

ROOT = Path(__file__).resolve().parents[1]

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 60)
)
YAMLS = {
    "aliases of aliases": BOMB,
    "an alias of itself": "a: &a [*a]\n",
    "merged keys": "a: &a {x: 1}\nb:\n  <<: *a\n",
    "lists in lists": "a: " + "[" * 100_000,
    "a number of many parts": "a: " + ":".join(["59"] * 200_000) + "\n",
    "a class to build": "a: !!python/object/apply:os.system [true]\n",
    "a date that is none": "a: !!timestamp x\n",
    "half a list": "a: [1, 2\n",
    "other bytes than text": "\udcff",
    "a million parts": "a: [" + "1," * 1_000_000 + "]\n",
}


@pytest.mark.parametrize("text", YAMLS.values(), ids=YAMLS)
def test_a_hostile_yaml_is_refused(tmp_path: Path, text: str) -> None:
    file, start = tmp_path / ".hydra" / "config.yaml", time.monotonic()
    file.parent.mkdir()
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError):
        foreign.read_yaml(file)
    with pytest.raises(ConfigProblem, match=r"config\.yaml is no configuration: "):
        config.values(file)
    (tmp_path / "multirun.yaml").write_bytes(file.read_bytes())
    assert config.composed(file) is None
    assert launched.of_sweep(tmp_path) == "" and launched.typed(tmp_path) is None
    assert time.monotonic() - start < 20


def test_an_audit_names_the_configuration_that_it_does_not_read(tmp_path: Path) -> None:
    from harness.task.audit import auditable, evidence

    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "config.yaml").write_text(BOMB)
    auditable([tmp_path])
    sealed = record.read(ROOT / "runs/reference/tiny-view-none/record.json")["config"]
    (found,) = evidence._configuration(tmp_path, sealed, None, False)
    assert "repeats a part of itself" in found.explanation


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 100 + "]" * 100, "1" * 10_000, "{", "\xff"])
def test_a_hostile_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError):
        foreign.read_json(tmp_path / "x.json")


def test_only_plain_files_of_a_bounded_size_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)
    for name in ("pipe", "large"):
        with pytest.raises(ValueError):
            foreign.read_json(tmp_path / name)


def test_what_goes_wrong_is_one_line() -> None:
    for problem in (
        RecursionError("deep"),
        MemoryError(),
        ZeroDivisionError("a\nb\x1b[2J"),
        OSError(2, "gone"),
    ):
        with pytest.raises(InputProblem) as caught, foreign.opening("x.bin"):
            raise problem
        assert str(caught.value).startswith("x.bin cannot be read: ")
        assert len(str(caught.value).splitlines()) == 1 and "\x1b" not in str(caught.value)
    with pytest.raises(HarnessError, match="mine"), foreign.opening("x.bin"):
        raise ConfigProblem("mine")


def test_a_budget_ends() -> None:
    for budget, spent in (
        (foreign.Budget(nbytes=10), {"nbytes": 11}), (foreign.Budget(items=10), {"items": 11}),
        (foreign.Budget(seconds=-1), {}),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            budget.spend(**spent)
