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


def test_the_mean_is_that_of_the_tokens_it_was_counted_over() -> None:
    """A long text's middle is left out of the list, not of the mean; a state that read on has another."""
    size = {"tokens": 800, "kept_tokens": 700}
    block = {"held": [4] * 400, "heads": 4, "left_out": 400, "mean": 300.0}
    assert words.tokens_kept({"size": size, "kept": block}) == (700, 300.0)
    assert words.tokens_kept({"size": size, "kept": {**block, "mean": 700.0}}) == (700, 700.0)
    del block["mean"]
    assert words.tokens_kept({"size": size, "kept": block}) == (700, 700), "of an older record"
    grown = {"size": {**size, "tokens": 801}, "kept": {**block, "mean": 300.0}}
    assert words.tokens_kept(grown) == (700, 700)
    whole = {"size": {"tokens": 800, "kept_tokens": 800}, "kept": {**block, "mean": 300.0}}
    assert words.fewer(whole) and not words.fewer({**whole, "kept": {}})
