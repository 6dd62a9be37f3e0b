"""Every shipped YAML composes, names what exists, and bad values are refused in one message."""

from importlib import import_module
from pathlib import Path

import pytest
import yaml

from harness import config
from harness.cli import help
from harness.errors import ConfigProblem
from harness.task import BENCHES

CONF = config.conf_dir()

OPTIONS = [
    (group, option)
    for group in help.GROUPS
    if group != "experiment"
    for option in config.options(group)
]


def rows() -> list[dict[str, str]]:
    """Every option once, as few command lines as the longest group has: one of each group that has one left."""
    left = {g: [o for group, o in OPTIONS if group == g] for g in help.GROUPS}
    longest = max(map(len, left.values()))
    return [{g: o[i] for g, o in left.items() if i < len(o)} for i in range(longest)]


@pytest.mark.parametrize("chosen", rows(), ids=lambda row: "-".join(row.values())[:60])
def test_every_option_composes_and_carries_its_own_name(compose, chosen: dict[str, str]) -> None:
    extra = ["model.path=somewhere"] * (chosen.get("model") == "path")
    cfg = compose(*(f"{group}={option}" for group, option in chosen.items()), *extra)
    assert {group: getattr(cfg, group).name for group in chosen} == chosen


@pytest.mark.parametrize("group, option", OPTIONS, ids=lambda v: v)
def test_every_option_says_what_it_is(group: str, option: str) -> None:
    first = (CONF / group / f"{option}.yaml").read_text().splitlines()[0]
    assert first.startswith("# ")
    assert len(first) <= 120


def test_the_comment_on_dtype_names_all_of_them() -> None:
    lines = (CONF / "config.yaml").read_text().splitlines()
    (said,) = (line.partition("# ")[2] for line in lines if line.startswith("dtype:"))
    assert said.split(", ") == list(config.DTYPES)


def test_options_and_files_agree() -> None:
    from harness.save.registry import format_of

    for name in config.options("save"):
        form = format_of(config.option("save", name))
        assert form.extension and type(form).__name__.lower() == name
    for task in config.options("task"):
        assert callable(import_module(f"harness.task.{BENCHES.get(task, task)}").run)


@pytest.mark.parametrize(
    "override, says",
    [
        ("dtype=float31", "float32"),
        ("dtype=float8", "possible. There is: float32, bfloat16, float16, float64."),
        ("dtype=fp61", "possible. There is: bfloat16, float16, float32, float64."),
        ("cache=static cache.pad_prime=-1", "cache.pad_prime=-1 is too small"),
        ("device=gpu", "Did you mean 'cuda'?"),
        ("steps=0", "1 or more"),
        ("prune=keep_last prune.ratio=1.5", "0 < ratio <= 1"),
        ("prune=keep_last prune.tokens=0", "1 or more"),
        ("sampling=sample sampling.temperature=0", "greedy"),
        ("sampling=sample sampling.top_p=0", "0 < top_p <= 1"),
        ("compare.require=good", "exact"),
        ("cache.branches=0", "1 or more"),
        ("prompt.batch=0", "1 or more"),
        ("+typo=1", "'typo' is not a key"),
        ("+model.sed=1", "Did you mean 'model.seed'"),
    ],
)
def test_bad_values_are_refused(compose, override: str, says: str) -> None:
    with pytest.raises(ConfigProblem) as problem:
        compose(*override.split())
    assert says in str(problem.value) and str(problem.value).count("There is") <= 1


def test_the_default_job_is_the_documented_one(compose) -> None:
    cfg = compose()
    chosen = {g: getattr(cfg, g).name for g in help.GROUPS if g != "experiment"}
    assert chosen == {
        "task": "experiment", "model": "tiny", "tokenizer": "explicit", "cache": "auto",
        "prune": "none", "quantize": "none", "save": "safetensors", "prompt": "turns", "sampling": "greedy",
        "compare": "lossless", "fault": "none", "engine": "transformers", "track": "mlflow",
    }  # fmt: skip


def test_hub_models_pin_the_founding_revisions() -> None:
    pinned = {
        "gemma3_1b": "dcc83ea841ab6100d6b47a070329e1ba4cf78752",
        "gemma3_4b": "093f9f388b31de276ce2de164bdc2081324b9767",
    }
    for name, revision in pinned.items():
        assert (
            yaml.safe_load(Path(CONF / "model" / f"{name}.yaml").read_text())["revision"]
            == revision
        )


@pytest.mark.parametrize(
    "task, given",
    [
        ("verify", "sign=KEY.pem"),
        ("inspect", "encrypt=KEY"),
        ("audit", "overwrite=true"),
        ("bench", "decrypt=KEY"),
        ("claims", "encrypt=KEY"),
        ("diff", "overwrite=true"),
    ],
)
def test_a_key_for_snapshots_is_refused_by_tasks_that_do_not_read_it(compose, task, given):
    with pytest.raises(ConfigProblem, match=f"{given.split('=')[0]}=.* is not read by task={task}"):
        compose(f"task={task}", given)
    for reader in ("task=save", "task=resume", "task=prune", "task=chat", "task=loop"):
        compose(reader, given)


def test_reading_a_record_does_not_rename_what_is_being_written(tmp_path) -> None:
    """A sweep's points lie together by a name that is drawn once."""
    from omegaconf import OmegaConf

    token = config.register()
    (tmp_path / "config.yaml").write_text("task: {name: save}\n")
    with pytest.raises(ConfigProblem):
        config.recorded(config.values(tmp_path / "config.yaml"), tmp_path)
    config.composed(tmp_path / "config.yaml")
    assert OmegaConf.create({"name": "${unique:}"}).name == token
