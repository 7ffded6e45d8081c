"""Parameters of requests: names, types and bounds, checked before use."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

LARGEST_PATCH = 1024  # pixels of a patch's picture
MOST_SIMILAR = 200  # patches of one search
Coordinate = Annotated[float, Field(ge=-1e8, le=1e8)]  # level-0 pixels: no slide is longer
Extent = Annotated[float, Field(gt=0, le=1e8)]
Side = Annotated[float, Field(gt=0, le=1e5)]  # of a patch
Pixels = Annotated[int, Field(ge=8, le=LARGEST_PATCH)]
Count = Annotated[int, Field(ge=1, le=MOST_SIMILAR)]


def _parts(text: Any) -> Any:
    return [part for part in text.split(",") if part] if isinstance(text, str) else text


def _number(text: Any) -> Any:
    return text.strip().removeprefix("C") if isinstance(text, str) else text


Prototype = Annotated[int, BeforeValidator(_number), Field(ge=0, lt=1_000_000)]  # C3 or 3
Parts = BeforeValidator(_parts)  # separated by commas
Style = Literal["fill", "light", "outline", "hatch"]


class Query(BaseModel):
    """Query of an address; empty parameters are left out."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)
    set: str | None = None  # of prototypes

    @classmethod
    def read(cls) -> Self:
        """Parameters of the present request."""
        from flask import request  # worker processes do without

        return cls.model_validate({name: text for name in cls.model_fields if (text := request.args.get(name))})


class Body(BaseModel):
    """JSON of a request that changes or compares something."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    set: str | None = None  # of prototypes

    @classmethod
    def read(cls) -> Self:
        """Content of the present request."""
        from flask import request

        return cls.model_validate(request.get_json(silent=True))


class LayerOptions(Query):
    """Parameters of an overlay; equal ones give equal tiles."""

    model: str | None = None
    prototype: Prototype = 0
    shown: Annotated[frozenset[Prototype] | None, Parts] = None  # prototypes or classes that are isolated; None: all
    low: float | None = None  # patches of smaller values are left out
    high: float | None = None
    scale: Literal["rank", "linear"] = "rank"  # of attention
    style: Style = "fill"  # of regions of one colour; "light" is an outline with a light fill
    output: str | None = None  # of the model

    def shown_range(self, limits: tuple[float, float]) -> tuple[float, float]:
        """Range of the values that are shown; by default the limits of the scale."""
        return limits[0] if self.low is None else self.low, limits[1] if self.high is None else self.high


class ViewQuery(Query):
    """A part of the canvas as a picture, by default all of it, with layers from bottom to top."""

    x: Coordinate = 0.0
    y: Coordinate = 0.0
    width: Extent | None = None
    height: Extent | None = None
    pixels: Annotated[int, Field(ge=64, le=4096)] = 1600
    ground: Literal["colour", "grey", "none"] = "colour"
    layer: Annotated[tuple[str, ...], Parts] = ()
    opacity: Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], Parts] = ()  # of each layer; 1 by default


class PictureQuery(Query):
    """Size of a patch's picture."""

    size: Pixels | None = None


class SquareQuery(PictureQuery):
    """Square of a patch, in pixels of level 0 or in micrometres."""

    x: Coordinate
    y: Coordinate
    side: Side
    unit: Literal["px", "um"] = "px"


class SimilarQuery(Query):
    """A search for similar patches."""

    where: Literal["slide", "cohort"] = "slide"
    k: Count = 12
    per_slide: Count | None = None


class PrototypeQuery(Query):
    """What is shown of one prototype."""

    column: str | None = None


class CohortQuery(Query):
    """Points of the cohort page."""

    level: Literal["slides", "patients"] = "slides"
    plane: str = ""
    colour: str | None = None


class StudyQuery(Query):
    """A study and what is shown of it."""

    study: str | None = None
    part: str | None = None
    metric: str | None = None


class Groups(Body):
    """Two groups to compare."""

    level: Literal["slides", "patients"] = "slides"
    a: Annotated[list[str], Field(min_length=1)]
    b: Annotated[list[str], Field(min_length=1)]


class AnnotationChange(Body):
    """An annotation as it shall be, relative to the time of the one that the page shows; without a geometry it is deleted."""

    id: Annotated[str, Field(pattern=r"^[0-9A-Za-z-]{1,64}$")]
    seen: Annotated[str, Field(max_length=40)] | None = None  # time of the annotation; None: a new one
    geometry: dict[str, Any] | None = None
    group: Annotated[str, Field(max_length=100)] = ""
    note: Annotated[str, Field(max_length=2000)] = ""
    author: Annotated[str, Field(max_length=100)] = ""


class MarkChange(Body):
    """A slide was seen, or is flagged or not."""

    seen: bool | None = None
    flag: bool | None = None


class AnnotationImport(Body):
    """Features of a GeoJSON."""

    features: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=5000)]


class NameChange(Body):
    """Changed fields of one prototype, and the values of these fields that the page shows."""

    seen: dict[str, str]
    prototype: int
    name: Annotated[str, Field(max_length=200)] | None = None
    note: Annotated[str, Field(max_length=2000)] | None = None
    colour: str | None = None
    group: Annotated[str, Field(max_length=100)] | None = None
