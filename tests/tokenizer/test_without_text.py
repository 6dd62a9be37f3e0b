"""An id without text is shown by its number, and a character of several tokens stays one."""

from harness.tokenizer.pieces import piece, pieces
from harness.tokenizer.shown import Shown, record, shown


class Bytes:
    """Ids below 256 are bytes; of any other there is nothing."""

    def convert_ids_to_tokens(self, token):
        return chr(token + 0x100) if token < 256 else None

    def decode(self, ids, **_):
        return bytes(i for i in ids if i < 256).decode("utf-8", "replace")


def test_what_has_no_text_is_shown_by_its_id():
    assert shown(Bytes(), [97, 900, 900, 98]) == "a<900><900>b"
    assert shown(Bytes(), [900]) == "<900>"


def test_a_character_of_several_tokens_is_text():
    ids = list("\u00e9".encode())
    assert shown(Bytes(), ids) == "\u00e9"
    assert shown(Bytes(), [900, *ids]) == "<900>\u00e9"
    assert record(Bytes(), {"continuation": ids}) == {"continuation": "\u00e9"}


def test_the_record_names_them():
    told = record(Bytes(), {"continuation": [97, 901], "restored": [900]})
    assert told == {
        "continuation": "a",
        "restored": "",
        "without_text": [900, 901],
        "shown": {"continuation": "a<901>", "restored": "<900>"},
    }


def test_what_is_kept_of_a_stream_is_the_tokenizers_text():
    stream = Shown(Bytes())
    assert [stream.add(token) for token in (97, 900)] == ["a", "<900>"]
    assert stream.text == "a"


def test_each_piece_of_the_page_has_its_number():
    assert pieces(Bytes(), [97, 900, 98]) == ["a", "<900>", "b"] and piece(Bytes(), 900) == "<900>"
