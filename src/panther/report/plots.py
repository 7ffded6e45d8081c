"""A figure's place in the page: its data as JSON, drawn by Plotly when it comes into view."""

import json

from panther.charts.chart import Chart
from panther.report.html import Html, tag


def plot(key: str, chart: Chart, alt: str, caption: object = None, widest: int | None = None) -> Html:
    """Figure with a fixed name; ``alt`` says in words what is drawn, for those who cannot see it.

    It is as wide as the page, or at most ``widest`` pixels.
    """
    figure = chart.plotly()
    # in a script element only `<` could end it early
    data = Html(json.dumps(figure, separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c"))
    height = f"min-height:{figure['layout']['height']}px" + (f";max-width:{widest}px" if widest else "")
    return tag(
        "figure",
        tag("div", id=f"plot-{key}", class_="canvas", role="img", aria_label=alt, style=height),
        tag("script", data, type="application/json", data_plot=f"plot-{key}"),
        tag("figcaption", caption or alt),
        class_="plot",
    )
