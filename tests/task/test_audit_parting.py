"""A page that was edited is quoted where it was."""

from harness.task.audit.parting import parted

PAGE = "<html><style>p {a: b}</style>\n<h1>A run</h1>\n<p>The largest of all is <b>0.25</b> nats &amp; no more.</p></html>"


def test_the_words_from_where_two_pages_part_are_quoted() -> None:
    was, now = parted(PAGE.replace("0.25", "0.05"), PAGE)
    assert was == "... of all is 0.05 nats & no more."
    assert now == "... of all is 0.25 nats & no more."
    assert parted("", PAGE)[0] == "" and parted("", PAGE)[1].startswith("A run The")
    long = PAGE.replace("0.25", "9 " * 30)
    assert parted(long, PAGE)[0].endswith("9 9 ...")


def test_of_another_link_or_picture_the_line_is_named() -> None:
    assert parted(PAGE.replace("<b>", '<b class="x">'), PAGE)[0] == "line 3"
