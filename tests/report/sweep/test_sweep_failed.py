"""What a sweep says of points that failed, were refused or are missing, and the commands that go on."""

import json
import shlex

import pytest
from sweeps import LITERAL, asked, drawn, points

from harness.config import literal
from harness.report.sweep import heading, summary, unfinished
from harness.report.sweep import page as sweep
from harness.report.sweep.verdicts import WHY


def test_a_failed_point_among_two_is_one_row_with_its_reason_and_its_command(tmp_path):
    stopped = {"verdict": "failed", "exit_code": 2, "reason": "1.5 is not possible", "prune.ratio": "1.5"}  # fmt: skip
    figures = ("kl_max", "max_abs_diff", "error_ratio", "noise_kl_max", "kept_tokens", "stored_bytes",
               "per_token_s", "save_s", "load_s")  # fmt: skip
    asked(tmp_path / "1", "prune=snapkv", "prune.ratio=1.5", LITERAL)
    page = drawn(tmp_path, points({}, stopped | dict.fromkeys(figures)))
    assert '<span class="verdict bad">1 of 2 failed</span>' in page
    said = page.split("<h2>What failed</h2>")[1].split("<h2>")[0]
    assert f"<pre>{summary.again(tmp_path)}</pre>" in page, "how to go on"
    assert said.count("<tr>") == 2 and "prune.ratio=1.5" in said and "1.5 is not possible" in said
    assert "prune=snapkv prune.ratio=1.5 &#39;text= let k be 5 .&#39;</td>" in said
    assert (
        "None" not in page and "literal:" not in page and "Every verdict links to its run" in page
    )
    assert "same in every point" not in page and "<figure>" not in page  # one point is no picture
    assert "What failed" not in drawn(tmp_path, points({}, {"prune.ratio": "1.0"}))


def test_a_sweep_with_points_that_came_to_no_end_says_it_short_and_each_diagnosis_whole(tmp_path):
    """A stranger reads one sentence; why a point was refused is its diagnosis, not the start of its message."""
    none = dict.fromkeys(("kl_max", "max_abs_diff", "error_ratio", "kept_tokens", "stored_bytes", "per_token_s", "save_s", "load_s"))  # fmt: skip
    ended = {"verdict": "refused", "exit_code": 3, "reason": f"restore refused: x\n{'y' * 400}"}
    idle = {"verdict": "failed", "exit_code": 2, "reason": "1.5 is not possible", "prune": "tova"}
    rows = points({}, ended | none | {"prune": "a"}, ended | none | {"prune": "b"}, idle | none)
    found = {"cause": "layer_swap", "element": "kv_cache", "evidence": f"layers are exchanged {'z' * 90}"}  # fmt: skip
    for row in rows[1:3]:
        asked(tmp_path / row["point"])
        told = {**row, "diagnosis": found, "stages": [{}]}
        (tmp_path / row["point"] / "result.json").write_text(json.dumps(told))
    (asked(tmp_path / "3") / "result.json").write_text(json.dumps({**rows[3], "stages": []}))
    hydra = {"overrides": {"task": ["prune=none,a", "seed=1,2"]}}
    (tmp_path / "multirun.yaml").write_text(json.dumps({"hydra": hydra}))
    page = drawn(tmp_path, rows)
    lines = page.split('class="conclusion"')[1].split('class="links"')[0]
    assert "4 points over prune: 1 could not begin, 2 refused, 1 diverged.</p>" in lines, lines
    failed, others = page.split("<h2>What failed</h2>")[1].split("<h2>", 1)
    assert failed.count(found["evidence"]) == 1 and "as .../1</td>" in failed
    assert "yyy" not in page and "see &#34;What failed&#34;" in others
    assert "<li>seed draws nothing with sampling=greedy</li>" in others, "as the console says"
    table = summary.markdown(unfinished.diagnosed(tmp_path, rows, WHY), {})
    assert table.count("layers are exchanged") == 2 and "restore refused" not in table
    assert "layers are exchanged" not in summary.markdown(rows, {}), "as it was told before"


