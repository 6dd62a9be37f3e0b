"""A grid of evaluations says on its own run what its points come to: no search, and no safe choice where there is none."""

import json

from harness.report.sweep import cells, evaluated, search, seeds, summary, variation
from harness.report.sweep import page as pages
from harness.track.parent import totals

FULL = ("none", 1.0, 1.0, 400_000, 0.0)


def sweep(folder, points):
    """A sweep of evaluations: of each point the cells beside the full cache (policy, budget, share right, bytes, lost)."""
    (folder / "multirun.yaml").write_text("hydra: {sweeper: {}}\nreport: {objectives: []}\n")
    made = []
    for number, mine in enumerate(points):
        place = folder / str(number)
        place.mkdir()
        rows = [
            {"prune": prune, "quantize": "none", "budget": budget, "cache": "auto", "asked": "after", "measure": measure,
             "value": value, "low": 0.0, "high": 1.0, "n": 4, "kv_bytes": held, "per_token_s": 0.001, "delta": -lost,
             "delta_low": -lost - 0.3, "delta_high": 0.0 if not lost else -lost}
            for prune, budget, right, held, lost in (FULL, *mine)
            for measure, value in (("contains", right), ("nll", 1.0), ("kl", lost))
        ]  # fmt: skip
        (place / "evaluate.json").write_text(json.dumps(rows))
        made.append({"point": str(number), "verdict": "unjudged", "outcome": "done", "exit_code": 0, "reason": "r",
                     "task": "evaluate", "task.prunes": f"[{mine[0][0]}]"})  # fmt: skip
    return made


def said(folder, rows, ways=None):
    ways = ways or {}
    chosen, rows = cells.conclusion(folder, rows), evaluated.completed(folder, rows)
    return rows, summary.said(rows, ways, None, chosen)


def test_the_smallest_safe_cell_of_all_points_is_best(tmp_path) -> None:
    points = [[("snapkv", 0.25, 0.5, 100_000, 0.5)], [("keydiff", 0.5, 1.0, 200_000, 0.0)], [("knorm", 0.25, 1.0, 150_000, 0.0)]]  # fmt: skip
    rows, (words, sentence, table, best) = said(tmp_path, sweep(tmp_path, points))
    assert words == "2 of 3 safe: knorm 25% 100% right" and best == "2"
    assert sentence.startswith(
        "Smallest safe choice, as far as 4 prompts can tell: none but the full cache in 1, keydiff 50% in 1"
    )
    head, _, *lines = table.splitlines()
    assert head == "| folder | task.prunes | cell | safe | right | K/V | KL (nats) |"
    assert lines[0] == "| 0 | [snapkv] | snapkv 25% | no | 50% | 97.7 KiB | 0.5 |"
    assert lines[2].startswith("| **2** (best) | [knorm] | knorm 25% | yes | 100% |")
    figures = {k: v for k, v, _ in totals(rows, evaluated.sought(rows, {}), (), best)}
    assert (figures["best/contains"], figures["best/kv_bytes"], figures["best/kl"]) == (1, 150e3, 0)
    assert (figures["sweep/smallest_contains"], figures["sweep/largest_contains"]) == (0.5, 1.0)


def test_where_none_is_safe_the_nearest_is_called_no_more(tmp_path) -> None:
    points = [[("snapkv", 0.25, 0.25, 100_000, 0.75)], [("random", 0.25, 0.5, 100_000, 0.5)]]
    grid = sweep(tmp_path, points)
    (words, _, table, best) = said(tmp_path, grid)[1]
    assert words == "none of 2 safe, 50% right at most" and best == "1"
    assert (
        "| **1** (nearest) | [random] | random 25% | no | 50% |" in table and "(best)" not in table
    )
    ways = {"evaluate.contains": 1, "evaluate.kv_bytes": -1}
    one = [{**row, "evaluate.contains": share, "evaluate.kv_bytes": 1e5} for row, share in zip(grid, (0.25, 0.5))]  # fmt: skip
    assert search.ways(tmp_path, one) == {"evaluate.contains": 1}, "one cell in each point"
    _, (words, _, table, _) = said(tmp_path, one, ways)
    assert words == "none of 2 safe, 50% right at most", "a grid searches nothing"
    assert "(best)" not in table and "\u25c6" in table
    page = pages.drawn(tmp_path, one, None, "x")
    assert "nearest" in page and "best</" not in page


