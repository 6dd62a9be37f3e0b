"""A mistake at the front door is answered by one message, before weights are loaded."""

import pytest

from harness.config.tracking import check_experiment, check_uri
from harness.errors import ConfigProblem

# (arguments, exit code, what the message must say)
MISTAKES = [
    (["model=tinny"], 2, "Did you mean 'tiny'"),
    (["model.sed=1"], 2, "'model.sed' is not a key"),
    (["cache=manul"], 2, "Did you mean 'manual'"),
    (["task=resum"], 2, "Did you mean 'resume'"),
    (["steps=-1"], 2, "1 or more"),
    (["dtype=float31"], 2, "Did you mean 'float32'"),
    (["+typo=1"], 2, "'typo' is not a key"),
    (["device=cuda:9"], 2, "no usable CUDA device"),
    (["model=path"], 2, "model.path=DIR"),
    (["model=path", "model.path=nowhere"], 2, "config.json"),
    (["model=shape", "model.architecture=lama"], 2, "Did you mean 'llama'"),
    (["model=gpt2"], 2, "model=path model.path=DIR"),
    (["task=resume"], 2, "snapshot=DIR"),
    (["task=resume", "snapshot=nowhere"], 2, "no such directory"),
    (["prompt=file"], 2, "prompt.path=FILE"),
    (["prompt=file", "prompt.path=nowhere"], 2, "nowhere"),
    (["prompt=file", "prompt.path=latin"], 2, "byte 3 is 0xe9"),
    (["prompt=file", "prompt.path=none"], 2, "prompt.path=none is empty"),
    (["prompt=jsonl", "prompt.path=nowhere"], 2, "nowhere: there is no such file"),
    (["prompt=file", "prompt.path=README.md", "text=hi"], 2, "text= and prompt=file both"),
    (["task=save", "prompt=recall", "text=hi"], 2, "text= and prompt=recall both"),
    (["prompt.ids=[1,2]", "text=hi"], 2, "text= and prompt.ids both"),
    (["text="], 2, "text= is empty"),
    (["text=", "tokenizer=raw"], 2, "empty"),
    (["steps=5000"], 2, "positions"),
    (["sampling=sample", "sampling.temperature=0"], 2, "sampling=greedy"),
    (["model=tiny_gpt2", "tokenizer=chat", "cache=manual", "model.architecture=bert"], 2, "bert"),
    (["prune=keep_last", "prune.ratio=2"], 2, "0 < ratio <= 1"),
    (["task=inspect"], 2, "snapshot=DIR"),
    (["--task=save"], 2, "Keys have no dashes: task=save"),
    (["--hlep"], 2, "Did you mean '--help'"),
    (["dashboard", "prot=1"], 2, "Did you mean 'port'"),
    (["TASK=save"], 2, "Did you mean 'task'"),
    (["sampling.temprature=1"], 2, "Did you mean 'sampling.temperature'"),
    (["temprature=1"], 2, "Did you mean 'sampling.temperature'"),
    (["tokens=8"], 2, "Did you mean 'prune.tokens'"),
    (["save=gzip", "save.level=99"], 2, "give 0 to 9"),
    (["save=blosc2", "save.codec=nope"], 2, "There is: blosclz"),
    (["dtype=fp16"], 2, "Did you mean 'float16'"),
    (["device=CUDA"], 2, "Did you mean 'cuda'"),
    (["seed=99999999999999999999"], 2, "below 2**63"),
    (["model=./mine"], 2, "model=path model.path=./mine"),
    (["model=shape", "model.config.hidden_size=7"], 2, "not a multiple"),
    (["model=shape", "model.config.hidden_sze=8"], 2, "+model.config.hidden_sze="),
    (["model=shape", "model.config.vocab_size=9"], 2, "this model knows 9 tokens"),
    (
        ["model=shape", "model.config.hidden_size=131072", "model.config.num_hidden_layers=999"],
        2,
        "GiB of memory",
    ),
    (["prompt=hello"], 2, "text='...'"),
    (["prompt.batch=0"], 2, "1 or more"),
    (["task=prune", "snapshot=README.md"], 2, "needs a policy"),
    (["task=inspect", "snapshot=README.md"], 2, "snapshot=README.md is no directory of ours"),
    (["task=verify", "snapshot=."], 2, "no manifest.json"),
    (["task=diff", "a=README.md"], 2, "a=DIR and b=DIR"),
    (["task=audit"], 2, "run=DIR"),
    (["task=chat", "task.turn=3"], 2, "Did you mean 'task.turns'"),
    (["task=diff", "task.a=x"], 2, "Did you mean 'a'? It stands by itself: a=..."),
    (["task=loop", "task.evry=3"], 2, "Did you mean 'task.every'"),
    (["task=claims", "task.only=[isolaton]"], 2, "Did you mean 'isolation'"),
    (["task=bench", "task.caches=[dynamc]"], 2, "Did you mean 'dynamic'"),
    (["task=architectures", "task.families=[lama]"], 2, "Did you mean 'llama'"),
    (["task=evaluate", "prompt=recall", "task.prunes=[keeplast]"], 2, "Did you mean 'keep_last'"),
    (["task=save", "out=/"], 2, "left alone"),
    (["task=save", "text=a", "out=/proc/x/y"], 2, "out=/proc/x/y cannot be written to: /proc"),
    (["experiment=isolaton"], 2, "Did you mean 'isolation'"),
    (["fault=layerswap"], 2, "Did you mean 'layer_swap'"),
    (["-m", "cache=manual,clond"], 2, "Did you mean 'cloned'"),
    (["-m", "seed=1,2", "sampling.temprature=1"], 2, "Did you mean 'sampling.temperature'"),
    (["prompt.path=x.txt"], 2, "prompt=file"),
    (["name=../elsewhere"], 2, "runs_dir=DIR"),
    (["task=save", "out=README.md"], 2, "not a directory"),
    (["task=save", "out=README.md/deeper"], 2, "not a directory"),
    (["resume=nowhere"], 2, "resume=nowhere"),
    (["prune.ratio=0.25"], 2, "prune=keep_last"),
    (["prune=keep_last", "prune.tokens=9", "prune.sinks=9"], 2, "prune=sink_window read it"),
    (["prune=sink_window", "prune.sinks=-1"], 2, "prune.sinks=-1 is too small"),
    (["cache=manual", "cache.pad_prime=5"], 2, "cache=static reads it"),
    (["save=safetensors", "save.codec=zstd"], 2, "save=blosc2 reads it"),
    (["save.level=9"], 2, "save=blosc2, save=gzip read it"),
    (["sampling.temperature=0.2"], 2, "sampling=sample reads it"),
    (["tokenizer=raw", "tokenizer.bos=false"], 2, "tokenizer=explicit reads it"),
    (["track=none", "track.uri=x"], 2, "track=mlflow reads it"),
    (
        ["track=mlflow", "track.uri=./mlruns"],
        2,
        "track.uri=./mlruns is a folder, in which MLflow 3 keeps no runs",
    ),
    (["-m", "track=mlflow", "track.uri=foo", "seed=1,2"], 2, "track.uri=foo is a folder"),
    (["track=mlflow", "track.uri="], 2, "track.uri= is empty"),
    (["track=mlflow", "track.uri=sqlite://runs/x.db"], 2, "sqlite:///runs/x.db"),
    (
        ["track=mlflow", "track.uri='http://h:1/#/experiments/1'"],
        2,
        "address of a page: give that of the server, http://h:1.",
    ),
    (["track=mlflow", "track.uri=http://h:65536"], 2, "no port from 1 to 65535"),
    (["track=mlflow", f"track.experiment={'a' * 501}"], 2, "has 501 characters"),
    (["track=mlflow", "track.uri=databricks-uc"], 2, "give track.uri=databricks"),
    (["track=mlflow", "track.uri=ftp://x"], 2, "is no address of a tracking server"),
    (
        ["track=mlflow", "track.uri='http://me:hush@h:5'"],
        2,
        "in the environment: MLFLOW_TRACKING_USERNAME",
    ),
    (
        ["track=mlflow", "track.uri='postgresql://me:hush@h/db'"],
        2,
        "in the environment: PGPASSWORD",
    ),
    (
        ["track=mlflow", "track.uri='postgresql://h/db?user=me&password=hush'"],
        2,
        "holds a password",
    ),
    (
        ["track=mlflow", "track.artifact_limit_mb=-1"],
        2,
        "track.artifact_limit_mb=-1.0 is too small",
    ),
    (["snapshot=x"], 2, "task=resume"),
    (["out=x"], 2, "task=save"),
    (["run=x"], 2, "task=audit reads it"),
    (["a=x"], 2, "task=diff reads it"),
    (["compact=true"], 2, "compact=true is not read by task=experiment: task=save reads it"),
    (["model=tiny_gpt2", "model.path=DIR"], 2, "model.path is not read by model=tiny_gpt2"),
    (["task=inspect", "snapshot=x", "text=a"], 2, "text=a is not read by task=inspect"),
    (["task=inspect", "snapshot=x", "steps=3"], 2, "steps=3 is not read by task=inspect"),
    (
        ["task=chat", "prompt.turns=[{role: user, content: a}]"],
        2,
        "is not read by task=chat: task=",
    ),
    (["task=inspect", "snapshot=x", "cache=static"], 2, "cache=static is not read by task=inspect"),
    (
        ["task=verify", "snapshot=x", "prune=snapkv", "prune.ratio=0.5"],
        2,
        "prune=snapkv is not read",
    ),
    (["task=evaluate", "prune=knorm", "task.prunes=[none]"], 2, "Write 'task.prunes=[knorm]'"),
    (["task=evaluate", "quantize=int8"], 2, "Write 'task.quantizers=[int8]'"),
    (["task=evaluate", "prune=knorm", "task.prunes=[knorm]", "prune.ratio=0.2"], 2, "task.budgets"),
    (["task=evaluate", "fault=layer_swap"], 2, "task=experiment, task=faults read it"),
    (["task=evaluate", "prompt=recall", "prune.at=4"], 2, "task=experiment, task=loop, task=prune"),
    (["task=save", "prune=knorm", "prune.at=4"], 2, "prune.at=4 is not read by task=save"),
    (["task=bench", "prune=snapkv"], 2, "prune=snapkv is not read by task=bench"),
    (
        ["compare.limit=50"],
        2,
        "compare.limit=50 is not read by task=experiment: task=prune, task=resume, task=ui read it",
    ),
    (
        ["task=chat", "compare.budget_s=5"],
        2,
        "compare.budget_s=5 is not read by task=chat: task=resume reads it",
    ),
    (["task=faults", "fault=layer_swap", "quantize=int8"], 2, "quantize=int8 is not read"),
    (["task=resume", "snapshot=README.md", "prune=knorm"], 2, "only with prune.at=N"),
    (["task=audit", "run=x", "compare.oracle=false"], 2, "is not read by task=audit"),
    (["task=loop", "task.every=0"], 2, "task.every=0 is too small"),
    (["task=loop", "task.runs=5"], 2, "task=bench, task=repeat read it"),
    (["prune=knorm", "prune.tokens=8", "prune.ratio=0.5"], 2, "are two budgets"),
    (["engine=openai"], 2, "engine=openai is not read by task=experiment: task=referee, task=ui"),
    (["prompt=recall", "prompt.samples=3"], 2, "task=evaluate, task=ui read it"),
    (["task=save", "steps=8"], 2, "is not read by task=save without from=FILE"),
    (["task=save", "text=a", "snapshot=README.md"], 2, "task=resume snapshot=DIR"),
]


