"""Tabs of prototypes: atlas, mixtures, maps, tissue classes, attribution and diagnostics."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from panther.charts.display_names import column_titles
from panther.charts.prototypes import shares
from panther.charts.results import histogram, scatter, weights_boxes, weights_heatmap
from panther.errors import InputError
from panther.evaluation.shift import COLLAPSED
from panther.explain.atlas_files import group_charts, relation_charts, share_chart
from panther.explain.attribution.draw import by_size, contribution_chart
from panther.explain.concordance.draw import class_chart
from panther.explain.kaplan_meier import curve_chart
from panther.explain.names import row_colour
from panther.report.data import describing_columns, numeric
from panther.report.figures import Figure, Gallery, Picture, data_uri, gallery, number, p_value, pictures_by_slide
from panther.report.material import Artefact, Material

EXEMPLARS = ("nearest", "random")
MOST_EXEMPLARS, EXEMPLAR_SIDE = 5, 160  # of a kind; pixels
TABLES = ("per_class", "prototypes", "slides")
MOST_ROWS = 60
RELATIONS = {
    "neighbours": ("Contacts", "log₂ of contacts of patches, observed over expected. Orange: above chance; blue: below."),
    "cooccurrence": ("Co-occurrence", "Correlation of log-ratios of shares over slides. Orange: together; blue: apart."),
}  # fmt: skip
STATISTICS = {
    "pi": "π (amount)",
    "mu": "μ (mean appearance)",
    "Sigma": "Σ (variation)",
    "part of mean": "π μ (part of the mean)",
}
MOST_SAMPLES = 600  # columns that a heatmap can show
MOST_POINTS = 3000  # of a scatter plot; the page has one for every column
# kinds of pictures of a slide; the first that exists is shown
PREFERRED = (".side_by_side", ".map", ".attention", ".heatmaps", ".overlay")


def prototypes(material: Material) -> dict[str, Any] | None:
    """One card per prototype, shares, groups and relations."""
    atlas = material.artefacts.get("atlas")
    if atlas is None or not atlas.rows("prototypes"):
        return None
    rows = sorted(atlas.rows("prototypes"), key=lambda row: row["prototype"])
    names = [material.prototype(row["prototype"]) for row in rows]
    shares = ", ".join(f"{name} {row['share']:.1%}" for name, row in zip(names, rows, strict=True))
    caption = "Mean over patients, 95 % interval"
    groups: dict[str, Figure] = {}
    for column, chart in group_charts(atlas.content, names).items():
        tests = [
            [names[row["prototype"]], row.get("test", ""), row.get("statistic"), p_value(row.get("p")), p_value(row.get("p_corrected"))]
            for row in atlas.rows("tests")
            if row["column"] == column
        ]  # fmt: skip
        title = column_titles([str(column)])[str(column)]
        text = f"By {title}; p-values are Holm-corrected over prototypes."
        header = ("prototype", "test", "statistic", "p", "p, corrected")
        groups[title] = Figure(f"groups-{len(groups)}", chart, text, header=header, rows=tests)
    charts = relation_charts(atlas.content, names)
    relations = {
        title: Figure(key, charts[key], text, widest=820)
        for key, (title, text) in RELATIONS.items()
        # contacts require coordinates
        if key in charts and any(cell is not None for row in atlas.content[key] for cell in row)
    }
    return {
        "cards": [_card(material, atlas, row, name) for row, name in zip(rows, names, strict=True)],
        "shares": Figure("shares", share_chart(atlas.content, names), caption, shares),
        "groups": groups,
        "relations": relations,
        "neighbours": [str(line) for line in atlas.content.get("neighbours_in_words") or ()],
        "notes": atlas.content.get("notes", []),
    }


def _card(material: Material, atlas: Artefact, row: dict[str, Any], name: str) -> dict[str, Any]:
    exemplars = [e for e in atlas.rows("exemplars") if e.get("prototype") == row["prototype"] and e.get("picture")]
    strips = {}
    for kind in EXEMPLARS:
        chosen = [e for e in exemplars if e.get("kind") == kind][:MOST_EXEMPLARS]
        if pictures := list(filter(None, (_exemplar(material, atlas, e, name) for e in chosen))):
            strips[kind] = pictures
    numbers = {key: row.get(key) for key in ("low", "high", "patches", "slides")}
    return {"name": name, "colour": row_colour(row), "share": row["share"], "strips": strips, **numbers}


def _exemplar(material: Material, atlas: Artefact, row: dict[str, Any], name: str) -> Picture | None:
    path = atlas.folder / str(row["picture"])
    try:
        if not path.resolve().is_relative_to(atlas.folder.resolve()):
            raise InputError(f"{path}: lies outside {atlas.folder}; it is left out of the report.")
        alt = f"Patch of {name}, slide {row.get('slide')}, at {row.get('x')}, {row.get('y')}"
        return Picture(data_uri(path, EXEMPLAR_SIDE), alt)
    except InputError as error:
        material.failures[str(row["picture"])] = str(error)
        return None


def mixtures(material: Material) -> dict[str, Any] | None:
    """Proportions of the atlas, else of the run; scatter plots of the embeddings."""
    atlas, mixture = material.slides, material.mixtures
    if mixture is None and atlas is None:
        return None
    weights, samples, titles = None, [], []
    if atlas is not None:
        weights, samples = atlas.weights, atlas.slides
        titles = [material.prototype(c) for c in range(weights.shape[1])]
    elif mixture is not None and mixture.weights is not None:
        weights, samples = mixture.weights, list(mixture.samples)
        titles = [material.fold_prototype(c) for c in range(weights.shape[1])]
    shown = {}
    if weights is not None:
        units = atlas.patients if atlas is not None and material.run.study.task.level == "patient" else samples
        shown = {"heatmap": _heatmap(samples, weights, titles), "boxes": _boxes(material, units, weights, titles)}
    scatters = _scatters(material)
    return {"weights": shown, "of_atlas": atlas is not None, "mixture": mixture, "scatters": scatters}


def sorted_rows(weights: np.ndarray) -> np.ndarray:
    """Order of samples by their largest prototype, then by its share, descending."""
    return np.lexsort((-weights.max(1), weights.argmax(1)))


def _evenly(count: int, most: int) -> np.ndarray:
    """Positions of ``count`` samples, evenly spaced where they are more than ``most``."""
    return np.arange(count) if count <= most else np.linspace(0, count - 1, most).astype(int)


def _heatmap(samples: Sequence[str], weights: np.ndarray, names: Sequence[str]) -> Figure:
    order = sorted_rows(weights)[_evenly(len(weights), MOST_SAMPLES)]
    some = f" {MOST_SAMPLES:,} of {len(samples):,} samples, evenly spaced." if len(order) < len(samples) else ""
    text = f"Shares π by sample and prototype.{some}"
    mean = ", ".join(f"{name} {share:.0%}" for name, share in zip(names, weights.mean(0), strict=True))
    return Figure("weights", weights_heatmap(weights[order], [samples[i] for i in order], names), text, f"mean {mean}")


def _boxes(material: Material, samples: Sequence[str], weights: np.ndarray, names: Sequence[str]) -> dict[str, Figure]:
    run, figures = material.run, {}
    titles = column_titles(map(str, run.cohort.columns))
    for k, name in enumerate(describing_columns(run) if set(samples) & set(run.cohort.index) else ()):
        title, groups, numbers = titles[name], np.array(run.column(name, samples)), numeric(run.cohort[name])
        if numbers is not None:
            median = np.nanmedian(numbers)
            above = pd.to_numeric(groups, errors="coerce") > median
            halves = np.where(above, f"{title} above {median:.6g}", f"{title} at most {median:.6g}")
            groups = np.where(groups == "not known", groups, halves)
        text = f"Shares π by {title}."
        figures[title] = Figure(f"boxes-{k}", weights_boxes(weights, groups.tolist(), names), text)
    return figures


def _scatters(material: Material) -> dict[str, Figure]:
    mixture, run, figures = material.mixtures, material.run, {}
    if mixture is None:
        return {}
    titles = column_titles(map(str, run.cohort.columns))
    rows = _evenly(len(mixture.samples), MOST_POINTS)
    samples = [mixture.samples[i] for i in rows]
    some = "" if len(rows) == len(mixture.samples) else f" {len(rows):,} of them are shown."
    for projection, (position, axes) in mixture.positions.items():
        for k, name in enumerate(describing_columns(run)):
            numbers = numeric(run.cohort[name].reindex(samples).fillna(""))
            values = run.column(name, samples) if numbers is None else numbers
            text = f"{projection} of {len(mixture.samples):,} embeddings, by {titles[name]}.{some}"
            title = f"{titles[name]} ({projection})" if len(mixture.positions) > 1 else titles[name]
            chart = scatter(position[rows], samples, values, axes, titles[name])
            figures[title] = Figure(f"scatter-{projection.lower()}-{k}", chart, text, widest=900)
    return figures


def maps(material: Material) -> dict[str, Any] | None:
    """One downsized map of each slide: of prototypes, or of a network's attention."""
    if material.maps is None:
        return None
    slides = pictures_by_slide(material.maps, PREFERRED)
    chosen: dict[str, dict[str, Path]] = {"prototypes": {}, "attention": {}}
    for slide, kinds in slides.items():
        if ".map" in kinds and ".attention" in kinds:
            kinds.pop(".side_by_side", None)  # either of the two commands may have written it
        content = "attention" if ".attention" in kinds and ".map" not in kinds else "prototypes"
        chosen[content][slide] = next(kinds[kind] for kind in PREFERRED if kind in kinds)
    galleries = {name: gallery(paths, f"Map of {name} on {{}}", material.failures) for name, paths in chosen.items()}
    return galleries if any(shown.pictures for shown in galleries.values()) else None


