"""What each seed of a sweep said stands on the sweep's page."""

import itertools
import json

from harness.report.sweep import texts


def test_each_seed_has_a_line_with_its_verdict_and_how_its_texts_begin(tmp_path) -> None:
    rows = [{"point": str(i), "verdict": "diverged", "seed": str(i)} for i in range(3)]
    for i in range(2):
        text = {"continuation": f" k is {i} ." + " the man" * 20, "restored": f" k is {i + 5} ."}
        (tmp_path / str(i)).mkdir()
        (tmp_path / str(i) / "result.json").write_text(json.dumps({"text": text}))
    (block,) = texts.sections(tmp_path, rows, ["seed"])
    assert block["columns"] == ["seed", "verdict", "uninterrupted", "restored"]
    assert [line[0] for line in block["rows"]] == ["0", "1"]  # the third came to no text
    first = block["rows"][0]
    assert first[1]["text"] == "diverged" and first[1]["href"] == "0/report.html"
    assert first[2]["text"].startswith("k is 0 . the man") and first[2]["text"].endswith(" ...")
    assert len(first[2]["text"]) <= texts.BEGINNING and first[3]["text"] == "k is 5 ."
    text = json.dumps({"text": {"continuation": " k is 1 .", "restored": " k is 6 ."}})
    for i in (0, 2):
        (tmp_path / str(i)).mkdir(exist_ok=True)
        (tmp_path / str(i) / "result.json").write_text(text)
    (block,) = texts.sections(tmp_path, [rows[0], rows[2]], ["seed"])
    assert [line[0] for line in block["rows"]] == ["0, 2"], "seeds that said the same"
    assert not texts.sections(tmp_path / "none", rows[2:], ["seed"])


def test_tokens_without_text_are_told_apart_by_their_numbers(tmp_path) -> None:
    rows = [{"point": str(i), "verdict": "diverged", "seed": str(i)} for i in range(2)]
    for i in range(2):
        text = {"continuation": "", "restored": "", "shown": {"continuation": f"<{i}>"}}
        (tmp_path / str(i)).mkdir()
        (tmp_path / str(i) / "result.json").write_text(json.dumps({"text": text}))
    (block,) = texts.sections(tmp_path, rows, ["seed"])
    assert [line[2]["text"] for line in block["rows"]] == ["<0>", "<1>"]


def test_an_expected_answer_stands_beside_what_was_said_and_a_pruned_text_is_called_so(tmp_path):
    """The twin: a restored state, and no answer."""
    rows = []
    for seed, other in (("1", "y is 60"), ("2", "y is 53")):
        (tmp_path / seed).mkdir()
        text = {"continuation": "y is 60", "restored": other, "expected": "y is 60"}
        (tmp_path / seed / "result.json").write_text(json.dumps({"text": text}))
        rows.append(
            {"point": seed, "prompt.seed": seed, "verdict": "drifted", "outcome": "drifted", "exit_code": 0, "reason": "",
             "answer": "right" if other == "y is 60" else "wrong", "restore": "exact", "kept_tokens": 2, "tokens": 4}
        )  # fmt: skip
    (block,) = texts.sections(tmp_path, rows, ["prompt.seed"])
    assert block["columns"] == ["prompt.seed", "verdict", "expected", "restored or pruned"]
    assert [line[2]["text"] for line in block["rows"]] == ["y is 60: said", "y is 60: not said"]
    plain = [{**row, "answer": None, "restore": None} for row in rows]
    (block,) = texts.sections(tmp_path, plain, ["prompt.seed"])
    assert block["columns"] == ["prompt.seed", "verdict", "restored"]


def test_each_point_with_other_tokens_has_a_line_where_no_seed_was_varied(tmp_path) -> None:
    """The twins: one that is within rounding has none, and drifted points that say the same are no table."""
    rows = [{"point": p, "verdict": v, "prune": p} for p, v in (("knorm", "diverged"), ("tova", "drifted"),
                                                                  ("none", "equivalent"))]  # fmt: skip
    for row in rows:
        said = " k is 35 ." if row["prune"] == "knorm" else " k is 5 ."
        (tmp_path / row["point"]).mkdir()
        text = {"text": {"continuation": " k is 5 .", "restored": said}}
        (tmp_path / row["point"] / "result.json").write_text(json.dumps(text))
    (block,) = texts.sections(tmp_path, rows, ["prune"])
    assert block["title"] == "What each point said" and "Seeds" not in block["text"]
    assert block["text"].endswith("says in each: k is 5 .")
    assert [(line[0], line[2]["text"]) for line in block["rows"]] == [
        ("knorm", "k is 35 ."),
        ("tova", "k is 5 ."),
    ]
    assert not texts.sections(tmp_path, rows[1:], ["prune"])


def test_settings_that_said_the_same_share_a_line_and_what_is_no_whole_grid_does_not(
    tmp_path,
) -> None:
    axes = ["cache", "save", "seed"]
    grid = itertools.product(["a", "b", "c", "d"], ["x", "y"], ["1", "2"])
    rows = [{"point": str(i), "verdict": "exact", **dict(zip(axes, g))} for i, g in enumerate(grid)]
    for row in rows:
        (tmp_path / row["point"]).mkdir()
        text = {"continuation": row["seed"], "restored": row["seed"]}
        (tmp_path / row["point"] / "result.json").write_text(json.dumps({"text": text}))
    (block,) = texts.sections(tmp_path, rows, axes)
    assert block["columns"][:3] == ["seed", "cache", "save"]
    assert [line[:3] for line in block["rows"]] == [["1", "all 4", "x, y"], ["2", "all 4", "x, y"]]
    rows[0]["verdict"] = "equivalent"  # a x 1
    (block,) = texts.sections(tmp_path, rows, axes)
    lines = [" ".join(line[:3]) for line in block["rows"]]
    assert lines == ["1 a x", "2 all 4 x, y", "1 all 4 y", "1 b, c, d x"], "each a whole grid"


def test_where_two_texts_part_beyond_their_beginnings_that_place_is_shown(tmp_path) -> None:
    """The twin parts in its first words; and what the one nearest point says stands in a sentence."""
    same = " the man put the stone by the road and the bird sang in the tree"
    kept = {
        "late": (f"{same} . it ended well", f"{same} . it was late"),
        "first": ("k is 5 .", "k is 35 ."),
    }
    rows = [{"point": p, "verdict": "diverged", "prune": p} for p in kept]
    for point, (whole, restored) in kept.items():
        (tmp_path / point).mkdir()
        text = {"continuation": whole, "restored": restored}
        (tmp_path / point / "result.json").write_text(json.dumps({"text": text}))
    (block,) = texts.sections(tmp_path, rows, ["prune"])
    told = {line[0]: line[-1]["text"] for line in block["rows"]}
    assert told == {"late": "... tree . it was late", "first": "k is 35 ."}
    said = 'It says "k is 35 ." where the full cache says "k is 5 .".'
    assert texts.parted(tmp_path, rows[1:]) == said
    for other in (rows, [], [rows[1] | {"verdict": "drifted"}], [rows[1] | {"answer": "wrong"}]):
        assert texts.parted(tmp_path, other) == ""
    assert texts.parted(tmp_path / "none", rows[1:]) == ""
