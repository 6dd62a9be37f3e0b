"""Text reaches the tokenizer exactly as typed, whatever the override grammar would make of it."""

import html
import json
import re
import shlex

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.cli.arguments import literal_text, ordered
from harness.config.launched import of_point
from harness.config.literal import NULL, command, decode_literal, decoded, listed, plain
from harness.track.contents import read, varied

HARD = [" leading", "trailing ", "it's", 'say "hi"', "a,b", "a=b", "{x: 1}", "[1, 2]", "${seed}",
        "\\", "\\'", "new\nline", "null ", "true", "12", "???", "", "ünïcode 中文 🙂", "$(x)",
        "a\\,b", "'", "\t", "~x", "+x", "key: value", "# no comment"]  # fmt: skip


@pytest.mark.parametrize("text", HARD)
def test_hard_texts_arrive_unchanged(compose, text: str) -> None:
    (argument,) = literal_text([f"text={text}"])
    assert compose(argument).text == text


@settings(max_examples=20, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=40))
@example("null")
def test_any_text_arrives_unchanged(compose, text: str) -> None:
    if text == "null":  # the one word that means "no text", as everywhere in Hydra
        return
    (argument,) = literal_text([f"text={text}"])
    assert compose(argument).text == text


def test_other_arguments_are_left_alone() -> None:
    given = ["-m", "cache=dynamic,cloned", "context=1", "model.path=/a b", "--cfg", "job"]
    assert literal_text(given) == given


PATHS = [
    "with space/x",
    " edge ",
    "a, b (2)",
    "gedächtnis/思考 ☃",
    "it's",
    'say "hi"',
    "[1]",
    "{x}",
    "50%",
]


@pytest.mark.parametrize("path", PATHS)
def test_paths_arrive_unchanged(compose, path: str) -> None:
    for key in ("snapshot", "out", "runs_dir"):
        (argument,) = literal_text([f"{key}={path}"])
        assert getattr(compose("task=save", argument), key) == path


def test_in_a_sweep_commas_separate_paths_and_grammar_is_left_alone() -> None:
    assert literal_text(["-m", "snapshot=a/b,ä"])[1] == "snapshot=a/b,'ä'"
    for meant in ("snapshot=glob(*)", "out='a,b'", "out=${runs_dir}/x", "out=null"):
        assert literal_text(["-m", meant])[1] == meant


SWEPT = [
    ("choice('a','b')", ["a", "b"]),
    ('"let k be 5 .","it\'s, red"', ["let k be 5 .", "it's, red"]),
    (r"""'say \'hi\'', "${x}" """, ["say 'hi'", "${x}"]),
    ('"let k be 5 . what is k ?"', ["let k be 5 . what is k ?"]),
    (r"""'it\'s'""", ["it's"]),
]
LITERAL = ["a,b", "choice(a,b)", '"a", b', '"a","b" and more', "'a' 'b'", "it's, 'b'"]


@pytest.mark.parametrize("value, texts", SWEPT)
def test_a_sweep_goes_through_texts_that_are_all_in_quotes(compose, value, texts) -> None:
    swept = literal_text(["-m", f"text={value}"])[1]
    assert [compose(point).text for point in points(swept)] == texts
    assert literal_text(shlex.split(command(["-m", swept]))[3:])[1] == swept  # as a record tells it
    (single,) = literal_text([f"text={value}"])
    assert compose(single).text == value


