"""Parameters that several verbs share: one name, one meaning, one line of help, one panel."""

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter
from pydantic import BeforeValidator, Field

from panther.errors import InputError

_PANELS = ("Slides and tables", "Outcome", "Patches", "Prototypes", "Method", "Folds", "Encoder", "Pictures", "Running")
SLIDES, OUTCOME, PATCHES, PROTOTYPES, METHOD, FOLDS, ENCODER, PICTURES, RUNNING = (
    Group(name, sort_key=index) for index, name in enumerate(_PANELS, 10)
)


def split_names(value: Any) -> Any:
    """`A,B,C` as a list; lists as they are."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def as_list(value: Any) -> Any:
    """One value as a list of one."""
    return [value] if isinstance(value, (str, Path)) else value


def _numbers(kind: type, example: str) -> Callable[[str], Any]:
    """`4:64` as a tuple of as many numbers as the example has."""

    def convert(text: str) -> tuple[Any, ...]:
        try:
            values = tuple(map(kind, text.split(":")))
        except ValueError:
            values = ()
        if len(values) != len(example.split(":")):
            raise InputError(f"found {text!r}, expected numbers like {example}")
        return values

    return convert


def parse_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE as a dictionary of texts."""
    parsed = {}
    for pair in pairs:
        name, _, value = pair.partition("=")
        if not name or not value:
            raise InputError(f"found {pair!r}, expected NAME=VALUE")
        parsed[name] = value
    return parsed


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE as a dictionary: `steps=3` is a number, `normalise=false` a truth value, other words are text."""
    settings: dict[str, Any] = {}
    for name, value in parse_pairs(pairs).items():
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


def names_of(*sources: str) -> Callable[[Any], list[str]]:
    """Completion: the names in registries or mappings (module:name), imported when Tab is pressed."""

    def complete(_: Any) -> list[str]:
        names: list[str] = []
        for module, _, name in (source.partition(":") for source in sources):
            source = getattr(import_module(module), name)
            source = getattr(source, "names", source)
            names += source() if callable(source) else source
        return names

    return complete


def option(
    help: str | None = None,
    *,
    panel: Group | None = None,
    short: str | None = None,
    text: Callable[[str], Any] | None = None,
    **more: Any,
) -> Parameter:
    """How a parameter looks on the command line; its help is its entry in the docstring of the verb, or ``help``; ``text`` converts what is typed."""
    options: dict[str, Any] = {"help": help, "group": panel, "alias": short, **more}
    if text is not None:
        options |= {"converter": lambda _, tokens: text(tokens[0].value), "n_tokens": 1, "accepts_keys": False}
    return Parameter(**{name: value for name, value in options.items() if value is not None})


POSITIONAL = "positional"  # marks a parameter that the command takes without its name, though it may be left out

# generic forms of values
Names = Annotated[list[str] | None, BeforeValidator(split_names), option(text=split_names, metavar="A,B,C")]
Count = Annotated[int, Field(ge=1, strict=True)]
Seed = Annotated[
    int, Field(ge=0, le=2**32 - 1, strict=True), option("Same seed and input: same result.", panel=RUNNING)
]
Range = Annotated[
    tuple[int, int],
    option(
        "Smallest and largest number of prototypes to compare.",
        panel=PROTOTYPES,
        short="--range",
        text=_numbers(int, "4:64"),
        metavar="A:B",
    ),
]
Shares = Annotated[
    tuple[float, float, float],
    option("Shares of train, val and test.", panel=FOLDS, text=_numbers(float, "80:10:10"), metavar="TRAIN:VAL:TEST"),
]

# input and output; in Python also values in memory
Features = Annotated[Any, option("Feature file, or folder of them (searched in depth).", text=Path, metavar="FEATURES")]
PrototypesLike = Annotated[Any, option("Prototype file.", panel=PROTOTYPES, short="-p", text=Path, metavar="FILE")]
RequiredPrototypes = Annotated[
    Any, option("Prototype file.", panel=PROTOTYPES, short="-p", text=Path, required=True, metavar="FILE")
]
ModelLike = Annotated[Any, option("Model file of `panther train`.", text=Path, metavar="MODEL")]
TableLike = Annotated[
    Any,
    option(
        "Clinical table (CSV, TSV, parquet) with slide_id and case_id, or a folder of split tables (one fold).",
        panel=SLIDES,
        text=Path,
        metavar="FILE",
    ),
]
RequiredTable = Annotated[
    Any, option("Clinical table (CSV, TSV, parquet).", panel=SLIDES, text=Path, required=True, metavar="FILE")
]
Folder = Annotated[Any, option(text=Path, metavar="FOLDER")]
OutputFile = Annotated[Path | None, option("File to write.", short="-o", metavar="FILE")]
OutputFolder = Annotated[Path | None, option("Folder to write to.", short="-o", metavar="FOLDER")]
RequiredFile = Annotated[Path | None, option("File to write.", short="-o", required=True, metavar="FILE")]
RequiredFolder = Annotated[Path | None, option("Folder to write to.", short="-o", required=True, metavar="FOLDER")]
Plot = Annotated[Path | None, option("Picture to write (.png, .svg or .pdf).", panel=PICTURES, metavar="FILE")]

# slides and tables
Split = Annotated[str | None, option("Part of the table to use, e.g. train.", panel=SLIDES)]
Level = Annotated[
    Literal["slide", "patient"], option("One row per slide, or per patient as grouped by the table.", panel=SLIDES)
]
SlideColumn = Annotated[str | None, option("Column of the slide.", panel=SLIDES)]
PatientColumn = Annotated[str | None, option("Column of the patient.", panel=SLIDES)]
SiteColumn = Annotated[str | None, option("Column of the site; by default from TCGA barcodes.", panel=SLIDES)]
EncoderName = Annotated[str | None, option("Name of the encoder, if the files give none or a wrong one.", panel=SLIDES)]
MixedResolution = Annotated[bool, option("Accept patches of different resolutions.", panel=SLIDES)]
SlideImages = Annotated[
    Any, option("Slide images: a file, or a folder matched by name.", panel=SLIDES, text=Path, metavar="PATH")
]
SlideMpp = Annotated[
    float | None,
    Field(ge=0.05, le=5, allow_inf_nan=False),
    option("Resolution of all slides at level 0, um/px, instead of what their files say.", panel=SLIDES),
]
SlideMppTable = Annotated[Path | None, option("The same per slide: a CSV with columns wsi,mpp.", panel=SLIDES)]
LeaveSiteOut = Annotated[bool, option("Compare with slides of other sites only.", panel=SLIDES)]

# outcome
Label = Annotated[str | None, option("Column of the label.", panel=OUTCOME)]
Survival = Annotated[
    str | None,
    option(
        "Survival endpoint: os (overall), dss (disease-specific), dfi (disease-free interval) or pfi (progression-free interval).",
        panel=OUTCOME,
        completer=names_of("panther.cohort.outcomes:ENDPOINTS"),
    ),
]
Time = Annotated[str | None, option("Column with the follow-up time, if not the default name.", panel=OUTCOME)]
Event = Annotated[str | None, option("Column that is 1 where the event happened.", panel=OUTCOME)]
Censorship = Annotated[str | None, option("Column that is 1 where the patient is censored.", panel=OUTCOME)]
Value = Annotated[str | None, option("Column of numbers to predict.", panel=OUTCOME)]
Labels = Annotated[
    list[str] | None,
    BeforeValidator(split_names),
    option(
        "Columns of several labels, A,B,C: 0, 1 or empty where unknown.",
        panel=OUTCOME,
        text=split_names,
        metavar="A,B,C",
    ),
]

# method
Method = Annotated[
    str,
    option(
        "panther, ot, h2t, protocounts, deepsets; without prototypes mean, mean-std, max, top-k.",
        panel=METHOD,
        completer=names_of("panther.aggregators:aggregators"),
    ),
]
AssigningMethod = Annotated[
    Method, option("panther, ot, h2t or protocounts: how patches are assigned to prototypes.", panel=METHOD)
]
Preset = Annotated[
    str | None,
    option(
        "For the method panther: paper (default), published-code or calibrated.",
        panel=METHOD,
        completer=names_of("panther.mixture:PRESETS"),
    ),
]

Precision = Annotated[
    Literal["auto", "float32", "bfloat16", "float16", "float8"],
    option(
        "Type of the encoder's weights; auto: float16 on a GPU. float8: faster on recent GPUs, its agreement is measured.",
        panel=ENCODER,
    ),
]

# pictures
PrototypeNames = Annotated[
    Any,
    option("Names of prototypes: YAML, lines like C2: tumour.", panel=PICTURES, text=Path, metavar="FILE"),
]
MaxSide = Annotated[int, Field(ge=64, le=16384), option("Longest side of a picture, pixels.", panel=PICTURES)]
Background = Annotated[
    Literal["grey", "colour", "none"],
    option("What lies behind the colours: the tissue in grey or colour, or nothing.", panel=PICTURES),
]
Opacity = Annotated[
    float | None,
    Field(ge=0, le=1),
    option("1 hides the tissue; by default prototypes keep their colours.", panel=PICTURES),
]

# running
Workers = Annotated[
    int | str,
    option(
        "Worker processes (0: one per core), or Dask workers: tcp://HOST:PORT, slurm:OPTIONS.yaml. auto: this process for small work.",
        panel=RUNNING,
        short="-j",
        metavar="N|ADDRESS",
    ),
]
Part = Annotated[str, option("Part k/n of the slides (1/8 to 8/8), for the tasks of a job array.", panel=RUNNING)]
Device = Annotated[str, option("auto (a GPU if there is one), cpu, cuda, cuda:1 ...", panel=RUNNING)]
