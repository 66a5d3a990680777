"""Elements escape what is not an element; numbers are shown to people, and never as NaN to programs."""

import math

import pytest

from themis.web.elements import Markup, element, join, link, markup, outside_link, table
from themis.web.formatting import duration, finite, from_now, number, percent
from themis.web.frame import page


def test_text_is_escaped_once_and_elements_are_not():
    inner = element("b", "<i> & \"'")
    assert inner == "<b>&lt;i&gt; &amp; &quot;&#x27;</b>"
    assert element("p", inner, "<") == f"<p>{inner}&lt;</p>"
    assert markup(markup("<")) == "&lt;"


def test_attributes_are_escaped_and_left_out_when_none():
    assert (
        element("a", href='"><script>', title=None, class_="x") == '<a href="&quot;&gt;&lt;script&gt;" class="x"></a>'
    )


def test_joined_parts_are_escaped_the_glue_is_not():
    assert join(["<", Markup("<br>")], "<hr>") == "&lt;<hr><br>"


@pytest.mark.parametrize(
    "address", ["javascript:alert(1)", "JAVASCRIPT:x", "data:text/html,x", " http://x", "//x", "ftp://x"]
)
def test_only_web_addresses_of_others_become_links(address):
    assert outside_link(address, "<there>") == "&lt;there&gt;"


def test_web_addresses_become_links():
    assert outside_link('HTTPS://x/"', "there") == '<a href="HTTPS://x/&quot;" rel="noreferrer noopener">there</a>'
    assert link("a?b=1&c", "x") == '<a href="a?b=1&amp;c">x</a>'


def test_cells_are_escaped_and_numbers_marked():
    text = table(("name", "n<"), [("<", 1)], numbers=("n<",))
    assert '<td data-head="name">&lt;</td><td class="number" data-head="n&lt;">1</td>' in text
    assert '<th class="number">n&lt;</th>' in text


def test_a_row_that_is_too_short_is_a_defect():
    with pytest.raises(ValueError, match="shorter than"):
        table(("a", "b"), [(1,)])


def test_the_title_is_escaped_and_a_page_that_stays_does_not_renew():
    assert "<title>&lt;/title&gt;</title>" in page("</title>")
    assert "http-equiv" in page("x")
    assert "http-equiv" not in page("x", refresh_s=0)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (math.nan, "-"),
        (math.inf, "∞"),
        (-math.inf, "-∞"),
        (1.2345, "1.23"),
        (12345.6, "12,346"),
        (0.0, "0"),
    ],
)
def test_numbers_for_people(value, shown):
    assert number(value) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "-"),
        (math.inf, "-"),
        (0.0, "0 s"),
        (0.25, "250 ms"),
        (1.0, "1.0 s"),
        (125, "2:05 min"),
        (7384, "2:03:04 h"),
    ],
)
def test_durations_for_people(seconds, shown):
    assert duration(seconds) == shown


def test_shares_and_times_for_people():
    assert [percent(share) for share in (0.999, 1.0, None, math.nan)] == ["99 %", "100 %", "-", "-"]
    # A program may log any number as its accuracy.
    assert [percent(share) for share in (math.inf, 1e308, -1e308)] == ["-", "-", "-"]
    assert (from_now(15.0, 10.0), from_now(10.0, 15.0)) == ("in 5.0 s", "5.0 s ago")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_non_finite_numbers_become_none(value):
    assert finite(value) is None
