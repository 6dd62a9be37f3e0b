"""Text reaches the tokenizer exactly as typed, whatever the override grammar would make of it."""

import json
import shlex

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.cli.arguments import literal_text, ordered
from harness.config.literal import decode_literal, typed
from harness.track.contents import read, varied

HARD = [" leading", "trailing ", "it's", 'say "hi"', "a,b", "a=b", "{x: 1}", "[1, 2]", "${seed}",
        "\\", "\\'", "new\nline", "null ", "true", "12", "???", "", "ünïcode 中文 🙂", "$(x)",
        "a\\,b", "'", "\t", "~x", "+x", "key: value", "# no comment"]  # fmt: skip


@pytest.mark.parametrize("text", HARD)
def test_hard_texts_arrive_unchanged(compose, text: str) -> None:
    (argument,) = literal_text([f"text={text}"])
    assert compose(argument).text == text


@settings(max_examples=40, deadline=None)
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
]
LITERAL = ["a,b", "choice(a,b)", '"a", b', '"a","b" and more', '"a"', "'a' 'b'", "it's, 'b'"]


@pytest.mark.parametrize("value, texts", SWEPT)
def test_a_sweep_goes_through_texts_that_are_all_in_quotes(compose, value, texts) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    swept = literal_text(["-m", f"text={value}"])[1]
    points = OverridesParser.create().parse_override(swept).sweep_string_iterator()
    assert [compose(f"text={point}").text for point in points] == texts
    assert literal_text(["-m", *shlex.split(typed(swept))])[1] == swept  # as a record tells it
    (single,) = literal_text([f"text={value}"])
    assert compose(single).text == value


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
