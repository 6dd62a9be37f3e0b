"""The page of faults: which tables it has, what it says of each fault, and whether its colours can be read."""

import re
from pathlib import Path

from harness.report import faults as heatmap
from harness.task import faults


def test_counts_per_check_are_shown_where_there_are_more_faults_than_checks() -> None:
    row = {"element": 1, "element_name": "kv_cache", "strict": "refused", "plain": "silent drift", "shift": 5.0, "why": "w",
           "what": "", "said": [], "cause": "layer", "expected": "layer", "evidence": "", "proof": True,
           **dict.fromkeys(heatmap.CHECKS, True)}  # fmt: skip
    titles = [
        [block["title"] for block in heatmap.sections([row | {"fault": "none"}, *some])]
        for some in ([row | {"fault": str(n)} for n in range(count)] for count in (4, 5))
    ]
    few, many = titles
    assert few[0] == "The matrix" and len(many) == len(few) + 3
    quiet = heatmap.sections([row | {"fault": "none"}, row | {"fault": "a", "shift": 0.5}])
    assert "why they still matter" in quiet[1]["title"], "where there is one it is told"


def test_labels_on_coloured_cells_of_a_narrow_page_can_be_read() -> None:
    """The darkest ground of the matrix beside the ink of the labels, which the softer ink did not reach."""
    style = Path(heatmap.__file__).with_name("page.css").read_text()
    assert ".cards td[style]::before { color: var(--ink) }" in style

    def colours(text: str) -> dict[str, list[float]]:
        return {name: [int(code[i : i + 2] if len(code) > 3 else 2 * code[i // 2], 16) / 255 for i in (0, 2, 4)]
                for name, code in re.findall(r"--(\w+): #(\w{6}|\w{3})\b", text)}  # fmt: skip

    def light(colour: list[float]) -> float:
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    for theme in style.split("@media (prefers-color-scheme: dark)")[:2]:
        known = colours(theme.partition("* {")[0])
        ground = [0.6 * bad + 0.4 * page for bad, page in zip(known["bad"], known["page"])]
        pairs = [sorted((light(known[ink]), light(ground))) for ink in ("ink", "soft")]
        ink, soft = ((high + 0.05) / (low + 0.05) for low, high in pairs)
        assert ink > 4.5 > soft, "the contrast that small text needs"


def test_a_fault_names_the_element_it_hits() -> None:
    row = {"fault": "layer_swap", "element": 1, "element_name": "kv_cache", "strict": "refused",
           "plain": "error", "shift": 2.0, **dict.fromkeys(heatmap.CHECKS, True)}  # fmt: skip
    control = row | {"fault": "none", "element": 0, "element_name": "control"}
    drawn = heatmap._matrix([control, row])
    told = re.sub(r' data-label="[^"]*"', "", drawn)
    assert "<td>layer_swap</td><td>1 kv_cache</td>" in told and "<td>none</td><td></td>" in told
    missed = heatmap._cells(row | dict.fromkeys(heatmap.CHECKS, False) | {"shift": None})
    assert missed[0] == ("layer_swap", "--bad", 1.0) and missed[-1][-1] == 0.0, "the quietest: it never ran"  # fmt: skip
    named, shifted = heatmap._cells(row)[2][-1], heatmap._cells(row | {"shift": 1e9})[-1][-1]
    assert named > 2 * shifted, "what is caught is seen before how far it went"
    assert drawn.count('data-label="strict restore"') == 2  # a card on a phone, as every wide table
    assert "#" not in re.sub(r"style=.*?>", "", drawn)


def test_a_fault_that_only_the_checked_line_shows_is_explained() -> None:
    row = {"fault": "buffer_reordered", "element": 4, "element_name": "token_ids", "strict": "refused", "why": "as before",
           "plain": "nothing visible", "shift": 422580.0, "expected": "", "cause": "", "evidence": "", "what": "",
           "said": [], **dict.fromkeys(heatmap.CHECKS, True)}  # fmt: skip
    note = ">nothing visible: as before</td>"
    assert note in heatmap._matrix([row]) and "min-width" not in heatmap._matrix([row])
    for other in ({"plain": "error"}, {"shift": 0.46}, {"fault": "none"}):
        assert note not in heatmap._matrix([row | other])
    long = row | {"why": "the cache answers as before; a recomputation does not"}
    assert "min-width:14rem" in heatmap._matrix([long]), "a sentence may break"


def test_the_faults_that_move_no_logit_are_counted_as_the_column_of_shifts_has_them() -> None:
    """The replay of the last token may name one of them; that is no logit of the continuation."""
    row = {"fault": "position_restarted", "element": 3, "element_name": "positions", "strict": "refused", "why": "w",
           "plain": "error", "shift": 0.46, "expected": "", "cause": "", "evidence": "", "what": "", "said": [],
           "proof": True, **dict.fromkeys(heatmap.CHECKS, False), "logits": True}  # fmt: skip
    moved = row | {"fault": "layer_swap", "shift": 3e5, "logits": False}
    dead = row | {"fault": "payload_truncated", "shift": None}
    rows = [row, row | {"logits": False, "digest": True}, moved, dead]
    title = "Faults that move no logit beyond the noise, and why they still matter"
    (block,) = (b for b in heatmap.sections(rows) if b["title"] == title)
    assert [r[1] for r in block["rows"]] == ["replay of the last token", "digest"]
    assert "and 2 move no logit beyond the noise" in faults.summary(rows)
