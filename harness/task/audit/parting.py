"""Where two pages part, as a person reads them."""

import html
import re
from itertools import zip_longest

TAG = re.compile(r"<[^>]*>")
UNREAD = re.compile(r"<(style|script)\b.*?</\1>", re.DOTALL)
BEFORE, SHOWN = 3, 12  # words that both have before that place; words that are shown


def parted(was: str, now: str) -> tuple[str, str]:
    """The words of each of two pages from where these part, with a few that both have before; where all words are the
    same (another link, another picture), the number of the first other line."""
    one, two = (html.unescape(TAG.sub(" ", UNREAD.sub(" ", page))).split() for page in (was, now))
    pairs = enumerate(zip_longest(one, two))
    place = next((i for i, (a, b) in pairs if a != b), None)
    if place is None:
        lines = zip_longest(was.splitlines(), now.splitlines())
        line = next((i for i, (a, b) in enumerate(lines, 1) if a != b), 0)
        return f"line {line}", "another line"
    start = max(place - BEFORE, 0)
    return _shown(one, start), _shown(two, start)


def _shown(words: list[str], start: int) -> str:
    some = words[start : start + SHOWN]
    more = " ..." * (len(words) > start + SHOWN)
    return f"{'... ' * (start > 0)}{' '.join(some)}{more}"
