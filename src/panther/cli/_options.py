"""Options that several commands share: one word, one meaning, one sentence of help, one panel."""

import inspect
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from typer.models import OptionInfo, ParameterInfo

LARGEST_SEED = 2**32 - 1  # as panther.errors has it, without importing anything


class Level(StrEnum):
    """What one row stands for."""

    slide = "slide"
    patient = "patient"


# input and output
FeaturesArgument = Annotated[
    Path, typer.Argument(help="Feature file, or folder of them (searched in depth).", show_default=False)
]
ModelArgument = Annotated[Path, typer.Argument(metavar="MODEL", help="File of `panther train`.", show_default=False)]
OutputOption = Annotated[Path, typer.Option("-o", "--output", help="File to write.", show_default=False)]
FolderOption = Annotated[Path, typer.Option("-o", "--output", help="Folder to write to.", show_default=False)]
PrototypesOption = Annotated[Path, typer.Option("-p", "--prototypes", help="Prototype file.", show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
PlotOption = Annotated[Path | None, typer.Option("--plot", help="Picture to write (.png, .svg or .pdf).")]
SeedOption = Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Same seed and input: same result.")]

# slides and tables
TableOption = Annotated[
    Path | None,
    typer.Option(
        help="Clinical table (CSV, TSV, parquet) with slide_id and case_id, or a folder of split tables (one fold)."
    ),
]
GivenTableOption = Annotated[
    Path, typer.Option("--table", help="Clinical table (CSV, TSV, parquet).", show_default=False)
]
SplitOption = Annotated[str | None, typer.Option(help="Part of the table to use, e.g. train.")]
LevelOption = Annotated[Level, typer.Option(help="One row per slide, or per patient, whose slides the table tells.")]
EncoderNameOption = Annotated[
    str | None, typer.Option(help="Encoder of the features, where the files name another or none.", show_default=False)
]
MixedOption = Annotated[
    bool, typer.Option("--allow-mixed-resolution", help="Take patches of other resolutions, which are refused.")
]
SlidesOption = Annotated[
    Path | None, typer.Option(help="Slide images: a file, or a folder whose images are matched by name.")
]
SlideMppOption = Annotated[
    float | None,
    typer.Option(
        help="True resolution of all slides at level 0, um/px, whatever their files say.",
        show_default=False,
    ),
]
SlideMppTableOption = Annotated[Path | None, typer.Option(help="The same per slide: a CSV with columns wsi,mpp.")]
SlideColumnOption = Annotated[str | None, typer.Option("--slide-column", help="Column of the slide.")]
PatientColumnOption = Annotated[str | None, typer.Option("--patient-column", help="Column of the patient.")]
SiteColumnOption = Annotated[
    str | None, typer.Option("--site-column", help="Column of the site; TCGA barcodes tell it too.")
]
LeaveSiteOutOption = Annotated[
    bool,
    typer.Option(
        "--leave-site-out", help="Compare with slides of other sites only: stain and scanner make slides alike."
    ),
]

# outcome
LabelOption = Annotated[str | None, typer.Option(help="Column of the label.")]
SurvivalOption = Annotated[str | None, typer.Option(help="Endpoint: os, dss, dfi or pfi.")]
TimeOption = Annotated[str | None, typer.Option(help="Column with the time, where it has another name.")]
EventOption = Annotated[str | None, typer.Option(help="Column that is 1 where the event happened.")]
CensorshipOption = Annotated[str | None, typer.Option(help="Column that is 1 where the patient is censored.")]

# method: how patches are assigned to prototypes
MethodOption = Annotated[str, typer.Option(help="panther, ot, h2t or protocounts.")]
PresetOption = Annotated[str | None, typer.Option(help="panther: paper (default), published-code or calibrated.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "-s", "--set", help="Any setting of the method as name=value, e.g. steps=3, tau=1, epsilon=0.05; repeatable."
    ),
]
OnOption = Annotated[
    str | None,
    typer.Option(
        help="What is compared: pi (proportions, the default where there are any), mixture (proportions, means and variances), "
        "cosine or euclidean (vectors of any kind)."
    ),
]

# encoder
EncoderOption = Annotated[
    str | None, typer.Option(help="Name of `panther encoders`, timm:NAME or module.path:factory.")
]
WeightsOption = Annotated[Path | None, typer.Option(help="File of weights (.safetensors, .pth, .bin).")]
PrecisionOption = Annotated[str, typer.Option(help="auto (bfloat16 on a GPU), float32, bfloat16 or float16.")]
BatchOption = Annotated[int, typer.Option(help="Patches per batch; 0: what suits the device.")]
FeatureDtypeOption = Annotated[
    str, typer.Option("--dtype", help="Type of the features in the file: float16 or float32.")
]

# pictures
NamesOption = Annotated[Path | None, typer.Option(help="Names of prototypes: YAML (C2: tumour) or CSV (C2,tumour).")]
MaxSideOption = Annotated[int, typer.Option(min=64, max=16384, help="Longest side of a picture, pixels.")]
BackgroundOption = Annotated[
    str,
    typer.Option(
        help="What is behind the colours: grey tissue, on which they keep their look; the slide's colour; or none."
    ),
]
OpacityOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="1 hides the tissue; by default as much is seen as leaves every colour its own.",
        show_default=False,
    ),
]
ValueOption = Annotated[str | None, typer.Option(help="Column of numbers to predict.")]
LabelsOption = Annotated[
    str | None,
    typer.Option(help="Columns of several labels at once, A,B,C, each 0 or 1 and empty where it is not known."),
]

