"""Words of a result that several rooms say."""

from harness.snapshot import words


def test_layers_that_keep_other_numbers_are_told_by_their_mean_and_the_most() -> None:
    """Not those of a padded row, nor of a text whose middle is left out."""

    def kept(*held: int, tokens: int = 158) -> dict:
        size = {"tokens": tokens, "kept_tokens": 146}
        return {"size": size, "kept": {"held": [*held], "heads": 4, "left_out": 0}}

    wide = [*[4] * 79, *[0] * 79]
    said = words.of_kept(kept(*wide), " of 158 kept")
    assert said == "79 of 158 kept on average, at most 146"
    even = kept(*[4] * 146, *[0] * 12)
    for one in (even, {"size": even["size"]}, kept(*wide, tokens=160)):
        assert words.of_kept(one, " kept") == "146 kept"
