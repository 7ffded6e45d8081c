"""Tab: do the prototypes deserve trust, and what failed."""

import numpy as np

from panther.charts.prototypes import shares
from panther.charts.results import histogram
from panther.evaluation.shift import COLLAPSED
from panther.report.fold import renamed
from panther.report.html import Html, details, join, listing, number, paragraph, table, tag
from panther.report.material import Material
from panther.report.plots import plot


def diagnostics(material: Material) -> Html | None:
    """Collapse, site shift, failures."""
    parts = [_used(material), _occupancy(material), _shift(material), _failures(material)]
    return join(tag("h2", "Diagnostics"), parts) if any(parts) else None


def _used(material: Material) -> Html | None:
    found = material.mixtures
    used = None if found is None else found.used
    if found is None or used is None:
        return None
    said = (
        f"A sample uses {np.median(used):.1f} of {len(found.prototypes)} prototypes in the median; "
        f"{int((used < COLLAPSED).sum())} of {len(used):,} samples "
        "lie in one prototype only."
    )
    return join(
        tag("h3", "Are the mixtures mixtures?"),
        paragraph(
            "The effective number of prototypes is 1 where a sample lies in one prototype only, and C where all have the same "
            "share. Near 1 everywhere means that "
            "prototypes tell slides apart rather than tissues."
        ),
        plot("effective", histogram(used, "effective number of prototypes", 24), said),
    )


def _occupancy(material: Material) -> Html | None:
    found = material.mixtures
    about = {} if found is None else dict(found.prototypes.diagnostics)
    share = about.get("occupancy_share")
    if found is None or not share:
        return None
    own = material.folds_own
    assert own is not None
    names = {c: material.folds_prototype(own, c) for c in range(len(share))}
    number_used = about.get("effective_number", float("nan"))
    said = (
        f"Share of the training patches in each prototype, fold {found.fold + 1}; effective number {number_used:.1f} of "
        f"{len(share)}. {own.said}"
    ).rstrip()
    rows = [
        [names[c], number(share[c]), number(about["distance_to_nearest"][c]), names.get(about["nearest"][c], "")]
        for c in own.order
    ]
    chart = shares(
        [names[c] for c in own.order],
        [share[c] for c in own.order],
        [own.colour(c) for c in own.order],
        "share of the training patches",
    )
    return join(
        tag("h3", f"Prototypes of fold {found.fold + 1}"),
        plot("occupancy", chart, said),
        listing([renamed(warning, names) for warning in about.get("warnings", [])], class_="notes"),
        details("Numbers", table(["prototype", "share", "distance to the nearest", "nearest"], rows)),
    )


def _shift(material: Material) -> Html:
    found = material.shift
    heading = tag("h3", "Do the proportions betray the site?")
    if found is None:
        said = "Not judged: that needs at least two sites with five patients each, and a method that keeps the proportions of prototypes."
        return join(heading, paragraph(said))
    rows = [[site, n] for site, n in found.sites.items()]
    return join(
        heading,
        paragraph(found.sentence),
        details("Sites judged", table(["site", "patients"], rows)),
        paragraph(f"Too small to judge: {', '.join(f'{s} ({n})' for s, n in found.left_out.items())}.")
        if found.left_out
        else None,
    )


def _failures(material: Material) -> Html:
    failures = material.run.record["failures"]
    body = listing(failures.values()) or paragraph("None: every sample was read and every model trained.")
    return join(tag("h3", "Failures"), body)
