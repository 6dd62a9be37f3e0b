"""Where two texts differ, in words."""

import re
from difflib import SequenceMatcher

BEFORE = 2  # words that both texts have, before the one that is another

Span = tuple[int, int]


def other(one: str, two: str) -> tuple[Span, Span] | None:
    """Where the first word that is another stands in each of two texts; None where they are the same."""
    if one == two:
        return None
    shorter = min(len(one), len(two))
    place = next((i for i, (a, b) in enumerate(zip(one, two)) if a != b), shorter)
    start = one.rfind(" ", 0, place + 1) + 1
    ends = ((text.find(" ", max(place, start)), len(text)) for text in (one, two))
    first, second = ((start, end if end >= 0 else last) for end, last in ends)
    return first, second


def others(one: str, two: str) -> tuple[list[Span], list[Span]]:
    """Where the words of each of two texts stand that the other one has not in their place, in order; neighbours
    each for itself. Texts of as many words are compared word by word, as what two runs chose step by step is."""
    words = tuple(list(re.finditer(r"\S+", text)) for text in (one, two))
    said = [[word[0] for word in some] for some in words]
    if len(said[0]) == len(said[1]):
        places = [{i for i, (a, b) in enumerate(zip(*said)) if a != b}] * 2
    else:
        steps = SequenceMatcher(None, said[0], said[1], autojunk=False).get_opcodes()
        steps = [step for step in steps if step[0] != "equal"]
        places = [
            {i for _, start, end, _, _ in steps for i in range(start, end)},
            {i for _, _, _, start, end in steps for i in range(start, end)},
        ]
    first, second = ([some[i].span() for i in sorted(at)] for some, at in zip(words, places))
    return first, second


def quoted(one: str, two: str) -> tuple[str, str] | None:
    """That word of each text, with those before it; None where one of the two has ended there."""
    places = other(one, two)
    if places is None or any(start >= end for start, end in places):
        return None
    (start, end), (_, last) = places
    begin = start - len("".join(f"{word} " for word in one[:start].split()[-BEFORE:]))
    return one[begin:end], two[begin:last]
