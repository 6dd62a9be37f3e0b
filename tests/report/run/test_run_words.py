"""What the report of one run says in words: near ties, what was required, its command, both texts."""

import re
import shlex

import pytest

from harness.cli.arguments import literal_text
from harness.compare.picture import MARGIN
from harness.config.literal import command
from harness.present.conclusion import conclusion
from harness.report.run import diagnosis, kept_tokens
from harness.report.run import page as run
from harness.snapshot.words import required
from harness.tokenizer.shown import parted


class Letters:
    """Ids are letters."""

    def convert_ids_to_tokens(self, token):
        return chr(token)

    def decode(self, ids, **_):
        return "".join(map(chr, ids))


def test_a_sentence_says_in_how_many_steps_another_token_is_most_likely():
    figures = {"max_abs_diff": 1.0, "first_divergence": 1, "top1_agreement": 0.9375}
    result = {"verdict": "diverged", "metrics": figures, "curves": {"restored": {"kl": [0.1] * 32}}}
    said = (
        "Another thought at step 2, in 2 of 32 steps: another token is most likely, logits are off"
    )
    assert conclusion(result).startswith(said)
    for odd in (
        {"top1_agreement": 0.953125},
        {"top1_agreement": None},
    ):  # rows of a batch; an older record
        told = conclusion({**result, "metrics": {**figures, **odd}})
        assert told.startswith(
            "Another thought at step 2: another token is most likely, logits are off"
        )


def test_a_sentence_of_drawn_tokens_counts_draws_and_not_the_most_likely_ones():
    """Whatever is most likely at a step, a reader sees the texts, which part where another token was drawn."""
    figures = {"max_abs_diff": 1.0, "first_divergence": 1, "top1_agreement": 0.75}
    text = {
        "continuation": "a b c d",
        "restored": "a b x y",
        "token_ids": [1, 2, 3, 4],
        "restored_ids": [1, 2, 5, 6],
    }
    result = {
        "verdict": "diverged",
        "metrics": figures,
        "text": text,
        "curves": {"restored": {"kl": [0.1] * 3}},
    }
    said = (
        'in 2 of 4 draws: another token is drawn ("a b x" where the uninterrupted run says "a b c")'
    )
    sampled = {**result, "sampler": {"name": "sample", "repetition_penalty": 1.0}}
    assert conclusion(sampled).startswith(f"Another thought at step 2, {said}")
    pruned = {**sampled, "pruned": True, "size": {"tokens": 9, "kept_tokens": 5}}
    told = 'Pruning: another token than the full cache\'s in 2 of 4 draws, first at step 2 ("a b x" where the full'
    assert conclusion(pruned).startswith(told)
    penalized = {**result, "sampler": {"name": "greedy", "repetition_penalty": 1.3}}
    assert said in conclusion(penalized), "greedy, but not of the scores as they came"
    biased = {**result, "sampler": {"name": "greedy", "no_repeat_ngram_size": 2}}
    assert said in conclusion(biased), "whatever moves the scores"
    greedy = {**result, "sampler": {"name": "greedy", "repetition_penalty": 1.0, "seed": 3}}
    assert "another token is most likely" in conclusion(greedy), "the twin"
    first = {**text, "restored_ids": [7, 2, 3, 4]}
    assert conclusion({**sampled, "text": first}).startswith(
        "Another thought before any step, in 1 of 4"
    )


def test_a_sentence_on_a_resume_leads_with_what_was_generated_and_praises_no_speed_of_a_wrong_one():
    """What a model thought of the words of a text that it was given is no answer."""
    figures = {"max_abs_diff": 1.0, "first_divergence": 1, "top1_agreement": 0.75}
    result = {"verdict": "diverged", "metrics": figures, "curves": {"restored": {"kl": [0.1] * 4}}, "pruned": True,
              "reason": {"code": "other_generated", "args": {"step": 3}}, "size": {"tokens": 9, "kept_tokens": 5},
              "text": {"read": 2, "steps": 2, "apart": ["a b", "a c"]}}  # fmt: skip
    told = "at 1 of 4 steps (2 read the text, 2 generated), of what was generated first at step 3, with 5 of 9"
    assert told in conclusion(result) and "where the full cache" not in conclusion(result)
    timed = {"time_s": {"recompute": 1.0, "load": 0.1, "restore": 0.1, "verify": 0.1}}
    wrong = {"verdict": "drifted", "metrics": figures, **timed}
    assert "faster" not in conclusion(wrong)
    assert "faster" in conclusion({**wrong, "verdict": "exact"}), "the twin"


