"""A folder of prototypes to share, as the Hugging Face hub lays out models: card, configuration, weights, pictures."""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from panther.charts.prototypes import relation, shares
from panther.charts.style import save
from panther.errors import InputError
from panther.explain.names import Naming, colours, entry, titles
from panther.storage.files import write_json, write_text
from panther.storage.hub import CARD, CONFIG, MODEL
from panther.storage.prototypes import save_prototypes
from panther.types import Prototypes

NAMES = "names.yaml"
SHARES, SIMILARITY = "shares.png", "similarity.png"
MONTAGES = re.compile(r"(overview|C\d+)\.png")  # of an atlas


def check_shared_folder(folder: Path) -> None:
    """Refuse a folder with a card, configuration or weights of something else."""
    files = [name for name in (CARD, CONFIG, MODEL) if (folder / name).exists()]
    try:
        is_ours = not files or '"panther-wsi"' in (folder / CONFIG).read_text(encoding="utf-8")
    except (OSError, ValueError):
        is_ours = False
    if not is_ours:
        raise InputError(
            f"output: found {folder} with another {files[0]}, expected a new folder or one of `panther share`"
        )


def write_shared(
    prototypes: Prototypes,
    folder: Path,
    *,
    title: str,
    licence: str = "",
    cohort: str = "",
    namings: Mapping[int, Naming],
    atlas: Path | None = None,
) -> list[Path]:
    """Write the folder; names of slides, which may identify patients, are left out."""
    montages = [] if atlas is None else sorted(p for p in atlas.glob("*.png") if MONTAGES.fullmatch(p.name))
    if atlas is not None and not montages:
        raise InputError(f"{atlas}: found no pictures, expected a folder of `panther atlas`")
    names = titles(namings, len(prototypes))
    diagnostics = {**prototypes.diagnostics, "dominated_slides": {}}
    save_prototypes(replace(prototypes, slides=(), diagnostics=diagnostics), folder / MODEL)
    for path in folder.iterdir():  # of an earlier run, whose pictures and names would be uploaded too
        if path.name in (NAMES, SHARES, SIMILARITY) or MONTAGES.fullmatch(path.name):
            path.unlink()
    pictures: dict[str, str] = {}
    if prototypes.occupancy is not None:
        share = (prototypes.occupancy / prototypes.occupancy.sum()).tolist()
        pictures[SHARES] = "Share of the training patches"
        chart = shares(names, share, colours(namings, len(prototypes)), pictures[SHARES])
        save(chart.figure(), folder / SHARES)
    centroids = prototypes.centroids.double()
    centred = torch.nn.functional.normalize(centroids - centroids.mean(0), dim=-1)
    pictures[SIMILARITY] = "Cosine between prototypes, about their mean"
    save(relation("similarity", names, (centred @ centred.T).numpy()).figure(), folder / SIMILARITY)
    for path in montages:
        pictures[path.name] = "Patches of every prototype" if path.stem == "overview" else f"Patches of {path.stem}"
        shutil.copyfile(path, folder / path.name)
    if namings:
        lines = [f"C{c}: {entry(namings[c])}" for c in sorted(namings)]
        write_text(folder / NAMES, "\n".join(lines) + "\n")
    config = {
        "library": "panther-wsi",
        "version": prototypes.version,
        "n_prototypes": len(prototypes),
        "dim": prototypes.dim,
        "encoder": prototypes.encoder,
        "encoder_checkpoint": prototypes.settings.get("checkpoint"),
        "patches": prototypes.spec.known(),
        "normalise": prototypes.projection.normalise,
        "pca": None if prototypes.projection.basis is None else prototypes.dim,
        "cohort": cohort or None,
        "licence": licence or None,
        "training_slides": len(prototypes.slides),
        "training_patches": prototypes.settings.get("patches"),
        "hash": prototypes.content_hash(),
        "names": {f"C{c}": naming.name for c, naming in sorted(namings.items()) if naming.name},
    }
    write_json(folder / CONFIG, config)
    write_text(folder / CARD, card(config, title, pictures, list(diagnostics.get("warnings", ()))))
    return [folder / name for name in (CARD, CONFIG, MODEL, *pictures)]


def card(config: Mapping[str, Any], title: str, pictures: Mapping[str, str], warnings: Sequence[str]) -> str:
    """Text of README.md: a YAML head that the hub reads, facts, pictures, use."""
    head = {"library_name": "panther-wsi", "tags": ["pathology", "prototypes", "whole-slide-images", "panther"]}
    head |= {"license": config["licence"].lower()} if config["licence"] else {}
    spec = config["patches"]
    size = f"{spec['size']} px at {spec['mpp']:g} um/px" if spec.get("size") and spec.get("mpp") else "unknown"
    projection = f"PCA to {config['pca']}" if config["pca"] else "none"
    facts = {
        "prototypes": f"{config['n_prototypes']} of {config['dim']} dimensions",
        "encoder": config["encoder"] or "not named",
        "digest of its weights and transform": config["encoder_checkpoint"] or "not recorded in the features",
        "patches": size,
        "projection": projection + (", L2-normalised" if config["normalise"] else ""),
        "cohort": config["cohort"] or "not described",
        "training": f"{config['training_slides']:,} slides, {config['training_patches'] or 0:,} patches",
        "licence": config["licence"] or "not stated",
    }
    lines = ["---", *(f"{key}: {json.dumps(value)}" for key, value in head.items()), "---", f"# {title}", ""]
    lines += ["Prototypes for slide embeddings (PANTHER, CVPR 2024). Research only.", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {str(value).replace('|', '/')} |" for name, value in facts.items()]
    if config["names"]:
        lines += ["", "## Names", "", *(f"- {c}: {name}" for c, name in config["names"].items())]
    lines += ["", "## Diagnostics", "", *(f"- {text}" for text in warnings or ["No warning."])]
    for name, text in pictures.items():
        lines += ["", f"![{text}]({name})"]
    lines += ["", "## Use", "", "    panther embed features/ -p THIS_FOLDER_OR_ORG/NAME -o slides.h5ad", ""]
    return "\n".join(lines)
