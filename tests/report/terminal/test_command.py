"""The last lines of a run: whose words they are, and one command that goes on."""

import re
import shlex
from pathlib import Path

from harness.report import footer
from harness.report.run import page as run
from harness.report.terminal import command
from harness.snapshot import words
from harness.snapshot.words import streamed

TINY = Path(footer.__file__).parents[1] / "model" / "assets" / "tiny"
TEXT = {"continuation": " k is 5", "restored": " k is 35", "token_ids": [1, 2, 3]}


def test_it_is_said_whose_words_are_shown() -> None:
    (first, full), (second, less) = command.texts(TEXT, "pruned")
    assert (first, second) == ("continuation", "pruned")
    assert full.startswith("' k is 5' (the full cache, never interrupted; 3 tokens")
    assert less.startswith("' k is 35' (")
    labels = [label for label, _ in command.texts(TEXT, "")]
    assert labels == ["continuation", "restored"]
    same = {**TEXT, "restored": TEXT["continuation"]}
    assert len(list(command.texts(same, "pruned"))) == 1


def test_ids_without_a_text_are_named() -> None:
    ((_, said),) = command.texts({"continuation": "", "token_ids": [9] * 4 + [8]}, "")
    assert (
        said
        == "'' (5 tokens, the first before any step; the tokenizer has no text for such ids: 9)"
    )
    assert "no text" not in str(list(command.texts({"continuation": "", "token_ids": []}, "")))


def test_a_page_names_ids_without_a_text() -> None:
    said = run._text({"prompt": "", "continuation": "", "token_ids": [9, 8], "restored": ""})
    assert "prompt: (no text)" in said["marked"] and "restored, what" in said["marked"]
    assert (
        "continuation, the uninterrupted run: the tokenizer has no text for such ids: 9, 8"
        in said["marked"]
    )


def test_a_pruning_that_was_asked_for_is_no_damage() -> None:
    assert words.cause({"cause": "block", "evidence": "pruned on purpose: 2 of 9"}) == "AS ASKED"
    assert words.cause({"cause": "block", "evidence": "row 3 holds zeros"}) == "BLOCK"


def test_an_encrypted_snapshot_goes_on_with_its_key(harness, place) -> None:
    (place / "my key").write_bytes(bytes(range(32)))
    assert harness("task=save", "text=let k be 5 .", "out=a", "encrypt=my key").code == 0
    read = harness("task=resume", "snapshot=a", "text= what", "steps=1", "out=b", "decrypt=my key")
    told = shlex.split(re.search(r"^next: +(.*)$", read.out, flags=re.M)[1])
    assert told[-4:] == ["task=resume", "snapshot=b", "decrypt=my key", "track=none"], read.out
    assert harness(*told[-4:-1], "steps=1").code == 0


def test_the_page_of_a_pruned_run_says_as_the_console_does(harness) -> None:
    done = harness("prune=keep_last", "prune.ratio=0.25", "steps=4", "prompt=recall")
    page = (done.folders[0] / "report.html").read_text()
    said = page[page.index("What was said") :]
    assert "pruned, what it chooses at each step" in said and "restored, what" not in said
    assert "continuation, the full cache, never interrupted:" in said
    assert "of the pruned run, fed the same tokens" in page
    found = page.split("<h2>Diagnosis")[1].split("<h2>")[0]
    assert "pruned on purpose" in found and "<table" not in found, "the text says all of it"
    assert ">block<" not in found and "kv_cache" not in found


def test_what_comes_next_is_a_command_that_goes_on(harness) -> None:
    saved = harness("task=save", "text=let k be 5 .", "out=my a")
    assert saved.code == 0
    told = re.search(r"^next: +(.*)$", saved.out, flags=re.M)[1]
    words = shlex.split(told)
    assert (
        words[-3:] == ["task=resume", "snapshot=my a", "track=none"]
        and harness(*words[-3:-1], "steps=1").code == 0
    )
    more = harness(
        "task=resume",
        "snapshot=my a",
        "text= what is k ?",
        "steps=2",
        "out=b",
        "report.verbose=true",
    )
    assert more.code == 0 and "written:      b (needs my a beside it)\n" in more.out
    assert re.search(r"^next: .* task=resume snapshot=b track=none$", more.out, flags=re.M)
    assert "next:" not in harness("task=save", "text=let k be 5 .", "save=memory").out
    pruned = harness("prune=keep_last", "prune.ratio=0.25", "steps=4", "report.verbose=true")
    assert "AS ASKED: pruned on purpose" in pruned.out and "BLOCK" not in pruned.out
    given = "model=path", f"model.path={TINY}", "runs_dir=my runs", "steps=2"
    for typed in (
        given,
        ("task=resume", "snapshot=b", "steps=2"),
        ("fault=layer_swap", "restore.strict=false", *given),
    ):
        done = harness(*typed)
        following = shlex.split(re.search(r"^next: +(.*)$", done.out, flags=re.M)[1])
        following = following[next(i for i, w in enumerate(following) if w.startswith("task=")) :]
        assert harness(*(w for w in following if w != "track=none")).code == 0, (typed, following)


def test_what_comes_next_keeps_the_places_that_a_file_of_one_s_own_says(harness, place) -> None:
    own = "defaults: [config, _self_]\nruns_dir: my runs\nencrypt: key\n"
    (place / "own").mkdir()
    (place / "own" / "mine.yaml").write_text(own)
    (place / "key").write_bytes(bytes(range(32)))
    done = harness("--config-dir=own", "-cn", "mine", "task=save", "text=let k .", "out=a")
    told = shlex.split(re.search(r"^next: +(.*)$", done.out, flags=re.M)[1])
    assert told[-5:] == ["decrypt=key", "--config-dir", "own", "track=none", "runs_dir=my runs"]
    assert harness(*told[-7:], "steps=1").code == 0
    assert list(place.glob("my runs/resume/*/result.json")) and not (place / "runs").exists()


