"""The founding toolkit's quick start, and its promise: resumed text is the uninterrupted text.

On the shipped model and on a GPT-2 directory made by `save_pretrained`, in every format, greedy
(against the library's own `generate`) and sampled (against a run that was never saved): each model in each
format one way, and both ways with `make test-slow`.
"""

import shlex
from pathlib import Path

import pytest
import torch
from crossing import crossed

import harness as api
from harness.save import registry

TEXT, ADDED = "let k be 5 . the bird sang in the tree .", " what is k ?"
MODELS, FORMATS = ["tiny", "gpt2"], registry.shipped()
SAMPLED = ("sampling=sample", "sampling.temperature=0.8")
FAST = ("compare.oracle=false", "track=none")

# save_state, save_state --format gzip, prune_state, resume_state, resume_state of the pruned one
QUICK_START = """
task=save text="The architecture of meaning is" out=state
task=save text="The architecture of meaning is" save=gzip out=state_gz
task=prune snapshot=state out=state_pruned prune=keep_last prune.tokens=4
task=resume snapshot=state text=" deeply" steps=30
task=resume snapshot=state_pruned text=" deeply" steps=30 sampling=sample sampling.temperature=0.8
"""


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory) -> Path:
    """Random weights, but a real directory: config, safetensors and tokenizer of `save_pretrained`."""
    from transformers import GPT2Config, GPT2LMHeadModel

    folder = tmp_path_factory.mktemp("models") / "my gpt2"
    tokenizer = api.load_model("tiny").tokenizer
    torch.manual_seed(7)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=256, n_embd=48, n_layer=3, n_head=4,
        initializer_range=0.3, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(params=MODELS)
def model(request, gpt2) -> tuple[list[str], str]:
    """`(arguments, source)`: how the command line and the Python API name the same model."""
    if request.param == "tiny":
        return [], "tiny"
    return ["model=path", f"model.path='{gpt2}'"], str(gpt2)


@pytest.mark.parametrize(
    "model", ["tiny", pytest.param("gpt2", marks=pytest.mark.slow)], indirect=True
)
def test_the_quick_start_runs_as_written(harness, place, model) -> None:
    for line in QUICK_START.strip().splitlines():
        done = harness(*shlex.split(line), *model[0], "compare=lossy")
        assert done.code == 0, f"{line}\n{done.out}"
    for name in ("state", "state_gz", "state_pruned"):
        assert harness("task=verify", f"snapshot={name}").code == 0


def continued(harness, snapshot: str, *arguments: str) -> list[int]:
    """The ids that one `task=resume` generates (its last, not yet fed one left out)."""
    done = harness("task=resume", f"snapshot={snapshot}", *arguments, *FAST)
    assert done.code == 0, done.out
    return done.result["text"]["token_ids"][:-1]


@pytest.mark.parametrize("model, form", crossed(MODELS, FORMATS), indirect=["model"])
def test_greedy_text_is_the_uninterrupted_text(harness, place, model, form) -> None:
    loaded = api.load_model(model[1])
    ids = torch.tensor([api.capture_text(loaded, TEXT).token_ids[0].tolist()])
    added = loaded.tokenizer(ADDED, add_special_tokens=False).input_ids
    whole = torch.cat([ids, torch.tensor([added])], dim=1)
    plain = loaded.model.generate(
        whole, attention_mask=torch.ones_like(whole), max_new_tokens=16, min_new_tokens=16,
        do_sample=False,
    )  # fmt: skip
    wanted = plain[0, ids.shape[1] :].tolist()

    assert harness("task=save", f"text={TEXT}", f"save={form}", "out=one", *model[0]).code == 0
    first = continued(
        harness, "one", f"text={ADDED}", "steps=8", "out=two", f"save={form}", *model[0]
    )
    rest = continued(harness, "two", "steps=8", *model[0])
    assert first + rest == wanted


@pytest.mark.parametrize("model, form", crossed(MODELS, FORMATS, 1), indirect=["model"])
def test_sampled_text_is_the_uninterrupted_text(harness, place, model, form) -> None:
    loaded = api.load_model(model[1])
    state = api.capture_text(loaded, TEXT, seed=3)
    never_saved = api.resume(loaded, state, "", 16, sampling="sample", temperature=0.8)
    "".join(never_saved)

    made = harness(
        "task=save", f"text={TEXT}", f"save={form}", "seed=3", "out=one", *model[0], *SAMPLED
    )
    assert made.code == 0, made.out
    first = continued(harness, "one", "steps=8", "out=two", f"save={form}", *SAMPLED, *model[0])
    rest = continued(harness, "two", "steps=8", *SAMPLED, *model[0])
    assert first + rest == never_saved.ids
    other = continued(harness, "two", "steps=8", "sampling.seed=99", *SAMPLED, *model[0])
    assert other != rest  # the twin: with another generator it is another text
