"""Where two texts begin to differ, in words."""

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


def quoted(one: str, two: str) -> tuple[str, str] | None:
    """That word of each text, with those before it; None where one of the two has ended there."""
    places = other(one, two)
    if places is None or any(start >= end for start, end in places):
        return None
    (start, end), (_, last) = places
    begin = start - len("".join(f"{word} " for word in one[:start].split()[-BEFORE:]))
    return one[begin:end], two[begin:last]
