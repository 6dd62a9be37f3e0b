"""What the page shows and the messages of its acts."""

import re
import shutil
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import MambaConfig, MambaForCausalLM

from harness.config import SamplingConfig
from harness.errors import InputProblem, RestoreRefused
from harness.task.ui import picture
from harness.task.ui.branches import Growth
from harness.task.ui.handlers import (
    Page,
    pruned_message,
    unasked,
    whole_number,
    within_ends,
)
from harness.task.ui.layout import _slider
from harness.task.ui.session import PageSession
from harness.task.ui.snapshots import SnapshotStore

TEXT = "let k be 5 . the bird sang . what is"
TINY = Path(__file__).resolve().parents[3] / "harness/model/assets/tiny"


@pytest.fixture
def thought(session, tmp_path):
    def make(*overrides: str) -> PageSession:
        opened = session("task=ui", *overrides)
        made = PageSession(opened, SnapshotStore(tmp_path / "snapshots", opened.cfg.save), tmp_path)
        made.begin(TEXT)
        return made

    return make


@pytest.mark.parametrize("typed", [-3, 0, None, 5000, 1.5])
def test_a_number_that_cannot_be_is_said(thought, typed):
    page = object.__new__(Page)
    with pytest.raises(InputProblem, match=r"'Tokens of a run' .*from 1 to 4096"):
        next(page._run(thought(), typed))
    assert whole_number(7.0, 4096, "Tokens of a run") == 7


@pytest.mark.parametrize("typed", [None, 0, 2.5])
def test_a_prune_without_a_number_of_tokens_is_refused(thought, typed):
    one = thought()
    with pytest.raises(InputProblem, match=r"'Tokens to keep' .*Type a whole number from 1 to"):
        next(object.__new__(Page)._prune(one, "keep_last", typed, True))
    assert one.branch.state.kept_tokens == one.branch.state.tokens


def test_a_number_box_beside_a_slider_may_stand_empty():
    gradio = pytest.importorskip("gradio")
    box, plain = _slider((0.1, 3.0), 1, 0.05, "Temperature"), gradio.Slider(0.1, 3.0)
    assert box.preprocess(None) is None and box.preprocess(0.5) == 0.5 and box.preprocess(9.0) == 9
    assert box.get_block_name() == "slider"  # the browser draws gradio's own
    with pytest.raises(TypeError):  # the twin: gradio's own compares it with the ends
        plain.preprocess(None)


def test_a_save_says_which_snapshots_it_needs(thought):
    one = thought()
    page = object.__new__(Page)
    page._chosen, page.c = lambda thought, name: {}, SimpleNamespace(name=None)
    ((alone, _),) = page._save(one, "first")
    ((told, _),) = page._save(one, "second")
    assert "beside it" not in alone and told.endswith("; it needs first beside it.")


def test_a_prune_that_drops_nothing_says_so_and_one_token_is_singular(thought):
    one = thought()
    many = one.branch.state.tokens
    said = pruned_message(one, "keep_last", one.prune("keep_last", many), many)
    assert "dropped nothing" in said and f"{many} may stay" in said
    said = pruned_message(one, "keep_last", one.prune("keep_last", many - 1), many - 1)
    assert f"dropped 1 token, {many - 1} are held." in said and "Next token" not in said
    one.prune("keep_last", 1)  # nothing beside the last token: it cannot be asked again
    assert "the next step shows" in unasked(one)


def test_a_branch_from_an_earlier_token_shows_the_attention_received(thought):
    one = thought()
    whole = one.brightness()
    one.back(6)
    assert len(one.brightness()) == 6 and one.brightness()[0] < whole[0]
    assert "was not recorded" not in picture.thought(one)
    layers = tuple(replace(layer, received=None) for layer in one.branch.state.layers)
    one.branches["B"] = replace(one.branch, state=one.branch.state.with_layers(layers))
    assert "was not recorded" in picture.thought(one)