# running
WorkersOption = Annotated[
    str,
    typer.Option(
        "-j",
        "--workers",
        metavar="N|ADDRESS",
        help="Worker processes, one thread each, 0: one per core; or Dask workers, tcp://HOST:PORT or slurm:OPTIONS.yaml.",
    ),
]
ProcessesOption = Annotated[
    int, typer.Option("-j", "--workers", min=0, metavar="N", help="Worker processes, one thread each; 0: one per core.")
]
PartOption = Annotated[str, typer.Option(help="Part k/n of the slides (1/8 to 8/8), for the tasks of a job array.")]
DeviceOption = Annotated[
    str, typer.Option(help="Where to compute: auto (a GPU if there is one), cpu, cuda, cuda:1 ...")
]

# panels in the help of a command -> parameters of the commands' functions
PANELS = {
    "Slides and tables": (
        *("features", "slides", "contours", "table", "split", "level", "groups", "encoder_name", "mixed"),
        *("slide_column", "patient_column", "site_column", "site", "patient", "slide_mpp", "slide_mpp_table"),
        *("same_patient", "leave_site_out"),
    ),
    "Outcome": ("label", "classes", "survival", "time", "event", "censorship", "value", "labels"),
    "Patches": ("mpp", "mag", "patch_size", "overlap", "min_tissue", "edge"),
    "Prototypes": (
        *("n_prototypes", "numbers", "sample", "share", "restarts", "passes", "normalise", "pca", "memory"),
        "centre",
    ),
    "Method": (
        *("tissue", "method", "preset", "readout", "blocks", "setting", "assignment"),
        *("head", "loss", "epochs", "kind", "pairs", "on"),
    ),
    "Folds": ("k", "shares", "val", "seconds"),
    "Encoder": ("encoder", "weights", "precision", "batch"),
    "Pictures": (
        *("names", "max_side", "background", "opacity", "formats", "prototype", "attention", "region"),
        *("exemplars", "plot"),
    ),
    "Running": ("workers", "part", "device", "steps", "cache", "cache_size", "dry_run", "seed"),
}


def declarations(app: typer.Typer) -> Iterator[tuple[str, str, ParameterInfo]]:
    """Every option and argument: its command's function, its parameter, and what typer is told of it."""
    for command in app.registered_commands:
        assert command.callback is not None
        for name, parameter in inspect.signature(command.callback).parameters.items():
            for info in getattr(parameter.annotation, "__metadata__", ()):
                if isinstance(info, ParameterInfo):
                    yield command.callback.__name__, name, info
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from declarations(group.typer_instance)


def add_panels(app: typer.Typer) -> None:
    """Put options that belong together into one panel of the help; the others stay among the options."""
    panels = {name: panel for panel, names in PANELS.items() for name in names}
    for _, name, info in declarations(app):
        if isinstance(info, OptionInfo):
            info.rich_help_panel = panels.get(name)