def _gallery(material: Material, folder: Path, kinds: Sequence[str], alt: str) -> Gallery:
    pictures = {
        slide if len(kinds) == 1 else f"{slide}, {kind.removeprefix('.')}": path
        for slide, paths in pictures_by_slide(folder, kinds).items()
        for kind, path in paths.items()
    }
    return gallery(pictures, alt, material.failures)


def tissue_classes(material: Material) -> dict[str, Any] | None:
    """Agreement of prototypes with tissue classes: measures, confusion matrix, pictures."""
    artefact = material.artefacts.get("agreement")
    if artefact is None:
        return None
    counts, classes = artefact.content.get("confusion"), artefact.rows("classes")
    names = [material.prototype(row["prototype"]) for row in artefact.rows("prototypes")]
    figure = None
    if counts and np.shape(counts) == (len(names), len(classes)):
        text = "Classes of the patches of each prototype."
        figure = Figure("tissue-classes", class_chart(artefact.content, names), text, widest=420 + 90 * len(classes))
    return {
        "measures": artefact.content.get("agreement") or {},
        "figure": figure,
        "gallery": _gallery(material, artefact.folder, (".classes", ".tumour"), "Agreement with tissue classes on {}"),
        "notes": artefact.content.get("notes", []),
        "tables": {key: _records(artefact.rows(key)) for key in TABLES if artefact.rows(key)},
    }


