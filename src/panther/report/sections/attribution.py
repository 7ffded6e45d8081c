"""Tab: which prototypes drive the prediction, and how patients with more or less of each fare."""

import numpy as np

from panther.explain.attribution.draw import by_size, contribution_chart
from panther.explain.kaplan_meier import curve_chart
from panther.explain.names import row_colour
from panther.report.html import (
    Html,
    choice,
    details,
    join,
    listing,
    number,
    p_value,
    paragraph,
    plot,
    table,
    tag,
    words,
)
from panther.report.material import Artefact, Material
from panther.report.sections.pictures import by_slide, gallery

SYMBOL = {
    "pi": "π (how much)",
    "mu": "μ (how it looks)",
    "Sigma": "Σ (how varied it looks)",
    "part of mean": "π μ (what it adds to the mean)",
}


def attribution(material: Material) -> Html | None:
    """Contributions, then survival by prototype; each works without the other."""
    parts = [_contributions(material), _survival(material)]
    return join(tag("h2", "Attribution"), parts) if any(parts) else None


def _contributions(material: Material) -> Html | None:
    found = material.artefacts.get("attribution")
    if found is None or not found.rows("cohort"):
        return None
    names = {
        row["prototype"]: material.prototype(row["prototype"], row.get("name")) for row in found.rows("prototypes")
    }
    figures: dict[str, Html] = {}
    for output in dict.fromkeys(row["output"] for row in found.rows("cohort")):
        figures[str(output)] = _one_output(found, output, names, len(figures))
    gap = found.content.get("gap")
    pictures = {
        slide: path for slide, kinds in by_slide(found.folder, (".attribution",)).items() for path in kinds.values()
    }
    kind = found.content.get("kind", "")
    return join(
        tag("h3", "What drives the prediction"),
        paragraph(
            "How much each prototype moves the model's output away from that of the average training sample, as the mean size over samples. "
            "It explains the model, not the disease: a prototype can matter because it goes with a site or with how the tissue was cut. ",
            words(
                "The other tabs judge this model only where it is one of the study's own (folder `models/` of the run)."
            ),
        ),
        choice("output", "Output", figures),
        paragraph(
            f"Kind of attribution: {kind}."
            + (
                f" The largest difference between the sum of contributions and the change of the output is {gap:.2g}."
                if gap is not None
                else ""
            ),
            class_="facts",
        ),
        gallery(material, pictures, "Contribution of each patch on slide {}"),
        listing(found.content.get("notes", []), class_="notes"),
    )


def _one_output(artefact: Artefact, output: str, names: dict[int, str], position: int) -> Html:
    mine = [row for row in artefact.rows("cohort") if row["output"] == output]
    order = by_size(mine)
    text = f"Mean absolute contribution to {output}; the largest comes from {names[order[0]]}."
    rows = [
        [names.get(row["prototype"], row["prototype"]), SYMBOL.get(row["statistic"], row["statistic"]),
         number(float(row["mean"]), 4), number(float(row["mean_absolute"]), 4)]
        for row in mine
    ]  # fmt: skip
    chart = contribution_chart(
        [row | {"statistic": SYMBOL.get(row["statistic"], row["statistic"])} for row in mine],
        order,
        names,
        colours={row["prototype"]: row_colour(row) for row in artefact.rows("prototypes")},
    )
    return join(
        plot(f"contributions-{position}", chart, text),
        details("Numbers", table(["prototype", "statistic", "mean", "mean size"], rows)),
    )


def _survival(material: Material) -> Html | None:
    found = material.artefacts.get("km")
    if found is None or not found.rows("prototypes"):
        return None
    rows = sorted(found.rows("prototypes"), key=lambda row: (row.get("p") is None, row.get("p")))
    figures = {}
    for row in rows:
        name = material.prototype(row["prototype"], row.get("name"))
        p, corrected = (np.nan if row.get(k) is None else float(row[k]) for k in ("p", "p_corrected"))
        text = f"Survival by the share of {name}: log-rank p {p_value(p)}, corrected for {len(rows)} prototypes {p_value(corrected)}."
        if row.get("groups"):
            title = "survival" if material.run.classes else material.run.endpoint
            unit = found.content.get("time_unit") or ""  # that of its own table, which need not be the study's
            figures[name] = plot(f"km-{row['prototype']}", curve_chart(row, unit, title), text)
    text = (
        "Patients divided into thirds by how much of a prototype they have; the smallest p-value first. Curves that part early "
        "and stay apart, with a corrected p below 0.05, "
        "are worth a second look in other patients."
    )
    body = choice("km", "Prototype", figures)
    return join(
        tag("h3", "Survival by prototype"),
        paragraph(text),
        body,
        listing(found.content.get("notes", []), class_="notes"),
    )