def test_a_sentence_names_the_near_tie_that_flipped():
    result = {"verdict": "equivalent", "metrics": {"max_abs_diff": 1e-6, "first_divergence": None}}
    assert "the tokens of the run" in conclusion(result) and "tie" not in conclusion(result)
    result["metrics"]["first_divergence"] = 12
    assert "but for a near tie at step 13, which rounding decides" in conclusion(result)
    result |= {
        "curves": {"restored": {"kl": [0.0] * 32}},
        "metrics": {**result["metrics"], "top1_agreement": 0.9375},
    }
    told = "but for near ties in 2 of 32 steps, first at step 13, which rounding decides"
    assert told in conclusion(result)
    result["metrics"]["top1_agreement"] = 0.96875
    assert "but for a near tie at step 13" in conclusion(result), "the twin: one of them"


def test_the_first_other_token_is_quoted_where_nothing_stands_between_the_words():
    """Of a chat of ids without text, or of a script without spaces, a whole text would be one word."""
    same, one, two = "<11111>" * 5, "<22222>", "<33333>"
    pieces = {"continuation": ["<11111>"] * 5 + [one], "restored": ["<11111>"] * 5 + [two]}
    text = {"continuation": "", "restored": "", "shown": {"continuation": same + one, "restored": same + two},
            "token_ids": [1] * 5 + [2], "restored_ids": [1] * 5 + [3], "pieces": pieces}  # fmt: skip
    figures = {"max_abs_diff": 1.0, "first_divergence": 4}
    result = {"verdict": "diverged", "metrics": figures, "text": text}
    told = conclusion(result)
    assert '("<33333>" where the uninterrupted run says "<22222>")' in told and same not in told
    marked = run._text({**text, **text["shown"]})["marked"]
    assert marked.endswith(
        "from where they part: &#x27;&lt;22222&gt;&#x27; against &#x27;&lt;33333&gt;&#x27;"
    )
    mute = {**text, "pieces": {side: ["<11111>"] * 5 + [""] for side in pieces}}
    assert "(id 3 where the uninterrupted run chooses 2)" in conclusion({**result, "text": mute})


def test_what_was_required_is_said_and_what_would_let_it_through(harness):
    done = harness("quantize=int4", "steps=4")
    told = "equivalent or better (compare.require=equivalent); this is drifted: exit code 1. compare.require=drifted lets it through."
    page = (done.folders[0] / "report.html").read_text()
    assert done.code == 1 and f"required:     {told}" in done.out
    assert page.count(f"Required: {told}") == 2  # under the conclusion, and above the figures
    assert harness("quantize=int4", "steps=4", "compare.require=drifted").code == 0
    done = harness("steps=4")
    page = (done.folders[0] / "report.html").read_text()
    assert (
        page.count("Required: equivalent or better (compare.require=equivalent). Judged by: ") == 1
    )
    assert "exit code 1" not in page and "exit code 1" not in done.out
    unsound = {"verdict": "unsound", "required": "equivalent"}
    assert required(unsound).endswith("this is unsound: exit code 1.")


def test_a_recorded_command_can_be_typed_again():
    for text in (" what is k ?", "it's 5, {so}", "$HOME"):
        (carried,) = literal_text([f"text={text}"])
        assert shlex.split(command([carried]))[3:] == [f"text={text}"]
    assert command(["steps=8"]) == "python -m harness steps=8"
    assert shlex.split(command(["out=a b; c"]))[3:] == ["out=a b; c"]


def test_texts_that_read_the_same_are_told_apart_by_the_ids_of_a_record_that_has_them():
    text = {"token_ids": [1, 2], "restored_ids": [1, 3], "continuation": "a", "restored": "a"}
    result = {"verdict": "diverged", "metrics": {"first_divergence": 0, "max_abs_diff": 1.0}}
    words = "(id 3 where the uninterrupted run chooses 2)"
    for said in (text, {"apart": ["a", "a"]}):
        assert words in conclusion({**result, "text": {**said, "apart_ids": [2, 3]}})
        assert "chooses" not in conclusion({**result, "text": said})  # an older one
    made = parted(Letters(), [97, 98], [97, 99])
    assert made["apart_ids"] == [98, 99] and parted(Letters(), [97], [97]) == {}
    assert made["pieces"] == {"continuation": ["a", "b"], "restored": ["a", "c"]}


def test_what_steps_chose_otherwise_is_marked_step_by_step():
    """Two texts need not have as many words: tokens without a space between them, and an end."""
    said = {
        "continuation": " 5. the man", "restored": "29.<end> the put",
        "token_ids": [1, 2, 3, 4], "restored_ids": [5, 2, 6, 7],
        "pieces": {"continuation": [" 5", ".", " the", " man"], "restored": ["29", ".", "<end> the", " put"]},
    }  # fmt: skip
    lines = run._text(said)["marked"].splitlines()
    assert lines[0].endswith(' <mark class="first">5</mark>. <mark>the</mark> <mark>man</mark>')
    assert lines[1].endswith(
        '<mark class="first">29</mark>.<mark>&lt;end&gt; the</mark> <mark>put</mark>'
    )
    split = {"continuation": ["", "\u00e9", "b"], "restored": ["", "\u00e8", "b"]}
    both = run._text({**said, "pieces": split, "token_ids": [1, 2, 3], "restored_ids": [1, 4, 3]})
    assert '<mark class="first">\u00e9</mark>b' in both["marked"]