def _records(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Records as a table, without columns of lists."""
    columns = [key for key in rows[0] if not any(isinstance(row.get(key), (dict, list)) for row in rows)]
    cells = [[row.get(key) for key in columns] for row in rows[:MOST_ROWS]]
    return {"header": [key.replace("_", " ") for key in columns], "rows": cells, "count": len(rows)}


def attribution(material: Material) -> dict[str, Any] | None:
    """Contributions to the prediction, and survival by prototype; either may be missing."""
    context: dict[str, Any] = {"contributions": None, "survival": None}
    artefact = material.artefacts.get("attribution")
    if artefact is not None and artefact.rows("cohort"):
        outputs = dict.fromkeys(row["output"] for row in artefact.rows("cohort"))
        context["contributions"] = {
            "figures": {str(name): _contributions(material, artefact, name, k) for k, name in enumerate(outputs)},
            "kind": artefact.content.get("kind", ""),
            "gap": artefact.content.get("gap"),
            "gallery": _gallery(material, artefact.folder, (".attribution",), "Contribution of each patch on slide {}"),
            "notes": artefact.content.get("notes", []),
        }
    artefact = material.artefacts.get("km")
    if artefact is not None and artefact.rows("prototypes"):
        figures = _survival_by_prototype(material, artefact)
        notes = [note for note in artefact.content.get("notes", []) if note not in material.run.record["notes"]]
        context["survival"] = {"figures": figures, "notes": notes}  # without those of the tab of the cohort
    return context if any(context.values()) else None


def _contributions(material: Material, artefact: Artefact, output: str, position: int) -> Figure:
    names = {row["prototype"]: material.prototype(row["prototype"]) for row in artefact.rows("prototypes")}
    rows = [
        row | {"statistic": STATISTICS.get(row["statistic"], row["statistic"])}
        for row in artefact.rows("cohort")
        if row["output"] == output
    ]
    order = by_size(rows)
    colours = {row["prototype"]: row_colour(row) for row in artefact.rows("prototypes")}
    cells = [
        [names.get(row["prototype"], row["prototype"]), row["statistic"], number(float(row["mean"]), 4), number(float(row["mean_absolute"]), 4)]
        for row in rows
    ]  # fmt: skip
    text = f"Largest for {output}: {names[order[0]]}."
    chart = contribution_chart(rows, order, names, colours=colours)
    header = ("prototype", "statistic", "mean", "mean absolute")
    return Figure(f"contributions-{position}", chart, text, header=header, rows=cells)


def _survival_by_prototype(material: Material, artefact: Artefact) -> dict[str, Figure]:
    rows = sorted(artefact.rows("prototypes"), key=lambda row: (row.get("p") is None, row.get("p")))
    title = "survival" if material.run.classes else material.run.endpoint
    unit = (
        artefact.content.get("time_unit") or ""
    )  # of the table of `panther kaplan-meier`, which may differ from the study's
    figures = {}
    for row in rows:
        name = material.prototype(row["prototype"])
        corrected = f"Holm-corrected for {len(rows)} {p_value(row.get('p_corrected'))}"
        text = f"{name}: log-rank p {p_value(row.get('p'))}, {corrected}."
        if row.get("groups"):
            figures[name] = Figure(f"km-{row['prototype']}", curve_chart(row, unit, title), text)
    return figures


def diagnostics(material: Material) -> dict[str, Any]:
    """Effective number of prototypes, occupancy, site shift, failures."""
    mixture = material.mixtures
    effective = occupancy = None
    if mixture is not None and mixture.used is not None:
        used = mixture.used
        median, single = np.median(used), int((used < COLLAPSED).sum())
        text = f"Median {median:.1f} of {len(mixture.prototypes)}; {single} of {len(used):,} samples use one only."
        effective = Figure("effective", histogram(used, "effective number of prototypes", 24), text)
    diagnosed = dict(mixture.prototypes.diagnostics) if mixture else {}
    share = diagnosed.get("occupancy_share")
    if mixture is not None and share:
        titles = [material.fold_prototype(c) for c in range(len(share))]
        effective_number = diagnosed.get("effective_number", np.nan)
        text = f"Effective number {effective_number:.1f} of {len(share)}."
        distance, nearest = diagnosed["distance_to_nearest"], diagnosed["nearest"]
        rows = [[titles[c], share[c], distance[c], titles[nearest[c]]] for c in range(len(share))]
        chart = shares(
            titles, share, [material.fold_colour(c) for c in range(len(share))], "share of the training patches"
        )
        header = ("prototype", "share", "distance to the nearest", "nearest")
        occupancy = Figure("occupancy", chart, text, header=header, rows=rows)
    return {
        "effective": effective,
        "occupancy": occupancy,
        "mixture": mixture,
        "shift": material.shift,
        "failures": list(material.run.record["failures"].values()),
    }