def test_a_point_that_failed_is_told_and_points_asked_other_things_have_no_one_best(
    tmp_path,
) -> None:
    cell = [("keydiff", 0.5, 1.0, 200_000, 0.0)]
    grid = sweep(tmp_path, [cell, cell])
    failed = {
        **grid[1],
        "point": "2",
        "verdict": "failed",
        "outcome": "failed",
        "exit_code": 2,
        "reason": "no | file",
    }
    (words, _, table, _) = said(tmp_path, [*grid, failed])[1]
    assert words == "1 failed, 2 of 2 safe: keydiff 50% 100% right"
    assert table.splitlines()[-1].endswith("| - | - | - | - | - | failed: no / file |")
    asked = [{**row, "model": model} for row, model in zip(grid, ("tiny", "gpt2"))]
    (words, _, _, best) = said(tmp_path, asked)[1]
    assert words == "2 of 2 safe: keydiff 50% in each" and best == ""


def test_one_choice_under_every_seed_is_best_and_has_the_medians(tmp_path) -> None:
    cells = [("snapkv", 0.5), ("snapkv", 0.25), ("keydiff", 1.0), ("keydiff", 1.0)]
    points = [[(name, 0.25, right, 1e5 + place, 1 - right)] for place, (name, right) in enumerate(cells)]  # fmt: skip
    grid = [row | {"prompt.seed": place % 2} for place, row in enumerate(sweep(tmp_path, points))]
    rows, (words, _, table, best) = said(tmp_path, grid)
    assert words == "2 of 4 safe: keydiff 25% 100% right"
    assert best == "", "no point alone"
    marked = list(summary.winners(rows, {})[0])
    alike = seeds.alike(rows, variation.varied(rows), marked)
    assert marked == alike == ["2", "3"] and "**3** (best)" in table
    figures = {k: v for k, v, _ in totals(rows, evaluated.sought(rows, {}), (), best, alike)}
    assert (figures["best/contains"], figures["best/kv_bytes"]) == (1, 100_002.5)
    assert "(best)" not in summary.markdown(rows, {}, each=True), "as they did"
    other = [*grid[:2], *(row | {"task.prunes": "[random]"} for row in grid[:2])]
    assert said(tmp_path, other)[1][0] == "none of 4 safe, 25% to 50% right at most"
    unlike = [row | {"prompt.seed": seed} for row, seed in zip(grid, (1, 2, 3, 4))]
    assert said(tmp_path, unlike)[1][0] == "2 of 4 safe", "each seed has another best"


def test_the_console_says_of_a_grid_over_seeds_what_its_run_is_told(tmp_path) -> None:
    cell = [("keydiff", 0.25, 1.0, 100_000, 0.0)]
    grid = [row | {"prompt.seed": seed, "evaluate.contains": 1.0} for seed, row in enumerate(sweep(tmp_path, [cell, cell]))]  # fmt: skip
    spread = seeds.told(grid, ["prompt.seed"])
    said = " ".join(" ".join(summary.closing(tmp_path, grid, 2, [], spread=spread)).split())
    assert f"conclusion: {spread}" in said and spread.startswith("2 points over prompt.seed: all done, share")  # fmt: skip
    assert "conclusion" not in "".join(summary.closing(tmp_path, grid, 2, []))


def test_a_search_says_itself_what_is_best(tmp_path) -> None:
    rows = sweep(tmp_path, [[("keydiff", 0.5, 1.0, 200_000, 0.0)]])
    asked = "hydra: {sweeper: {direction: [maximize]}}\nreport: {objectives: [evaluate.contains]}\n"
    (tmp_path / "multirun.yaml").write_text(asked)
    assert evaluated.completed(tmp_path, rows) is rows and evaluated.sought(rows, {"x": 1}) == ["x"]


def test_where_the_full_cache_answers_nothing_there_is_nothing_to_choose(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setitem(globals(), "FULL", ("none", 1.0, 0.0, 400_000, 0.0))
    rows = sweep(
        tmp_path, [[("knorm", 0.5, 0.0, 200_000, 0.0)], [("knorm", 0.25, 0.0, 100_000, 0.0)]]
    )
    made, (words, _, table, best) = said(tmp_path, rows)
    assert words == "nothing to choose in 2 points" and best == ""
    assert evaluated.sought(made, {}) == [] and "| 0 | - | - | - | - | - |" in table
    sized = [{**row, "evaluate.kv_bytes": size} for row, size in zip(rows, (2e5, 1e5))]
    assert said(tmp_path, sized, {"evaluate.kv_bytes": -1})[1][3] == "", "the smallest is no best"
