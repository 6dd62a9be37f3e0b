"""`task=evaluate`: every cell with its interval, resumable, and a corrupted twin for what it claims."""

import json
from functools import partial
from pathlib import Path

import pytest

from harness.pipeline.evaluation.answers import Asked
from harness.pipeline.evaluation.progress import Progress
from harness.pipeline.questions.question import Question
from harness.report.evaluate.budget import pareto

SMALL = ("task=evaluate", "prompt=recall", "prompt.distance=32", "steps=5")


def lines(path: Path, count: int = 4) -> Path:
    rows = [
        {
            "context": f"let k be {n} . the dog ran .",
            "question": "what is k ?",
            "expected": f"k is {n}",
        }
        for n in range(10, 10 + count)
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def rows_of(done) -> list[dict]:
    return json.loads((done.folders[0] / "evaluate.json").read_text())


def test_every_cell_is_there_with_its_interval_and_the_full_cache(harness, place) -> None:
    path = lines(place / "p.jsonl")
    done = harness(
        "task=evaluate", "prompt=jsonl", f"prompt.path={path}", "task.prunes=[none,knorm]",
        "task.quantizers=[none,int8]", "task.budgets=[0.5]", "task.caches=[manual,cloned]", "steps=6",
    )  # fmt: skip
    assert done.code == 0, done.out
    assert done.result["cache"] == {"served": "cloned, manual"}, "by name, not as auto"
    rows = rows_of(done)
    keys = {"model", "prompt", "prune", "quantize", "cache", "budget", "asked", "measure", "value",
            "low", "high", "n", "kv_bytes", "per_token_s"}  # fmt: skip
    assert all(keys <= set(row) for row in rows)
    assert all(row["low"] <= row["value"] <= row["high"] and row["n"] == 4 for row in rows)
    cells = {(r["prune"], r["quantize"], r["cache"], r["budget"], r["asked"]) for r in rows}
    assert len(cells) == 4 * 2 * 2
    right = {
        (r["prune"], r["quantize"], r["cache"]): r
        for r in rows
        if r["measure"] == "contains" and r["asked"] == "after"
    }
    full, coded = right["none", "none", "manual"], right["none", "int8", "manual"]
    assert full["value"] == coded["value"] == 1.0 and full["delta"] == 0
    assert coded["kv_bytes"] < 0.3 * full["kv_bytes"]
    assert right["none", "int8", "cloned"]["kv_bytes"] == full["kv_bytes"]  # decoded there
    assert right["knorm", "none", "manual"]["value"] < 1  # it loses what is asked for
    kl = {(r["prune"], r["quantize"]): r["value"] for r in rows if r["measure"] == "kl"}
    assert kl["none", "none"] == 0 < kl["none", "int8"] < kl["knorm", "none"]
    assert {r["measure"] for r in rows if r["quantize"] == "int8"} >= {"key_error", "value_error"}
    assert "<svg" in (done.folders[0] / "report.html").read_text()
    assert 'href="questions.jsonl"' in (done.folders[0] / "report.html").read_text()
    said = [json.loads(row) for row in (done.folders[0] / "answers.jsonl").read_text().splitlines()]
    assert len(said) == 4 * len(cells) and all("said" in row for row in said)


@pytest.mark.parametrize("when", ["after", "before"])
def test_a_chat_template_is_what_the_library_renders_and_is_pruned_up_to_the_question(
    session, when
) -> None:
    opened = session("task=evaluate", "tokenizer=chat", "prompt=recall", "steps=5")
    question = Question("let k be 5 . the dog ran .", "what is k ?", "k is 5")
    place = Asked.of(opened, question, when)
    turns = [{"role": "user", "content": question.context + question.asked}]
    render = partial(opened.loaded.tokenizer.apply_chat_template, return_dict=False)
    whole = render(turns, add_generation_prompt=True)
    assert [*place.ids, *place.follow] == whole
    read = opened.loaded.tokenizer.decode(place.ids)
    assert read.endswith("the dog ran .") if when == "after" else len(place.follow) == 1
    assert place.prefix == 2, "the beginning and whose turn it is"
    ended = render([*turns, {"role": "assistant", "content": question.expected}])
    assert ended[: len(whole) + len(place.expected)] == [*whole, *place.expected]


def test_a_chat_template_changes_what_is_asked_and_the_record_says_how(harness, place) -> None:
    path = lines(place / "p.jsonl", 2)
    asked = ("task=evaluate", "prompt=jsonl", f"prompt.path={path}", "task.prunes=[keep_last]",
             "task.budgets=[0.5]", "steps=4")  # fmt: skip
    plain, chat = harness(*asked), harness(*asked, "tokenizer=chat")
    assert (plain.code, chat.code) == (0, 0), chat.out
    around = [done.result["evaluation"]["around"] for done in (plain, chat)]
    assert around[0] == {"before": "<bos>", "after": ""}
    assert around[1] == {"before": "<bos><user>", "after": "<end><assistant>"}
    one, two = ([r["value"] for r in rows_of(done) if r["measure"] == "nll"] for done in (plain, chat))  # fmt: skip
    assert len(one) == 4 and all(a != b for a, b in zip(one, two, strict=True))


def test_prompts_that_the_full_cache_fails_cannot_tell(harness, place) -> None:
    """The twin: of the same answers the same prompts expect what is said."""
    codes = {}
    for expected in ("k is 10", "nothing of the kind"):
        rows = [{"context": "let k be 10 .", "question": "what is k ?", "expected": expected}]
        (place / "p.jsonl").write_text(json.dumps(rows[0]))
        done = harness(
            "task=evaluate", "prompt=jsonl", "prompt.path=p.jsonl", "task.prunes=[none]",
            "task.quantizers=[int8]", "task.asked=[after]", "steps=4",
        )  # fmt: skip
        codes[done.result["evaluation"]["code"]] = done.reason
    assert [*codes] == ["choice", "cannot_tell"]
    told = "These prompts cannot tell: the full cache itself has 0 of 1 prompt right."
    assert codes["cannot_tell"] == told and told in done.out and "safe choice" not in done.out
    assert "safe choice:" not in (done.folders[0] / "report.html").read_text()


def test_the_keys_of_the_chosen_policy_are_its_own_in_an_evaluation_too(compose) -> None:
    """`prune.recent` and `quantize.group` were once answered with their defaults."""
    from harness.pipeline.evaluation.cells import Cells

    asked = ["task=evaluate", "prune=heavy_hitter", "quantize=int4", "task.budgets=[0.25]"]
    lists = ["task.prunes=[heavy_hitter,knorm]", "task.quantizers=[none,int4,int8]"]
    cells = Cells(compose(*asked, *lists, "prune.recent=0.5", "quantize.group=16"))
    assert cells._policies["heavy_hitter", 0.25].settings.recent == 0.5
    assert cells._quantizers["int4"].settings.group == 16
    plain = Cells(compose(*asked, *lists))
    assert plain._policies["heavy_hitter", 0.25].settings.recent != 0.5
    assert plain._quantizers["int4"].settings.group != 16


def test_an_option_beside_the_lists_is_refused_only_where_no_cell_heeds_it(compose) -> None:
    from harness.errors import ConfigProblem
    from harness.task.evaluate import check_choice

    searched = ["experiment=prune_search", "prune=knorm", "prune.ratio=0.2"]
    keyed = ["task=evaluate", "prune=heavy_hitter", "prune.recent=0.5", "prune.per_head=false"]
    for heeded in (["task=evaluate"], ["experiment=quantize_table"], searched, keyed):
        check_choice(compose(*heeded))
    for passed_over in ([*keyed, "task.prunes=[knorm]"], ["task=evaluate", "prune=heavy_hitter"]):
        with pytest.raises(ConfigProblem, match="prune=heavy_hitter is not what"):
            check_choice(compose(*passed_over))


def test_codes_of_one_shape_and_another_kind_are_not_rows_of_one_batch(harness, place) -> None:
    path = lines(place / "p.jsonl", 2)
    done = harness(
        "task=evaluate", "prompt=jsonl", f"prompt.path={path}", "task.prunes=[none]", "steps=4",
        "task.quantizers=[int8,fp8_e4m3,fp8_e5m2,int4,kivi]", "task.asked=[after]",
    )  # fmt: skip
    assert done.code == 0, done.out
    error = {r["quantize"]: r["value"] for r in rows_of(done) if r["measure"] == "key_error"}
    assert error["int8"] < error["fp8_e4m3"] < error["fp8_e5m2"]


@pytest.mark.parametrize("kind", ["needle", "multi_key", "variable_tracking"])
def test_generated_prompts_fit_their_length_for_any_tokenizer(harness, session, kind: str) -> None:
    from harness.pipeline.questions import questions

    for model in ("tiny", "tiny_gpt2"):
        cfg = session(f"prompt={kind}", "prompt.samples=3", "prompt.length=96", f"model={model}")
        tokenizer = cfg.loaded.tokenizer
        made = questions(cfg.cfg.prompt, tokenizer)
        assert len(made) == 3 and len({q.context for q in made}) == 3
        for question in made:
            size = len(tokenizer(question.context, add_special_tokens=False)["input_ids"])
            assert 60 <= size <= 96
            name = question.question.split()[-2]
            assert f"let {name} be " in question.context
        again = questions(cfg.cfg.prompt, tokenizer)
        assert made == again  # seeded


def test_a_needle_is_found_in_the_full_cache_and_its_depths_differ(harness) -> None:
    done = harness(
        "task=evaluate", "prompt=needle", "prompt.samples=4", "prompt.length=96", "steps=5",
        "task.prunes=[keep_last]", "task.budgets=[0.25]", "task.asked=[after]",
    )  # fmt: skip
    assert done.code == 0, done.out
    right = {r["prune"]: r["value"] for r in rows_of(done) if r["measure"] == "contains"}
    assert right["none"] == 1.0 and right["keep_last"] < 1.0


@pytest.mark.parametrize(
    "line, said",
    [
        ('{"context": 5}', "has no question"),
        ("not json", "is not JSON"),
        ("[1]", "is no object"),
        ('{"context": "a", "question": "b", "expected": ""}', "expected is no text"),
        ('{"context": "a", "question": "b", "expected": "c", "exected": "d"}', "'exected'"),
        ('{"context": "a", "question": "b", "expected": "c", "regex": "("}', "regex"),
        (
            '{"context": "a", "question": "b", "expected": "c", "regex": "(a{60000}){60000}"}',
            "too often",
        ),
        (
            '{"context": "a", "question": "b", "expected": "c", "regex": "%s"}' % ("(" * 9000),
            "recursion",
        ),
    ],
)
def test_a_bad_line_is_named_by_its_number(harness, place, line: str, said: str) -> None:
    path = lines(place / "p.jsonl")
    good = path.read_text().splitlines()
    path.write_text("\n".join([*good[:2], line, *good[2:]]))
    done = harness("task=evaluate", "prompt=jsonl", f"prompt.path={path}", "task.prunes=[knorm]")
    assert done.code == 2 and "line 3" in done.out and said in done.out
    assert "Traceback" not in done.out


@pytest.mark.parametrize(
    "given, said",
    [
        (["task.budgets=[0.5,2.0]"], "task.budgets"),
        (["task.prunes=[keep_lost]"], "keep_last"),
        (["task.quantizers=[int9]"], "int8"),
        (["task.caches=[manuel]"], "manual"),
        (["task.asked=[during]"], "task.asked"),
        (["task.prunes=[]"], "task.prunes"),
        (["prompt=turns"], "asks nothing"),
    ],
)
def test_what_cannot_be_evaluated_is_one_message(harness, given, said) -> None:
    small = SMALL if given != ["prompt=turns"] else SMALL[:1]
    done = harness(*small, *given)
    assert done.code == 2 and said in done.out and "Traceback" not in done.out


def test_progress_of_another_evaluation_is_not_taken(tmp_path) -> None:
    one = Progress(tmp_path, {"a": 1})
    one.add("0/after", [{"said": "x"}])
    with one.path.open("a") as file:
        file.write('["cut sho')
    again = Progress(tmp_path, {"a": 1})
    assert again.answered == {"0/after": [{"said": "x"}]}
    again.add("1/after", [{"said": "y"}])  # is not lost behind what was cut short
    assert Progress(tmp_path, {"a": 1}).answered == again.answered and len(again.answered) == 2
    assert Progress(tmp_path, {"a": 2}).answered == {}


def test_progress_is_there_until_the_record_is(harness, place, monkeypatch) -> None:
    """Told to end while the record is written: nothing is asked again."""
    from harness.task import evaluate

    path = lines(place / "p.jsonl", 2)
    given = [
        "task=evaluate",
        "prompt=jsonl",
        f"prompt.path={path}",
        "task.prunes=[none]",
        "steps=2",
    ]

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(evaluate, "finish_table", full)
        assert harness(*given).code == 1
    again = harness(*given)
    assert again.code == 0 and again.result["evaluation"]["resumed"] == 4, again.out
    assert not list(place.glob("runs/.evaluate/*.jsonl"))


def test_the_front_holds_what_nothing_smaller_matches() -> None:
    points = [(10, 0.5), (20, 0.4), (30, 0.9), (40, 0.9)]
    rows = [{"kv_bytes": size, "value": value} for size, value in points]
    assert [r["kv_bytes"] for r in pareto(rows, larger=True)] == [10, 30]
    assert [r["kv_bytes"] for r in pareto(rows, larger=False)] == [10, 20]


def test_a_median_and_its_spread_have_as_many_digits_so_that_it_lies_inside() -> None:
    from harness.report.evaluate.times import timed

    place = dict.fromkeys(("prune", "quantize", "budget", "cache", "asked"), "none")
    answered = {str(n): [{**place, "per_token_s": t}] for n, t in enumerate((1.312e-3, 1.318e-3, 1.324e-3))}  # fmt: skip
    median, spread = timed(1.32, tuple(place.values()), answered)
    assert (median["text"], median["kind"], spread) == ("1.32", "n", "1.31-1.32")
    assert timed(2.0, tuple(place.values()), {})[0]["text"] == "2.00"
    assert timed(None, tuple(place.values()), {}) == ["", ""]


def test_the_table_has_the_spread_of_its_times_and_the_digits_of_the_sentence() -> None:
    from harness.report.evaluate.page import digits
    from harness.report.evaluate.times import spread, told

    place = dict.fromkeys(("prune", "quantize", "budget", "cache", "asked"), "none")
    times = (0.001, 0.002, 0.003, 0.004, 0.005)
    answered = {str(n): [{**place, "per_token_s": t}] for n, t in enumerate(times)}
    assert spread(tuple(place.values()), answered) == "2.00-4.00", "quartiles, in milliseconds"
    assert spread(tuple(place.values()), {"0": answered["0"]}) == "timed once"
    answered |= {"5": [{**place, "per_token_s": None}]}
    assert "Times: the median over the first 5 of 6 prompts and the middle half of these" in told(answered)  # fmt: skip
    assert told({"0/after": answered["0"], "0/before": answered["1"]}) == " Times: of 1 prompt."
    assert "median over 2 prompts and" in told({n: answered[n] for n in "01"})
    assert told({"5": answered["5"]}) == ""
    assert [digits(x) for x in (47.47, 304.2, 0.0977, 76.0)] == [47.5, 304, 0.0977, 76]


def test_where_the_plain_path_is_unsound_the_answers_are_too(harness, monkeypatch) -> None:
    from harness.compare.soundness import PlainPath
    from harness.pipeline import float64

    small = (*SMALL, "prompt.samples=2", "task.prunes=[none]", "task.asked=[after]")
    sound = harness(*small)
    assert sound.code == 0 and sound.result["soundness"]["sound"], sound.out
    assert len(sound.result["soundness"]["paths"]) == 4
    monkeypatch.setattr(  # the library's cached path is one token off
        float64, "exact_path",
        lambda name, cached, uncached, *more: PlainPath(
            name, float((cached.roll(1, 1) - uncached).abs().max()), 1e-5
        ),
    )  # fmt: skip
    wrong = harness(*small, "prompt.seed=9")  # the first is remembered
    assert wrong.code == 1 and wrong.result["verdict"] == "unsound", wrong.out
    assert "without a cache" in wrong.reason
