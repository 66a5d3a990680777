"""Lines of a figure differ by more than their colour."""

import pytest

from themis_lab.paper.plotting import COLOURS, cdf_lines, house_style, legend_below, lines, new_figure
from themis_lab.paper.statistics import summary


def by_cdf(axes):
    cdf_lines(axes, {name: [1.0, 2.0 + place] for place, name in enumerate(COLOURS)}, "hours")


def by_medians(axes):
    lines(axes, [0, 1], {name: [summary([1.0]), summary([2.0])] for name in COLOURS}, "x", "y")


@pytest.mark.parametrize("draw", [by_cdf, by_medians])
def test_ten_policies_have_ten_kinds_of_dashes(draw):
    with house_style():
        figure = new_figure()
        draw(figure.axes[0])
        # Matplotlib keeps the dashes of a line for its own use only.
        kinds = {
            line._unscaled_dash_pattern[1] and tuple(line._unscaled_dash_pattern[1]) for line in figure.axes[0].lines
        }
        assert len(kinds) == len(COLOURS)


def test_themis_is_solid_heavy_and_on_top():
    with house_style():
        figure = new_figure()
        by_cdf(figure.axes[0])
        themis, *others = figure.axes[0].lines
        assert themis.get_label() == "themis"
        assert themis.get_linestyle() == "-"
        assert all(themis.get_linewidth() > other.get_linewidth() for other in others)
        assert all(themis.get_zorder() > other.get_zorder() for other in others)


def test_a_policy_has_the_same_dashes_in_each_panel_of_a_figure():
    with house_style():
        figure = new_figure(2)
        for axes in figure.axes:
            by_cdf(axes)
        left, right = ([line._unscaled_dash_pattern for line in axes.lines] for axes in figure.axes)
        assert left == right


def test_whiskers_leave_dashes_to_lines():
    values = {name: [summary([1.0, 2.0]), summary([2.0, 3.0])] for name in COLOURS}
    with house_style():
        figure = new_figure()
        lines(figure.axes[0], [0, 1], values, "x", "y", apart=0.1)
        legend_below(figure)
        shown = [line for line in figure.axes[0].lines if not line.get_label().startswith("_")]
        kinds = {line._unscaled_dash_pattern[1] and tuple(line._unscaled_dash_pattern[1]) for line in shown}
        assert len(kinds) == len(COLOURS)
        bars = [each.get_linestyle()[0][1] for each in figure.axes[0].collections]
        assert bars and all(dashes is None for dashes in bars)
