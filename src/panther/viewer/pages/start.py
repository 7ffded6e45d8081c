"""Route of the start page: what the job is, what was done and failed, and what to do next."""

from collections.abc import Iterator
from typing import Any

from flask import Blueprint

from panther.errors import InputError
from panther.report.data import load_run, metric_name
from panther.storage.names import Job, read_summary
from panther.store import version_of
from panther.study.results import RECORD
from panther.viewer.annotations import read_marks
from panther.viewer.contents import Contents
from panther.viewer.workbench import LruCache, Workbench

MOST = 20  # failures that are listed


def start_routes(bench: Workbench) -> Blueprint:
    """Routes."""
    routes = Blueprint("start", __name__)
    studies: LruCache[dict[str, Any]] = LruCache(8)

    def study(name: str) -> dict[str, Any]:
        folder = bench.contents.studies[name]

        def load() -> dict[str, Any]:
            run = load_run(folder)
            best = {str(key): value for row in run.best().head(1).to_dict("records") for key, value in row.items()}
            columns = {"best": "row", "mean": "mean", "low": "ci_low", "high": "ci_high"}
            about = {"name": name, "metric": metric_name(run.metric), "failed": len(run.record["failures"])}
            return about | {key: best.get(column) for key, column in columns.items()}

        try:
            return studies.get(name, load, version_of([folder / RECORD]))
        except (InputError, OSError) as error:
            return {"name": name, "problem": str(error)}

    @routes.get("/api/start")
    def start() -> dict[str, Any]:
        contents = bench.contents
        failures = list(failed_slides(contents))
        unnamed = []
        if contents.prototypes:
            rows = bench.names().state().namings
            unnamed = [c for c in range(len(bench.prototypes())) if c not in rows or not rows[c].name]
        results = [study(name) for name in contents.studies]
        marks = read_marks(bench).values()
        return {
            "facts": list(facts(bench)),
            "done": [{"step": step, "done": done} for step, done in steps(contents).items()],
            "failures": failures[:MOST],
            "failed": len(failures),
            "unnamed": unnamed,
            "studies": results,
            "seen": sum(mark["seen"] for mark in marks),
            "flagged": sum(mark["flag"] for mark in marks),
            "next": next_step(contents, unnamed),
        }

    return routes


def facts(bench: Workbench) -> Iterator[tuple[str, str]]:
    """Title and value of what the folder holds."""
    contents = bench.contents
    slides = contents.slides.values()
    images, features = (sum(getattr(slide, kind) is not None for slide in slides) for kind in ("image", "features"))
    yield "Slides", f"{len(slides):,}, {images:,} with an image, {features:,} with features"
    patients = {slide.patient for slide in slides if slide.patient}
    if patients:
        yield "Patients", f"{len(patients):,}"
    if contents.prototypes:
        prototypes = bench.prototypes()
        spec, encoder = prototypes.spec, prototypes.encoder
        yield "Prototypes", f"{len(prototypes)} ({next(iter(contents.prototypes))})"
        patch = f", patches of {spec.size} px at {spec.mpp:g} µm/px" if spec.size and spec.mpp else ""
        yield "Features", f"{encoder or 'unknown encoder'}{patch}"


def steps(contents: Contents) -> dict[str, bool]:
    """Steps of the method, and whether their results are here."""
    slides = contents.slides.values()
    return {
        "Tissue": any(slide.contours for slide in slides),
        "Features": any(slide.features for slide in slides),
        "Prototypes": bool(contents.prototypes),
        "Embeddings": contents.embeddings is not None,
        "Atlas": bool(contents.artefacts.get("atlas")),
        "Study": bool(contents.studies),
        "Models": bool(contents.models),
    }


def failed_slides(contents: Contents) -> Iterator[dict[str, str]]:
    """Slides that a job could not process, with the reason, and slides without features."""
    reported = set()
    for folder in dict.fromkeys(slide.contours.parent.parent for slide in contents.slides.values() if slide.contours):
        for row in read_summary(Job(folder)):
            if row.get("status") not in ("done", None, ""):
                reported.add(row["slide"])
                yield {"slide": row["slide"], "reason": row.get("reason") or str(row["status"])}
    has_features = any(slide.features for slide in contents.slides.values())
    for name, slide in contents.slides.items():
        if has_features and slide.features is None and name not in reported:
            yield {"slide": name, "reason": "no features"}


def next_step(contents: Contents, unnamed: list[int]) -> dict[str, str]:
    """The next thing to do: a page, or a command."""
    done = steps(contents)
    if not done["Features"]:
        return {"text": "Encode the slides.", "command": "panther slides SLIDES -o JOB --encoder NAME"}
    if not done["Prototypes"]:
        return {"text": "Fit prototypes.", "command": "panther prototypes FEATURES -C 16 -o prototypes.safetensors"}
    if unnamed:
        return {"text": f"Name the prototypes: {len(unnamed)} are unnamed.", "page": "prototypes"}
    if not done["Embeddings"]:
        return {
            "text": "Embed the slides.",
            "command": "panther embed FEATURES -p prototypes.safetensors -o slides.h5ad",
        }
    if not done["Study"]:
        return {"text": "Train and evaluate predictors.", "command": "panther run study.yaml -o RUN"}
    return {"text": "Look at the patients that were predicted worst.", "page": "study"}
