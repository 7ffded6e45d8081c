"""Tab: everything that is needed to get the same numbers again."""

import yaml

from panther.report.html import DASH, Html, details, join, paragraph, table, tag
from panther.report.material import Material


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
