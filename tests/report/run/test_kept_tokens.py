"""What a pruned run kept beside the full cache, and which words of two texts are others."""

from harness.report.run import kept_tokens, quantization
from harness.snapshot import words


def test_bytes_of_the_full_cache_are_told_only_where_every_layer_keeps_as_much():
    record = {
        "size": {"tokens": 4, "kept_tokens": 2, "kv_bytes": 64},
        "kept": {"tokens": list("abcd"), "held": [2, 1, 1, 0], "heads": 2, "left_out": 0},
        "model": {"layers": 1, "kv_heads": 2},
    }
    assert kept_tokens.whole(record) == 128
    coded = {"quantizer": "int4", "plain_bytes": 64, "kv_bytes": 16, "seconds": 0.1, "layers": []}
    packed = {**record, "quantization": coded, "size": {**record["size"], "kv_bytes": 16}}
    assert kept_tokens.whole(packed) == 128
    said = quantization.section_of(coded, kept_tokens.whole(packed))["text"]
    assert "16 of 64 bytes of K/V (25.0%) of the tokens that were kept" in said
    assert "12.5% of the 128 that the full cache takes" in said
    assert "kept" not in quantization.section_of(coded, 64)["text"]
    others = (
        {"model": {"layers": 2, "kv_heads": 2}},
        {"kept": {**record["kept"], "held": [2, 1, 0, 0]}},
    )
    for other in others:
        assert kept_tokens.whole({**record, **other}) is None
        assert "Each KV head" not in kept_tokens.sections({**record, **other})[0]["text"]


def test_every_other_word_has_a_mark_also_where_one_text_has_more():
    assert words.others("a b c d", "a x c y") == ([(2, 3), (6, 7)], [(2, 3), (6, 7)])
    assert words.others("a b c", "a c") == ([(2, 3)], [])
    assert words.others("a b", "a b") == ([], [])
    assert words.others("k is 5", "k is 5 . ok")[1] == [(7, 8), (9, 11)]
