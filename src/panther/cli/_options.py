"""Options that several commands share: one word, one meaning, one sentence of help, one panel."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

LARGEST_SEED = 2**32 - 1  # as panther.limits has it, without importing anything

# panels of options, in the help of a command
SLIDES, OUTCOME, METHOD = "Slides and tables", "Outcome", "Method"
ENCODER, PICTURES, RUNNING = "Encoder", "Pictures", "Running"


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
        help="Clinical table (CSV, TSV, parquet) with slide_id and case_id, or a folder of split tables.",
        rich_help_panel=SLIDES,
    ),
]
GivenTableOption = Annotated[
    Path, typer.Option("--table", help="Clinical table (CSV, TSV, parquet).", show_default=False)
]
SplitOption = Annotated[str | None, typer.Option(help="Part of the table to use, e.g. train.", rich_help_panel=SLIDES)]
LevelOption = Annotated[
    Level, typer.Option(help="One row per slide, or per patient, whose slides the table tells.", rich_help_panel=SLIDES)
]
SiteColumnOption = Annotated[
    str | None,
    typer.Option("--site-column", help="Column of the site; TCGA barcodes tell it too.", rich_help_panel=SLIDES),
]
EncoderNameOption = Annotated[
    str | None,
    typer.Option(
        help="Encoder of the features, where the files name another or none.",
        show_default=False,
        rich_help_panel=SLIDES,
    ),
]
MixedOption = Annotated[
    bool,
    typer.Option(
        "--allow-mixed-resolution",
        help="Take patches of other resolutions, which are refused.",
        rich_help_panel=SLIDES,
    ),
]
SlidesOption = Annotated[
    Path | None,
    typer.Option(help="Slide images: a file, or a folder whose images are matched by name.", rich_help_panel=SLIDES),
]
SlideMppOption = Annotated[
    float | None,
    typer.Option(
        help="True resolution of the slides at level 0, um/px, where files tell none or a wrong one.",
        show_default=False,
        rich_help_panel=SLIDES,
    ),
]
SlideMppTableOption = Annotated[
    Path | None,
    typer.Option("--slide-mpp-table", help="The same per slide: a CSV with columns wsi,mpp.", rich_help_panel=SLIDES),
]

# outcome
LabelOption = Annotated[str | None, typer.Option(help="Column of the label.", rich_help_panel=OUTCOME)]
SurvivalOption = Annotated[str | None, typer.Option(help="Endpoint: os, dss, dfi or pfi.", rich_help_panel=OUTCOME)]
TimeOption = Annotated[
    str | None, typer.Option(help="Column with the time, where it has another name.", rich_help_panel=OUTCOME)
]
EventOption = Annotated[
    str | None, typer.Option(help="Column that is 1 where the event happened.", rich_help_panel=OUTCOME)
]
CensorshipOption = Annotated[
    str | None, typer.Option(help="Column that is 1 where the patient is censored.", rich_help_panel=OUTCOME)
]

# method: how patches are assigned to prototypes
MethodOption = Annotated[str, typer.Option(help="panther, ot, h2t or protocounts.", rich_help_panel=METHOD)]
PresetOption = Annotated[
    str | None,
    typer.Option(help="panther: paper (default), published-code or calibrated.", rich_help_panel=METHOD),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "-s",
        "--set",
        help="Any setting of the method as name=value, e.g. steps=3, tau=1, epsilon=0.05; repeatable.",
        rich_help_panel=METHOD,
    ),
]
NormaliseOption = Annotated[
    bool, typer.Option("--normalise", help="L2-normalise features first.", rich_help_panel=METHOD)
]
RangeOption = Annotated[
    str, typer.Option("--range", help="Smallest and largest number of prototypes to try.", rich_help_panel=METHOD)
]

# encoder
EncoderOption = Annotated[
    str | None,
    typer.Option(help="Name of `panther encoders`, timm:NAME or module.path:factory.", rich_help_panel=ENCODER),
]
WeightsOption = Annotated[
    Path | None, typer.Option(help="File of weights (.safetensors, .pth, .bin).", rich_help_panel=ENCODER)
]
PrecisionOption = Annotated[
    str, typer.Option(help="auto (bfloat16 on a GPU), float32, bfloat16 or float16.", rich_help_panel=ENCODER)
]
BatchOption = Annotated[int, typer.Option(help="Patches per batch; 0: what suits the device.", rich_help_panel=ENCODER)]
FeatureDtypeOption = Annotated[
    str,
    typer.Option("--dtype", help="Type of the features in the file: float16 or float32.", rich_help_panel=ENCODER),
]

# pictures
NamesOption = Annotated[
    Path | None,
    typer.Option(help="Names of prototypes: YAML (C2: tumour) or CSV (C2,tumour).", rich_help_panel=PICTURES),
]
MaxSideOption = Annotated[
    int, typer.Option(min=64, max=16384, help="Longest side of a picture, pixels.", rich_help_panel=PICTURES)
]
BackgroundOption = Annotated[
    str,
    typer.Option(
        help="What is behind the colours: grey tissue, on which they keep their look; the slide's colour; or none.",
        rich_help_panel=PICTURES,
    ),
]
OpacityOption = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=1,
        help="1 hides the tissue; by default as much is seen as leaves every colour its own.",
        show_default=False,
        rich_help_panel=PICTURES,
    ),
]

# running
WorkersOption = Annotated[
    int,
    typer.Option(
        "-j", "--workers", help="Worker processes, one thread each; 0: one per core.", rich_help_panel=RUNNING
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        help="Address of a Dask scheduler (tcp://HOST:PORT) to work on more than one machine.", rich_help_panel=RUNNING
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option(help="Where to compute: auto (a GPU if there is one), cpu, cuda, cuda:1 ...", rich_help_panel=RUNNING),
]
