"""What would fill the tabs that are missing: a command to type, with the names of this run."""

from panther.report.html import Html, join, tag
from panther.report.material import Material

WHAT = {
    "Prototypes": "What each prototype looks like, how much of it there is, and in whom:",
    "Maps": "Where each prototype lies on a slide:",
    "Tissue classes": "Whether prototypes agree with tissue classes that people named:",
    "Attribution": "Which prototypes drive the prediction:",
    "Mixtures": "How much of each prototype every sample has (the cache of the run is gone, or no method keeps it):",
    "Curves": "Curves of training and risk (the cache of the run is gone):",
}


def hints(material: Material, absent: list[str]) -> list[object]:
    """One line a tab that has nothing to show."""
    commands = _commands(material)
    return [join(WHAT[name], " ", tag("code", commands[name])) for name in absent if name in WHAT]


def _commands(material: Material) -> dict[str, Html | str]:
    run = material.run
    features = next(iter(run.study.features.values()))
    file = "protos.safetensors" if material.mixtures is None else f"{run.folder.name}/cache/{material.mixtures.file}"
    table = f" --table {run.study.table}" if run.study.table else ""
    group = f" --group {run.study.task.label}" if run.study.task.label else ""
    again = f"panther run study.yaml -o {run.folder.name}/"
    return {
        "Prototypes": f"panther atlas {features} -p {file} -o atlas/ --slides SLIDES{table}{group}, then --atlas atlas/",
        "Maps": f"panther map {features} -p {file} -o maps/ --slides SLIDES, then --maps maps/",
        "Tissue classes": f"panther concordance {features} -p {file} --classifier tissue.safetensors -o agreement/, then --agreement agreement/",
        "Attribution": f"panther attribute MODEL {features} -o attribution/, then --attribution attribution/",
        "Mixtures": again,
        "Curves": again,
    }
