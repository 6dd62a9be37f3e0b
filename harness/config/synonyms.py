"""What papers and other programs call the options of a group, without capitals, blanks, dashes and underscores."""

from harness.variants import options

SYNONYMS = {
    "prune": {
        "h2o": "heavy_hitter",
        "heavyhitteroracle": "heavy_hitter",
        "streamingllm": "sink_window",
        "attentionsink": "sink_window",
        "attentionsinks": "sink_window",
        "slidingwindow": "keep_last",
        "recent": "keep_last",
        "l2norm": "knorm",
        "pyramidkv": "snapkv prune.budget=pyramid",
        "adakv": "snapkv prune.budget=adaptive",
    },
    "quantize": {"fp8": "fp8_e4m3", "q80": "int8", "q40": "int4"},
}


def synonym(group: str, word: str) -> str:
    """The option of `group` that is known as `word` elsewhere; empty where there is none."""
    same = {_plain(option): option for option in options(group)}
    return (same | SYNONYMS.get(group, {})).get(_plain(word), "")


def _plain(word: str) -> str:
    return "".join(filter(str.isalnum, word.lower()))