@pytest.mark.parametrize(
    "arguments, code, says", MISTAKES, ids=lambda v: " ".join(v) if isinstance(v, list) else None
)
def test_a_mistake_is_answered_by_one_message(harness, place, arguments, code, says) -> None:
    for name, data in (("README.md", b"read me"), ("latin", b"caf\xe9"), ("none", b"")):
        (place / name).write_bytes(data)
    done = harness(*arguments)
    assert done.code == code, done.out
    assert says in done.out and "Traceback" not in done.out
    assert done.out.count("harness: ") == 1


@pytest.mark.parametrize(
    "given",
    [
        ["prompt=file", "prompt.path=latin"],
        ["prompt=file", "prompt.path=nowhere"],
        ["prompt=jsonl", "prompt.path=latin"],
        ["text="],
        ["model=path", "model.path=nowhere"],
        ["task=resume", "snapshot=nowhere"],
    ],
    ids=" ".join,
)
def test_a_mistake_is_answered_before_weights_are_loaded(harness, place, given) -> None:
    (place / "latin").write_bytes(b"caf\xe9")
    done = harness(*given)
    assert done.code == 2 and "model tiny" not in done.out and "model nowhere" not in done.out


def test_a_state_that_was_changed_is_not_blamed_on_the_model(harness) -> None:
    changed = harness("fault=layer_swap", "steps=2")
    assert changed.code == 3 and "do not reproduce its stored logits" in changed.out
    assert "Load the model" not in changed.out and "something changed the state" in changed.out
    assert harness("task=save", "out=one").code == 0
    other = harness("task=resume", "snapshot=one", "model=tiny_gpt2")
    assert other.code == 3 and "Load the model" in other.out and "reproduce" not in other.out