def test_two_questions_about_a_pruned_state_have_a_name_each() -> None:
    result = {
        "verdict": "diverged",
        "reason": "step 2 chooses another token",
        "required": "diverged",
    }
    block = {"verdict": "equivalent", "against": "saved", "required": "equivalent"}
    whole = {**result, "itself": block, "pruned": True}
    told = dict(command.verdicts(whole, "off by 1e-5"))
    assert list(told) == ["restore", "pruning", "required"]
    assert told["restore"] == "EQUIVALENT: off by 1e-5"
    assert told["pruning"].startswith("DIVERGED, beside the full cache: step 2 ")
    other = {**whole, "itself": {**block, "against": "restored"}}
    assert next(iter(command.verdicts(other, "off"))) == ("cross-check", "EQUIVALENT: off")
    assert [name for name, _ in command.verdicts(result, "")] == ["verdict", "required"]


def test_one_prompt_is_no_prompts() -> None:
    result = {"task": "evaluate", "model": {}, "environment": {"dtype": "float32", "device": "cpu"}}
    result |= {"model": {"id": "tiny"}, "options": {"prompt": "recall"}}
    told = [footer.under({**result, "evaluation": {"questions": n}}) for n in (1, 24)]
    assert "1 prompt of recall" in told[0] and "24 prompts of recall" in told[1]
    assert footer._asked("1 prompt of recall", ["prompt.samples"]) == "prompt recall"
    assert footer._asked("24 prompts of recall", ["prompt.samples"]) == "prompt recall"


def test_one_token_over_and_over_is_a_weak_test_and_said_so() -> None:
    ((_, said),) = command.texts({"continuation": " a a a a", "token_ids": [9] * 4}, "")
    assert "one token 4 times over: that both runs choose it says little" in said
    silent = {
        "continuation": "",
        "restored": "",
        "token_ids": [9] * 4,
        "restored_ids": [9, 9, 8, 9],
    }
    (_, whole), (_, small) = command.texts(silent, "pruned")
    assert "both" not in whole and small == "'': other ids, token 3 is 8 where that has 9"
    alone = {"continuation": "a", "token_ids": [9] * 4}
    ((_, said),) = command.texts(alone, "", judged=False)
    assert "one token 4 times over" in said and "both" not in said
    ((_, said),) = command.texts({"continuation": " a a a b", "token_ids": [9, 9, 9, 8]}, "")
    assert "says little" not in said
    assert command.of_ids([9] * 5, "<9>", without=[9]) == (
        "one token 5 times over, without text in this tokenizer: that both runs choose it says little"
    )


def test_what_a_resume_read_is_not_what_it_said() -> None:
    text = {"added": " who ?", "streamed": " who ? me .", "continuation": "me . x", "steps": 2}
    text |= {"read": 3, "token_ids": [1, 2, 3, 4, 5, 6]}
    told = dict(command.texts(text, ""))
    assert told == {"read": "' who ?'", "continuation": "' me .' (2 tokens generated)"}
    marked = run._text({**text, "prompt": "hi"})["marked"]
    assert "then read:  who ?\ncontinuation:  me ." in marked
    assert streamed({**text, "added": "<s>"}) == ("", " who ? me .")


def test_tokens_without_text_are_counted_and_shown():
    text = {"continuation": "a", "token_ids": [5, 900, 900], "without_text": [900], "shown": {"continuation": "a<900><900>"}}  # fmt: skip
    ((_, said),) = command.texts(text, "")
    assert "'a<900><900>'" in said and "2 of 3 tokens have no text" in said


def test_a_save_says_what_it_read(harness, place) -> None:
    """Whoever forgot `text=` saved the shipped prompt, and sees it."""
    verbose = "report.verbose=true"
    assert (
        "read:         'let k be 5 .'\n" in harness("task=save", "text=let k be 5 .", verbose).out
    )
    (usual,) = re.findall(r"^read: +(.*)$", harness("task=save", verbose).out, flags=re.M)
    assert usual.startswith("'let k be 5 . ok .") and usual.endswith("what is k ?', 336 characters")


def test_of_several_questions_it_is_said_which_was_read(harness, place) -> None:
    line = '{"context": "let k be 5 .", "question": "what is k ?", "expected": "5"}\n'
    (place / "two.jsonl").write_text(line + line.replace("5", "7"))
    (place / "one.jsonl").write_text(line)
    two = harness("task=save", "prompt=jsonl", "prompt.path=two.jsonl")
    assert "\nprompt:       question 1 of 2 in two.jsonl (task=evaluate asks all)\n" in two.out
    page = (two.folders[0] / "report.html").read_text()
    assert "prompt, question 1 of 2 in two.jsonl (task=evaluate asks all): let k" in page
    assert "question 1" not in harness("task=save", "prompt=jsonl", "prompt.path=one.jsonl").out


def test_a_long_text_is_shown_by_its_ends() -> None:
    text = "one " * 100 + "the end"
    said = command.ends(text)
    assert said.startswith("'one one") and said.endswith("one the end', 407 characters") and len(said) < 300  # fmt: skip
    given = {"continuation": "", "added": text, "streamed": f"{text} so", "read": 101, "steps": 1}
    assert dict(command.texts(given, ""))["read"] == said
    assert command.ends("it's") == '"it\'s"'