def test_the_same_command_typed_again_gives_the_same_overrides():
    overrides = ["prune.ratio=1.5", LITERAL]
    words = shlex.split(literal.command(overrides))
    assert words == ["python", "-m", "harness", "prune.ratio=1.5", "text= let k be 5 ."]
    assert (
        literal.decoded("text=' let k be 5 .'") == literal.decoded(LITERAL) == "text= let k be 5 ."
    )
    assert literal.decoded("name='a,b'") == "name='a,b'"  # means something else without its marks


def test_points_that_fail_alike_are_one_line_at_the_end(tmp_path):
    """Two hundred points with the same mistake are one mistake."""
    rows = [{"point": str(i), "verdict": "failed", "reason": "no\nmore"} for i in range(12)]
    rows += [{"point": "12", "verdict": "refused", "reason": "other"}]
    said = [line[2:] for line in summary.closing(tmp_path, rows, 13, []) if line[:5] == "  ..."]
    assert said == [
        f"{', '.join(f'.../{i}' for i in range(10))} and 2 more in the table below failed: no. more",
        ".../12 refused: other",
    ]
    many = [row | {"reason": f"no {i}"} for i, row in enumerate(rows * 2)]
    told = summary.closing(tmp_path, many, 26, [])
    assert "  6 more points for other reasons: see the table below" in told


def test_points_refused_alike_each_in_its_own_folder_are_one_line_that_reaches_the_fact(tmp_path):
    deep = "/data/" + "long/" * 20
    rows = [{"point": str(i), "verdict": "refused", "folder": f"{deep}{i}",
             "reason": f"restore refused: what was saved at {deep}{i}/snapshot fails its proof"}
            for i in range(3)]  # fmt: skip
    said = [line[2:] for line in summary.closing(tmp_path, rows, 3, []) if line[:5] == "  ..."]
    assert said == [
        ".../0, .../1, .../2 refused: restore refused: what was saved at .../snapshot fails its proof"
    ]


