"""The page of faults: which tables it has, and whether its colours can be read."""

import re
from pathlib import Path

from harness.report import heatmap


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