def test_what_the_restored_run_chose_is_no_text_of_its_own_and_first_differs_at_a_word():
    said = {"prompt": "p", "continuation": " y is 60 . the monk", "restored": " y is 69 . the boy"}
    assert run._text(said)["marked"].endswith(
        "from where they part: &#x27;60 . the monk&#x27; against &#x27;69 . the boy&#x27;"
    )
    for same in ({**said, "restored": said["continuation"]}, {"continuation": "a"}):
        assert "they part" not in run._text(same)["marked"]
    forced = "what it chooses at each step, the tokens of the uninterrupted run being fed (teacher forcing)"
    shown = run._text(said)["marked"]
    assert f'restored, {forced}:  y is <mark class="first">69</mark>' in shown
    assert " . the <mark>monk</mark>" in shown and " . the <mark>boy</mark>" in shown
    assert "forcing" not in run._text({"continuation": "a"})["marked"]
    longer = {"continuation": "k is 5", "restored": "k is 5 . ok"}
    assert run._text(longer)["marked"].endswith(
        "from where they part: &#x27;5&#x27; against &#x27;5 . ok&#x27;"
    )


def test_of_a_long_text_both_ends_are_shown_and_what_some_heads_hold_is_told_apart():
    block = {
        "tokens": ["let", " k", "ee", " <b>"],
        "held": [4, 2, 0, 4],
        "heads": 4,
        "left_out": 230,
    }
    (made,) = kept_tokens.sections({"kept": block})
    assert (
        made["text"]
        == "2 of the 4 tokens shown are held by every head, 1 by none, 1 by some of the 4 KV heads of all layers."
    )
    strip = re.sub(' title="[^"]*"', "", made["svg"])
    assert (
        "let <u>k</u> <span" in strip
        and "230 tokens left out ...</span> <s>ee</s> &lt;b&gt;" in strip
    )
    assert (
        kept_tokens.sections({"kept": {**block, "held": [4] * 4}}) == kept_tokens.sections({}) == []
    )


def test_what_is_above_one_step_or_floor_is_clearly_darker_than_what_is_below():
    told = {"cause": "other", "evidence": "quantized", "picture": [[0.5 * 8, 5.0 * 8, 13.7 * 8]]}
    pale, five, more = (
        float(shade)
        for block in diagnosis.sections(told, coded=True)
        for shade in re.findall(r'fill-opacity="([\d.]+)"', block["panels"][0])
    )
    assert pale == diagnosis.PALE and 0.5 < five < more < 1
    assert diagnosis.strength(1.0) == pale and diagnosis.strength(1.1) >= 0.3
    assert diagnosis.strength(1e6) == pytest.approx(1) and diagnosis.strength(1e9) == 1


def test_what_the_noise_explains_of_a_sound_state_is_not_drawn_as_if_it_were_wrong():
    """A row may be off by as many floors as the diagnosis allows: a picture of red cells would accuse it."""
    told = {"cause": "rounding", "evidence": "nothing leaves the noise", "picture": [[1.5, 7.9]]}
    (block,) = diagnosis.sections(told)
    assert "panels" not in block and "lies within the noise of what" in block["text"]
    (worse,) = diagnosis.sections({**told, "picture": [[1.5, 8.1]]})
    (wrong,) = diagnosis.sections({**told, "cause": "block", "evidence": "a row is another"})
    assert "panels" in worse and "panels" in wrong
    assert diagnosis.HEALTHY == diagnosis.STEP == MARGIN


def measured(verdict: str, step: int | None = None) -> dict:
    figures = {
        "max_abs_diff": 0.5,
        "kl_max": 1e-3,
        "kl_mean": 1e-5,
        "mean_abs_diff": 0.1,
        "first_divergence": step,
    }
    curve = {"max_abs_diff": [0.1, 0.5], "kl": [1e-5, 1e-3]}
    return {"verdict": verdict, "metrics": figures, "noise_floor": {**figures, "max_abs_diff": 0.25},
            "oracle": {"restored": 0.5, "plain": 0.5}, "curves": {"restored": curve, "noise: a": curve}}  # fmt: skip


def test_figures_above_their_noise_floor_in_an_equivalent_run_are_accounted_for(tmp_path):
    said = run._comparison(tmp_path / "r.html", measured("equivalent"))[0]["text"]
    assert (
        "the least that rounding does: largest difference of a logit. The verdict rests on the error against float64: 0.5,"
        in said
    )
    assert "float64" not in run._comparison(tmp_path / "r.html", measured("drifted"))[0]["text"]
    below = measured("equivalent")
    below["noise_floor"]["max_abs_diff"] = 0.5
    assert "float64" not in run._comparison(tmp_path / "r.html", below)[0]["text"]