def test_the_opening_of_a_sweep_says_what_was_varied_and_a_long_one_stands_alone(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(heading, "_chosen", lambda *given: (given[4], ["The best: x."]))
    rows = points(*({"verdict": "exact", "cache": name} for name in ("dynamic", "view")))
    said = [heading.told(tmp_path, rows, ["cache"], {}, total, 0)[1] for total in (2, 5)]
    assert said[0] == "2 points over cache, each run to its end. The best: x."
    assert said[1] == "2 of 5 points over cache have run. The best: x."
    many = [row | {"seed": s, "cache": row["cache"] * 9} for row in rows for s in "12"]
    best, opening = heading.told(tmp_path, many, ["cache", "seed"], {}, 4, 0)[1].splitlines()
    assert opening.startswith("4 points over seed and cache: ") and best == "The best: x."


@pytest.mark.parametrize("refused, said", ((0, "2 of 3 failed"), (1, "1 of 3 failed, 1 refused"), (2, "2 of 3 refused")))  # fmt: skip
def test_what_was_refused_is_not_counted_as_failed(tmp_path, refused, said):
    rows = points({}, *({"verdict": "refused" if i < refused else "failed", "exit_code": 3} for i in (0, 1)))  # fmt: skip
    page = drawn(tmp_path, rows)
    assert f'<span class="verdict bad">{said}</span>' in page
    assert page.count(summary.counted(rows)) == 1


def test_the_page_of_a_sweep_that_was_stopped_says_what_is_missing_and_how_to_go_on(tmp_path):
    rows = points({"prune": "a", "kl_mean": 0.1}, {"prune": "b", "kl_mean": 0.2})
    sweep.write(tmp_path, rows, 12)
    page = (tmp_path / "sweep.html").read_text()
    assert "2 diverged so far, 10 missing" in page and "as required" not in page
    assert "10 of 12 points have not run." in page and "The nearest so far: prune=a" in page
    assert summary.again(tmp_path) in page and ">2 of 12 points.</p>" not in page
    assert 'class="verdict bad"' not in page
    (tmp_path / "sweep.html").unlink()
    assert "missing" not in drawn(tmp_path, rows).split("</style>")[1]
    rows[0]["exit_code"] = 1
    assert "1 of 2 as required, 10 missing" in sweep.drawn(tmp_path, rows, 12, "n")


def test_how_to_go_on_is_said_once_and_why_nothing_was_uploaded(tmp_path):
    rows = points({"prune": "a"}, {"prune": "b"})
    for row in rows:
        (tmp_path / row["point"]).mkdir()
        (tmp_path / row["point"] / "pending.json").write_text(
            '{"reason": "cannot track to X: away."}'
        )
    said = summary.closing(tmp_path, rows, 3, [])
    assert "not uploaded: .../0, .../1: cannot track to X: away." in said
    assert "missing:      1 of 3" in said and sum("resume=" in line for line in said) == 1
    assert "resume=" not in "".join(summary.closing(tmp_path, rows, 3, [], stopped=True))
    for row in rows:
        (tmp_path / row["point"] / "pending.json").unlink()
    assert "resume=" not in "".join(summary.closing(tmp_path, rows, 2, []))
    failing = [*rows[1:], {**rows[0], "verdict": "failed", "reason": "boom"}]
    (line,) = (one for one in summary.closing(tmp_path, failing, 2, []) if "resume=" in one)
    assert line.startswith("run again: ") and "once its cause is mended" in line


def test_many_points_refused_alike_stand_behind_the_verdicts_and_say_why_once(tmp_path):
    """Digests and measures vary from one to the next; sixteen paragraphs would bury what came out."""
    why = "what was saved fails its proof: kv-{0}a1b2c3d.safetensors is off by {0}.5e-02 in layer 1"
    rows = points({"cache": "view"}, *({"cache": f"c{i}"} for i in range(8)))
    for i, row in enumerate(rows[1:]):
        row |= {"verdict": "refused", "exit_code": 3, "reason": why.format(i + 10)}
    page = drawn(tmp_path, rows)
    assert (
        page.index("<h2>Verdicts") < page.index("<h2>What was refused")
        and "What failed" not in page
    )
    block = page.split("<h2>What was refused</h2>")[1].split("</table>")[0]
    assert block.count("fails its proof") == 1 and block.count(">as .../1<") == 7
    assert "see &#34;What was refused&#34;" in page
    rows[8]["reason"] = rows[8]["reason"].replace("layer 1", "layer 0")
    block = drawn(tmp_path, rows).split("<h2>What was refused</h2>")[1].split("</table>")[0]
    assert block.count("fails its proof") == 2, "another layer is another reason"
    few = drawn(tmp_path, rows[:4])
    assert few.index("<h2>What was refused") < few.index("<h2>Verdicts")


def test_where_no_point_is_to_be_chosen_the_conclusion_is_what_was_measured(tmp_path):
    """Two caches that came back alike, beside a third that failed: no best point, and no silence."""
    rows = points({"cache": "view"}, {"cache": "static"}, {"cache": "cloned"})
    for row in rows:
        row |= {
            "verdict": "equivalent",
            "stored_bytes": 2048,
            "error_ratio": 0.5,
            "kept_tokens": 9,
            "tokens": 9,
        }
    rows[2] |= {"verdict": "failed", "exit_code": 2, "reason": "boom"}
    both = [line for line in summary.closing(tmp_path, rows, 3, []) if line[:10] == "conclusion"]
    told = "All of 3 points but 1 are within rounding; failed: cache=cloned. "
    told += "Varied: cache; the largest error is 0.5 of rounding's own (2 allowed); 2 KiB on disk."
    assert [line.split(maxsplit=1)[1] for line in both] == [told]
    rows[0]["verdict"] = rows[1]["verdict"] = "failed"
    assert "conclusion" not in "".join(summary.closing(tmp_path, rows, 3, [])), "nothing came out"