def test_differences_begin_with_the_one_that_explains_them(harness) -> None:
    assert harness("task=save", "out=one", "text=let k be 5 .").code == 0
    done = harness("task=resume", "snapshot=one", "dtype=bfloat16", "steps=2")
    first = next(line for line in done.out.splitlines() if line.startswith("  - "))
    assert done.code == 3 and first.endswith("dtype was float32, is bfloat16")
    assert "dtype=float32 may be all it takes" in done.out


def test_what_was_kept_in_the_memory_of_a_process_has_no_backup() -> None:
    from harness.errors import SnapshotInvalid

    gone = "its payload was kept in the memory of a process that has ended"
    assert "backup" not in str(SnapshotInvalid("a", [gone])) and "backup" in str(SnapshotInvalid("a", ["cut"]))  # fmt: skip
    assert "that process only" in str(SnapshotInvalid("a", [gone]))


@pytest.mark.parametrize(
    "uri", ["http://me:hush@h:5", "http://hush@h", "postgresql://me:hush@h/db"]
)
def test_a_password_is_refused_and_not_repeated(harness, place, uri) -> None:
    """Records, pages and descriptions on a server that others read would hold it."""
    done = harness("steps=2", f"track.uri='{uri}'")
    assert done.code == 2 and "hush" not in done.out and not list(place.iterdir()), done.out
    assert check_uri("postgresql://me@h/db") is check_uri("sqlite:////a:b@c.db") is None
    assert check_uri("http://h:5/a@b") is None, "a path"


def test_an_address_that_no_server_can_have_is_told_from_one_that_may() -> None:
    for uri in (
        "sqlite://",
        "sqlite:///",
        "sqlite:x.db",
        "http://",
        "http://:5",
        "https://h:x",
        "http://[::1",
        "http://h:0",
    ):
        with pytest.raises(ConfigProblem):
            check_uri(uri)
    for uri in ("sqlite:///x.db?timeout=9", "http://h:50788/", "https://h", "http://[::1]:5"):
        assert check_uri(uri) is None
    assert check_experiment("a" * 500) is None
