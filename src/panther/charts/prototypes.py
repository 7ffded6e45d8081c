"""Charts of prototypes: shares, groups, relations, contributions and neighbours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from panther.charts.chart import Axis, Bars, Chart, Heat, Line, Points, Reference, RowNotes, Values
from panther.charts.style import GREY, INK, MARKERS, ORANGE, group_colour, short, tint
from panther.prototypes.choose import NEARLY_ALL, Choice
from panther.prototypes.compare import Comparison

MOST_GROUPS = 6  # drawn; more cannot be distinguished, the tables have them all
STRONG = 3.0  # log2 at which the colours of contacts end: eight times as often as by chance
NUMBERS_UP_TO = 12  # prototypes, for numbers inside the cells to be read
RELATIONS = {  # limits and title of the colours, title
    "cooccurrence": ((-1.0, 1.0), "correlation of log-ratios", "Occur together, over slides"),
    # observed over expected by chance
    "neighbours": ((-STRONG, STRONG), "log₂ of contacts to chance", "Touch each other, within slides"),
    # of the contacts of each prototype (rows) with others
    "borders": ((0.0, 1.0), "share of its border", "What each row borders on"),
    "similarity": ((-1.0, 1.0), "cosine", "Similar prototypes"),
}
SHADES = (1.0, 0.55, 0.25, 0.12, 0.75, 0.4)  # of a prototype's colour, one per statistic


def shares(
    names: Sequence[str],
    share: Values,
    colours: Sequence[str],
    title: str,
    low: Values | None = None,
    high: Values | None = None,
) -> Chart:
    """Share of each prototype, with its interval where it is known."""
    bars = Bars(share, colours, low=low, high=high)
    return Chart([bars], Axis(title, percent=True), Axis(names=names), size=(860, 80 + 26 * len(names)))


@dataclass(frozen=True)
class Group:
    """Mean share of each prototype in one group of patients, with its interval; NaN where it is not known."""

    name: str
    patients: int | None
    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


@dataclass(frozen=True)
class Tests:
    """P-value of each prototype, corrected by Holm; NaN where there is none."""

    name: str
    p: Sequence[float]


def group_shares(names: Sequence[str], groups: Sequence[Group], tests: Tests | None, title: str) -> Chart:
    """Mean share by group as points with 95 % intervals, the largest groups only; p-values on the right."""
    largest = sorted(groups, key=lambda group: -(group.patients or 0))[:MOST_GROUPS]
    shown = [group for group in groups if group in largest]
    step = 0.66 / max(1, len(shown))
    marks = []
    for number, group in enumerate(shown):
        y = np.arange(len(names)) + (number - (len(shown) - 1) / 2) * step
        size = "" if group.patients is None else f" (n = {group.patients})"
        labels = [f"{name}, {group.name}: {mean:.1%}" for name, mean in zip(names, group.mean, strict=True)]
        name, colour, marker = f"{short(group.name, 20)}{size}", group_colour(number), MARKERS[number]
        marks.append(Points(group.mean, y, colour, name, marker, low=group.low, high=group.high, labels=labels))
    more = f", the {MOST_GROUPS} largest of {len(groups)} groups" if len(groups) > len(shown) else ""
    x = Axis("share, mean over patients with 95 % interval", (0, None), percent=True)
    return _with_tests(marks, x, names, tests, f"{title}{more}")


def correlations(names: Sequence[str], rho: Sequence[float], tests: Tests | None, column: str) -> Chart:
    """Spearman's correlation of each prototype's share with a number."""
    x = Axis(f"Spearman's rho of share and {column}, over patients", (-1.05, 1.05))
    return _with_tests([Points(rho, np.arange(len(names)))], x, names, tests, column, [Reference(0, dash="solid")])


def _with_tests(
    marks: Sequence[Points], x: Axis, names: Sequence[str], tests: Tests | None, title: str,
    references: Sequence[Reference] = (),
) -> Chart:  # fmt: skip
    notes = None
    if tests is not None:
        texts = ["-" if np.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}" for p in tests.p]
        notes = RowNotes(texts, f"p, {tests.name},\nHolm", [p < 0.05 for p in tests.p])
    size = (860, 150 + 42 * len(names))
    return Chart(marks, x, Axis(names=names), title, size, references=references, row_notes=notes)


def relation(kind: str, names: Sequence[str], values: np.ndarray) -> Chart:
    """How prototypes relate (C, C), one of `RELATIONS`."""
    limits, bar, title = RELATIONS[kind]
    is_share = limits[0] == 0
    form, text = "{:.0%}" if is_share else "{:.1f}", None
    if len(values) <= NUMBERS_UP_TO:
        text = [["" if np.isnan(v) else form.format(v).replace("-0.0", "0.0") for v in row] for row in values]
    heat = Heat(values, limits, bar, diverging=not is_share, text=text, percent=is_share)
    side = max(260, 44 * len(names))
    width = side + 110 + 8 * max(len(short(name)) for name in names)
    x = Axis(names=[name.split(" ")[0] for name in names])
    return Chart([heat], x, Axis(names=names), title, (width, side + 80))


def contributions(names: Sequence[str], by_statistic: Mapping[str, Sequence[float]], colours: Sequence[str], title: str = "") -> Chart:  # fmt: skip
    """Mean absolute contribution of each statistic (pi, mu, Sigma), stacked by prototype; darkest the first."""
    bars = [
        Bars(values, [tint(colour, shade) for colour in colours], statistic, key=tint(INK, shade))
        for shade, (statistic, values) in zip(SHADES, by_statistic.items(), strict=False)
    ]
    x, size = Axis("mean |contribution| of each statistic, stacked"), (440, 150 + 30 * len(names))
    return Chart(bars, x, Axis(names=names), title, size)


def contribution_swarm(names: Sequence[str], values: np.ndarray, colours: Sequence[str], title: str = "") -> Chart:
    """Contribution (n, rows) of each prototype in each slide or patient; points of nearly equal values move apart."""
    width = (float(np.abs(values).max()) or 1.0) / 40
    points = [
        Points(column, row + swarm_offsets(column, width), colour, size=4.2)
        for row, (column, colour) in enumerate(zip(values.T, colours, strict=True))
    ]
    x, y = Axis("left: takes away from the output; right: adds to it"), Axis(names=names)
    size = (660, 150 + 30 * len(names))
    return Chart(points, x, y, title, size, references=[Reference(0, colour=INK, dash="solid")])


def swarm_offsets(values: np.ndarray, width: float) -> np.ndarray:
    """Heights (n,) within +-0.38 that separate points with values in the same bin of this width."""
    bins = np.floor(values / width).astype(np.int64)
    offset = np.zeros(len(values))
    largest = max(int(np.unique(bins, return_counts=True)[1].max()), 8)
    for number in np.unique(bins):
        members = np.flatnonzero(bins == number)
        members = members[np.argsort(values[members], kind="stable")]
        offset[members] = (np.arange(len(members)) - (len(members) - 1) / 2) * 0.76 / largest
    return offset


def class_table(
    counts: np.ndarray, chosen: np.ndarray, names: Sequence[str], classes: Sequence[str], colours: Sequence[str],
    truth: str = "",
) -> Chart:  # fmt: skip
    """Shares of the classes in each prototype, from patches (C, K); prototypes of one class together, theirs (C,) framed; -1: none."""
    members = counts.sum(1)
    shares = counts / np.maximum(members, 1)[:, None]
    order = np.lexsort((-shares.max(1), np.where(chosen < 0, len(classes), chosen))).tolist()
    text = [
        [("-" if not members[c] else f"{share:.2f}" if share >= 0.005 else "") for share in shares[c]] for c in order
    ]
    framed = [(row, int(chosen[c])) for row, c in enumerate(order) if chosen[c] >= 0]
    rows = [short(names[c]) for c in order]
    width = 260 + 7.5 * max(map(len, rows)) + max(75, 8.5 * max(map(len, classes))) * len(classes)
    by = f", by {truth}" if truth else ""
    return Chart(
        [Heat(shares[order], (0, 1), text=text, framed=framed)],
        Axis(f"share of the prototype's patches{by};\noutlined: the prototype's class", names=classes),
        Axis(names=rows),
        size=(round(width), 150 + 28 * len(rows)),
        row_notes=RowNotes([f"{int(members[c]):,} patches" for c in order]),
        row_colours=[colours[c] for c in order],
    )


def choice_of_c(choice: Choice) -> list[Chart]:
    """Three charts over the number of prototypes: held-out likelihood, how many come back, agreement; the recommended one is marked."""
    candidates = choice.candidates
    x = [c.n_prototypes for c in candidates]
    ends = ", still rising" if choice.still_rising else f", enough at {choice.sufficient}"
    likelihood = [_with_spread(x, [(c.held_out, c.held_out_error) for c in candidates])]
    come_back = [
        Line(x, x, GREY, "all", width=1.4),
        Line(x, [NEARLY_ALL * n for n in x], GREY, f"{NEARLY_ALL:.0%}", "dot"),
        _with_spread(x, [(c.come_back, c.come_back_spread) for c in candidates], "found in both halves"),
    ]
    halves = [c.stability_halves for c in candidates]
    agreement = [
        Line(x, [c.stability_seeds for c in candidates], group_colour(0), "two seeds", marker="circle"),
        Line(x, halves, group_colour(1), "two halves of the cohort", "dash", marker="square"),
        Line(x, [c.explained for c in candidates], group_colour(2), "variance of unseen slides explained", "dot", marker="triangle-up"),
    ]  # fmt: skip
    step = next((s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500) if max(x) - min(x) <= 8 * s), 1000)
    ticks = range(0, max(x) + 1, step)  # whole numbers of prototypes
    word, colour = ("recommended", ORANGE) if choice.supported else ("nearest", GREY)
    panels = (
        (f"Held-out likelihood{ends}", likelihood, Axis("log-likelihood per patch, unseen slides"), f"{word}: {choice.recommended}"),
        ("Prototypes that come back", come_back, Axis("prototypes", ticks=ticks), ""),
        ("Agreement (1: the same every time)", agreement, Axis("adjusted Rand index; share of variance", (min(0, *halves) - 0.05, 1.05)), ""),
    )  # fmt: skip
    x_axis = Axis("number of prototypes C", ticks=[tick for tick in ticks if tick >= min(x)])
    return [
        Chart(lines, x_axis, y, title, (400, 400), references=[Reference(choice.recommended, text, colour, "dash")])
        for title, lines, y, text in panels
    ]


def _with_spread(x: Sequence[float], values: Sequence[tuple[float, float]], name: str = "") -> Line:
    """Line of means with a bar up and down."""
    mean, spread = np.array(values).T
    return Line(x, mean, name=name, marker="circle", low=mean - spread, high=mean + spread)


def comparison(result: Comparison, first: str, second: str) -> Chart:
    """Cosines between two sets of prototypes, the matched pairs framed: solid where they are the same."""
    rows, columns = result.cosine.shape
    pairs = list(zip(result.match.first.tolist(), result.match.second.tolist(), strict=True))
    same = [pair for pair in pairs if pair in set(result.same)]
    others = [pair for pair in pairs if pair not in set(result.same)]
    heat = Heat(result.cosine.numpy(), (-1, 1), "cosine", diverging=True, framed=same, dotted=others)
    x = Axis(f"{second}  (* appeared)", names=[f"C{c}" + "*" * (c in result.appeared) for c in range(columns)])
    y = Axis(f"{first}  (* vanished)", names=[f"C{c}" + "*" * (c in result.vanished) for c in range(rows)])
    return Chart([heat], x, y, size=(240 + 32 * columns, 130 + 32 * rows))