def test_the_badge_says_what_the_verdict_is_beside(thought):
    one, told = thought(), []
    for act in (
        lambda: None,
        lambda: one.quantize("int8"),
        lambda: one.prune("keep_last", 8),
    ):
        act()
        made = one.verdict(2)
        told.append(made.beside)
        assert f"<span>branch A beside {made.beside}</span>" in picture.proof(made, "A", 9)
    assert told == [
        "a run without a pause",
        "full precision, without a pause",
        "the same pruned and quantized state, in memory",
    ]


def test_flat_distributions_have_bars_and_nameless_tokens_have_ids(thought, monkeypatch):
    one = thought()
    monkeypatch.setattr(
        one, "likely", lambda: [(7, "", 0.002), (8, "", 0.001), (9, "\ufffd", 0.0005)]
    )
    shown = picture.likely(one)
    assert "\u2205 <i>7</i>" in shown and "\u2205 <i>8</i>" in shown and "<i>9</i>" not in shown
    widths = re.findall(r"width:([\d.]+)%", shown)  # of probability 1, whatever the largest is
    assert widths == ["0.20", "0.10", "0.05", "99.65"]  # the last: all others


def test_the_bytes_of_a_character_are_one_character(thought):
    one = thought()
    one.add(" \u601d\u00e9 k \U0001f600")
    ids = one.branch.state.token_ids[0].tolist()
    said = picture.thought(one)
    assert "\ufffd" not in said and all(c in said for c in "\u601d\u00e9\U0001f600")
    assert "".join(one.pieces(ids)).replace("\u2009", "") == one.text(ids)
    parts = [one.spelled(token) for token in ids[-4:]]
    assert parts == ["<F0>", "<9F>", "<98>", "<80>"]
    assert one.text(ids[-1:]) == "\ufffd"  # the twin: what a token alone is decoded to
    assert one.pieces(ids[:-1])[-3:] == parts[:3]  # until the character is whole


def test_the_cache_steps_down_where_it_was_pruned(thought):
    one = thought()
    growth = (Growth(10, 10, 1), Growth(10, 5, 1), Growth(11, 6, 1))
    one.branches["A"] = replace(one.branch, growth=growth)
    line = picture.cache(one).split('class="kept" points="')[1].split('"')[0]
    points = [tuple(map(float, p.split(","))) for p in line.split()]
    flat = [a[0] == b[0] or a[1] == b[1] for a, b in pairwise(points)]
    places = sorted({x for x, _ in points})
    assert all(flat) and len(places) == 4  # each act has a width of its own
    one.branches["A"] = replace(one.branch, growth=growth[:1] * 390 + growth[1:2])
    last = picture.cache(one).split('class="kept" points="')[1].split('"')[0].split()[-2]
    assert float(last.split(",")[0]) <= 0.95 * picture.WIDE  # be it the last of very many


def test_a_sampling_number_beyond_its_box_is_what_the_box_shows():
    typed = {"temperature": 9, "top_k": 2.5, "top_p": 0, "repetition_penalty": 1.1}
    held, moved = within_ends(SamplingConfig(name="sample"), typed)
    assert held == {"temperature": 3.0, "top_k": 2, "top_p": 0.05, "repetition_penalty": 1.1}
    assert len(moved) == 3 and moved[0] == "temperature 9 is not from 0.1 to 3"
    beyond = SamplingConfig(name="sample", temperature=5.0)  # of a snapshot: its box reaches as far
    assert within_ends(beyond, typed)[0]["temperature"] == 5.0
    assert within_ends(beyond, held) == (held, [])  # the twin: what fits is taken as it is


def test_two_branches_of_different_lengths_are_told_apart(thought):
    one = thought()
    one.fork()
    assert "different places of the text" not in picture.comparison(one.compare("A", "B"))
    one.step()
    assert "different places of the text" in picture.comparison(one.compare("A", "B"))


def test_quantizing_what_was_quantized_says_so(thought):
    one = thought()
    one.quantize("fp8_e4m3")
    with pytest.raises(InputProblem, match=r"already coded: nothing would change"):
        one.quantize("fp8_e4m3")
    one.step()
    one.quantize("fp8_e4m3")