def points(recorded: str) -> list[str]:
    """What Hydra records of each point of a sweep."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = OverridesParser.create().parse_override(recorded)
    if not parsed.is_sweep_override():
        return [recorded]
    return [f"{parsed.key_or_group}={point}" for point in parsed.sweep_string_iterator()]


def retyped(*recorded: str) -> list[str]:
    """What is recorded where somebody pastes the printed command of what was `recorded`."""
    return literal_text(shlex.split(command(recorded))[3:])


TEXTS = st.text(
    st.one_of(
        st.sampled_from("'\"\\,=?${}() x\n`!"), st.characters(exclude_categories=["Cs", "Cc"])
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.sampled_from(["text", "prompt.text", "+text"]))
@example("let k be 5 . the bird sang .", "text")
@example('"a","b"', "text")
@example('choice("a")', "text")
@example("'a b'", "prompt.text")
def test_the_command_of_a_run_gives_back_its_text(text: str, key: str) -> None:
    for flags in ([], ["-m"]):  # a list in quotes is one text in a run, several in a sweep
        recorded = literal_text([*flags, f"{key}={text}"])
        assert retyped(*recorded) == recorded
        told = shlex.split(command(recorded))[-1]
        assert text == "null" or flags or told == f"{key}={text}"


@settings(max_examples=300, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=3))
@example(['"a","b"'])
@example(["null"])
@example(["null", "back\\", 'so\\"', "\\'"])
def test_the_commands_of_a_sweep_and_of_its_points_give_back_each_text(several: list[str]) -> None:
    value = f"choice({','.join(map(listed, several))})"
    recorded = literal_text(["-m", f"text={value}"])
    assert retyped(*recorded)[1:] == [recorded[1].replace("'null'", NULL)] or len(several) > 1
    # the text null has two spellings
    each, again = ([p.replace("'null'", NULL) for p in points(typed)]
                   for typed in (recorded[1], retyped(*recorded)[1]))  # fmt: skip
    assert again == each and len(each) == len(several)
    for text, point in zip(several, each):
        (again,) = retyped(point)  # by itself, outside the sweep
        assert decoded(again) == f"text={text}" and plain_text(again) == text


def plain_text(override: str) -> str:
    """The text as the configuration has it: what a string of the grammar holds, resolved."""
    value = points(override)[0].partition("=")[2]
    assert value != "null", "there is no text"
    held = value[1:-1]
    return plain(decode_literal(held.split('"')[1])) if held.startswith("${literal:") else held


@pytest.mark.parametrize(
    "text", ["let k be 5 . the bird sang .", "  it's a,b", '"a","b"', "${x}\\"]
)
def test_the_page_of_a_run_and_of_a_point_says_what_runs_it_again(compose, harness, text) -> None:
    """Typed, recorded, drawn and pasted: the very same text."""
    (one,) = harness(f"text={text}", "task=save").folders
    page = html.unescape((one / "report.html").read_text())
    (line,) = re.findall(r"python -m harness[^<\n]*text=[^<\n]*", page)
    assert compose(*literal_text(shlex.split(line)[3:])).text == text
    swept = harness("-m", f"text=choice({listed(text)},{listed('let a')})", "task=save").folders
    page = html.unescape((swept[0].parent / "sweep.html").read_text())
    line = re.findall(r"python -m harness -m[^<\n]*text=[^<\n]*", page)[0]
    recorded = literal_text(shlex.split(line)[3:])[1]
    assert [plain_text(point) for point in points(recorded)] == [text, "let a"]
    assert compose(*literal_text(shlex.split(of_point(swept[0]))[3:])).text == text


@pytest.mark.parametrize("value", LITERAL)
def test_any_other_text_of_a_sweep_is_one_text(compose, value: str) -> None:
    assert compose(literal_text(["-m", f"text={value}"])[1]).text == value


def test_a_swept_text_is_counted_named_and_told(harness) -> None:
    """A text that travels as base64 too."""
    done = harness("-m", "task=save", 'text="let k be 5 .","it\'s \\"red\\""')
    assert done.out.startswith(
        '2 points: text="let k be 5 .","it\'s \\"red\\""\nfolder:  runs/save/'
    )
    assert "MLflow:  not used (track=none)" in done.out
    assert "[1/2]" in done.out and "[2/2]" in done.out and 'text=it\'s "red"' in done.out
    texts = [json.loads((f / "record.json").read_text())["config"]["text"] for f in done.folders]
    assert texts == ["let k be 5 .", 'it\'s "red"']
    assert [read(o) for f in done.folders for o in varied(f)] == [
        'text="let k be 5 ."', 'text="it\'s "red""']  # fmt: skip


def test_plain_text_stays_readable() -> None:
    assert literal_text(["text= what is k"]) == ["text=' what is k'"]


def test_literal_resolver_inverts_the_encoding() -> None:
    (argument,) = literal_text(["text=it's ${x}"])
    assert decode_literal(argument.split('"')[1]) == "it's ${x}"


def test_flags_may_stand_anywhere() -> None:
    assert ordered(["name=x", "-m", "cache=a,b"]) == ["-m", "name=x", "cache=a,b"]
    assert ordered(["a=1", "--cfg", "job", "b=2"]) == ["--cfg", "job", "a=1", "b=2"]
    assert ordered(["--config-dir", "here", "a=1"]) == ["--config-dir", "here", "a=1"]
    assert ordered(["text=-m", "~track"]) == ["text=-m", "~track"]


def test_info_without_a_value_leaves_what_follows_alone() -> None:
    """Hydra's own parser would take the next word for its value."""
    assert ordered(["--info", "save=gzip"]) == ["--info=all", "save=gzip"]
    assert ordered(["save=gzip", "-i"]) == ["-i=all", "save=gzip"]
    assert ordered(["-i", "plugins", "a=b"]) == ["-i", "plugins", "a=b"]
