"""Tabs: do the prototypes deserve trust, what failed, and all that is needed to get the same numbers again."""

import numpy as np
import yaml

from panther.charts.prototypes import shares
from panther.charts.results import histogram
from panther.evaluation.shift import COLLAPSED
from panther.report.fold import as_settings, renamed
from panther.report.html import DASH, Html, details, join, listing, number, paragraph, plot, table, tag
from panther.report.material import Material


def diagnostics(material: Material) -> Html | None:
    """Collapse, site shift, failures."""
    parts = [_used(material), _occupancy(material), _shift(material), _failures(material)]
    return join(tag("h2", "Diagnostics"), parts) if any(parts) else None


def _used(material: Material) -> Html | None:
    found = material.mixtures
    used = None if found is None else found.used
    if found is None or used is None:
        return None
    text = (
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
        plot("effective", histogram(used, "effective number of prototypes", 24), text),
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
    text = (
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
        plot("occupancy", chart, text),
        listing([renamed(as_settings(warning), names) for warning in about.get("warnings", [])], class_="notes"),
        details("Numbers", table(["prototype", "share", "distance to the nearest", "nearest"], rows)),
    )


def _shift(material: Material) -> Html:
    found = material.shift
    heading = tag("h3", "Do the proportions betray the site?")
    if found is None:
        text = "Not judged: that needs at least two sites with five patients each, and a method that keeps the proportions of prototypes."
        return join(heading, paragraph(text))
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
    body = listing(failures.values()) or paragraph("None: every sample was read, and no training broke off.")
    return join(tag("h3", "Failures"), body)


def reproduce(material: Material) -> Html:
    """Commands, settings, versions, hashes."""
    run = material.run
    study = run.study.model_dump(mode="json", exclude_defaults=True) | {"seeds": run.study.seeds}
    settings = yaml.safe_dump(study, sort_keys=False, allow_unicode=True)
    versions = {"panther-wsi": run.record["version"], "python": run.record["python"], **run.record["packages"]}
    models = run.trained.reindex(columns=["row", "seed", "fold", "prototypes", "embeddings", "model", "predictions"])
    files = [
        [
            r["row"],
            r["seed"],
            r["fold"] + 1,
            *(r[k] or DASH for k in ("prototypes", "embeddings", "model", "predictions")),
        ]
        for _, r in models.iterrows()
    ]
    return join(
        tag("h2", "Reproduce"),
        paragraph(
            "Save the settings below as study.yaml and run it; the same features, tables and versions give the same numbers. "
            "Files of the cache and models are named by the hash of all "
            "that they depend on, so the same names mean the same inputs."
        ),
        tag(
            "pre",
            tag(
                "code",
                f"pip install 'panther-wsi[report]=={run.record['version']}'\npanther run study.yaml -o {run.folder.name}/\npanther "
                f"report {run.folder.name}/ -o report.html",
            ),
        ),
        tag("h3", "Settings"),
        tag("pre", tag("code", settings)),
        tag("h3", "Versions"),
        table(["package", "version"], list(versions.items())),
        tag("h3", "Tables"),
        table(["table", "SHA-256"], list(run.record["tables"].items())) if run.record["tables"] else None,
        details(
            "Seeds, folds and files of the cache",
            table(["method", "seed", "fold", "prototypes", "embeddings", "model", "predictions"], files),
        ),
    )