def test_the_prompt_of_a_branch_is_found_again(thought):
    one = thought()
    assert one.prompt.strip() == TEXT
    for _ in range(3):
        one.step()
    one.back(5)  # a shorter thought began with the same prompt
    assert one.prompt == TEXT
    typed = one.branches["A"]
    one.branches["B"] = replace(typed, prompt="")  # from a snapshot: up to what the model wrote
    assert one.prompt.strip() == TEXT
    one.branches["B"] = replace(typed, prompt="", own=())  # the twin: nothing says what it wrote
    assert one.prompt.strip() != TEXT


def test_a_model_without_keys_and_values_has_dropped_nothing(session, thought, tmp_path):
    config = MambaConfig(vocab_size=1144, hidden_size=32, num_hidden_layers=2, state_size=4)
    MambaForCausalLM(config).save_pretrained(tmp_path / "mamba")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TINY / name, tmp_path / "mamba")
    opened = session("task=ui", "model=path", f"model.path={tmp_path / 'mamba'}")
    one = PageSession(opened, SnapshotStore(tmp_path / "shelf", opened.cfg.save), tmp_path)
    one.begin(TEXT)
    shown = picture.thought(one) + picture.cache(one)
    assert "gone" not in shown and "held" not in shown and "of recurrent state" in shown
    whole = thought()  # the twin: one that keeps them says so
    assert "held" in picture.cache(whole) and "of K/V" in picture.cache(whole)


def test_a_verdict_is_shown_on_the_branch_that_it_is_on_alone(thought):
    one = thought()
    one.verdict(2)
    assert "branch A beside a run without a pause" in picture.judged(one)
    one.fork()
    assert "Branch B is not judged yet" in picture.judged(one) and "beside" not in picture.judged(
        one
    )
    one.quantize("int4")
    one.verdict(2)
    assert "branch C beside full precision" in picture.judged(one)
    one.switch("A")
    assert "branch A beside a run without a pause" in picture.judged(one)
    one.switch("C")
    one.close()
    one.fork()  # another branch of the same name
    assert "Branch C is not judged yet" in picture.judged(one)
    one.switch("A")
    one.step()
    assert "branch A has changed since" in picture.judged(one)


def test_a_refusal_is_shown_as_it_was_raised_and_can_be_dismissed(thought):
    thought("model=tiny_gpt2").save("foreign")
    one = thought()
    with pytest.raises(RestoreRefused) as problem:
        one.load("foreign")
    shown = picture.problem(problem.value)
    assert "dismiss" in shown and all(
        picture.safe(line) in shown for line in str(problem.value).split("\n")
    )


def test_a_run_that_ends_while_its_picture_is_drawn_is_drawn_again():
    """The last token was missing on a page that only looked on, until it was read again."""
    thought = SimpleNamespace(branches={}, current="A", running=object(), turn=threading.Lock())

    def view(thought, message):
        thought.running = None  # it ends now; the picture has what was before
        return {"picture": message}

    def act(thought):
        yield "writing", {}
        yield "written", {}
        yield "nothing new", {}

    acts = object.__new__(Page)
    acts._view, acts._status, acts.c = (
        view,
        lambda thought, message: message,
        SimpleNamespace(status="words"),
    )
    assert list(acts._handled(act)(thought)) == [
        {"picture": "writing"}, {"picture": "written"}, {"words": "nothing new"},
    ]  # fmt: skip


def test_a_blank_prompt_is_refused_unless_a_template_makes_words_of_it(thought, session, tmp_path):
    one = thought()
    for blank in (" ", "\n\t  "):
        with pytest.raises(InputProblem, match="nothing but blanks"):
            one.begin(blank)
    assert list(one.branches) == ["A"]
    opened = session("task=ui", "tokenizer=chat")
    chat = PageSession(opened, SnapshotStore(tmp_path / "chat", opened.cfg.save), tmp_path)
    assert chat.begin("  ") > 1


def test_a_choice_of_each_head_is_named(thought):
    one = thought()
    one.add(" . the dog ran by the river and the bird sang in the tree . what is k ?")
    told = pruned_message(one, "keydiff", one.prune("keydiff", 9, True), 9)
    assert "Each KV head chose its own" in told
    same = thought()
    assert "chose its own" not in pruned_message(
        same, "keydiff", same.prune("keydiff", 9, False), 9
    )
