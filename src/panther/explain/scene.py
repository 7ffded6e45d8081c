"""One slide to explain: its files, the places of its patches, and their assignment to prototypes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from panther.aggregators.embed import run_on
from panther.aggregators.sharing import placed
from panther.errors import InputError, error_context, not_finite, too_large
from panther.explain.geometry import Grid, View, blank_view, grid
from panther.explain.names import Names, Naming, as_namings, plain_names
from panther.explain.palette import Paint
from panther.slides import Slide, list_slides, open_slide
from panther.slides.polygons import Polygon, read_contours
from panther.slides.readers.zarr import is_image
from panther.slides.slide import slide_name
from panther.statistics import compute_dtype, first_bad_row, squared_distances
from panther.statistics.upload import near
from panther.storage.names import DICOM, SUFFIXES, composed, decomposed, slide_of
from panther.storage.readers import is_store
from panther.types import Aggregator, Bag, Openable, Prototypes

Images = Path | str | Mapping[str, Path] | None  # one image, a folder of them, or images by the slides' names


@dataclass(frozen=True)
class MapSettings:
    """How patches are assigned to prototypes and how maps are drawn; the same for all slides.

    Parameters
    ----------
    method : str
        Aggregator that assigns patches: panther, ot, h2t or protocounts (the nearest prototype).
    options : mapping
        Its settings, as of `panther.build`.
    max_side : int
        Longest side of a picture, pixels.
    slide_mpp : float, optional
        True resolution of the images, um/px, where their tags are wrong.
    slide_mpp_table : mapping
        The same by file or slide name; has priority over ``slide_mpp``.
    paint : Paint
        Background of the colours.
    namings : mapping
        Names, notes, colours and groups of the prototypes (`Naming`) by their number; see :meth:`named`.
    device : str
        Device that assigns patches.
    """

    method: str = "panther"
    options: Mapping[str, Any] = field(default_factory=dict)
    max_side: int = 2048
    slide_mpp: float | None = None
    slide_mpp_table: Mapping[str, float] = field(default_factory=dict)
    paint: Paint = field(default_factory=Paint)
    namings: Mapping[int, Naming] = field(default_factory=dict)
    device: str = "cpu"

    @property
    def names(self) -> dict[int, str]:
        """Names of the prototypes by their number."""
        return plain_names(self.namings)

    def named(self, names: Names, count: int) -> "MapSettings":
        """Settings with the names of the ``count`` prototypes, from a file or a dictionary."""
        return self if names is None else replace(self, namings=as_namings(names, count))

    def resolution(self, image: Path, recorded: float | None = None) -> float | None:
        """Resolution that replaces an image's tags: the user's, else the recorded one of its features."""
        keys, table = map(composed, (str(image), image.name, slide_name(image))), self.slide_mpp_table
        return next((table[key] for key in keys if key in table), self.slide_mpp or recorded)


@dataclass(frozen=True)
class SlideJob:
    """One slide to explain: its features, its image and the outline of its tissue, if any."""

    ref: Openable
    image: Path | None = None
    contours: Path | None = None
    notes: tuple[str, ...] = ()  # files that are missing
    patient: str = ""

    @property
    def sample(self) -> str:
        """Name of the slide."""
        return self.ref.sample

    @property
    def files(self) -> tuple[Path, ...]:
        """Files that are read."""
        return (*self.ref.files, *(path for path in (self.image, self.contours) if path is not None))


def slide_jobs(refs: Sequence[Openable], slides: Images = None, contours: Path | None = None) -> list[SlideJob]:
    """Each slide with its image (of ``slides``) and its outline (of the file or folder ``contours``), by name."""
    images = find_images(slides, [ref.sample for ref in refs])
    jobs = []
    for ref in refs:
        image, slide, outline, notes = images.get(ref.sample), slide_of(ref.sample), contours, []
        if slides is not None and image is None:
            notes.append(f"{ref.sample}: no slide image of this name; the map is drawn on the coordinates.")
        elif image is not None and slide_name(image) not in (ref.sample, slide):
            notes.append(f"{ref.sample}: drawn on {image.name}, an image of another name.")
        if contours is not None and contours.is_dir():
            # QuPath exports under the whole file name; as in `panther slides` that one is tried first
            names = [*([image.name] if image else []), decomposed(slide), slide]
            files = [contours / f"{name}.geojson" for name in names]
            outline = next((file for file in files if file.is_file()), None)
            if outline is None:
                notes.append(f"{ref.sample}: no contours of this name ({files[-1]}); no outline is drawn.")
        jobs.append(SlideJob(ref, image, outline, tuple(notes)))
    return jobs


def find_images(slides: Images, names: Sequence[str]) -> Mapping[str, Path]:
    """Image of each slide, or of the slide of a piece: the only one, or those of a folder by their names."""
    if slides is None or isinstance(slides, Mapping):
        return slides or {}
    path = Path(slides)
    if not path.exists():
        raise InputError(f"{path}: no such slide image, or folder of them")
    if not is_slide(path):
        images = {ref.name: ref.path for ref in list_slides([path]).refs}
        return {name: images[slide_of(name)] for name in names if slide_of(name) in images} | images
    if len({*map(slide_of, names)}) > 1:
        raise InputError(f"{path}: one slide for {len(names)} feature files, expected a folder of images")
    return dict.fromkeys(names, path)


def tile_folders(folder: Images, names: Sequence[str]) -> dict[str, Path]:
    """Sub-folders of tile images by the name of their bag, as `panther slides` encodes them; empty for slides."""
    from panther.encoders.sources import TILE_SUFFIXES

    if not isinstance(folder, (str, Path)):
        return {}
    paths = {name: Path(folder) / name for name in names}
    return {
        name: path
        for name, path in paths.items()
        if path.is_dir() and any(file.suffix.lower() in TILE_SUFFIXES for file in path.iterdir())
    }


def is_slide(path: Path) -> bool:
    """Whether a path is one slide's image, by its ending; a folder is one where it holds DICOM files or an image of OME-Zarr."""
    if path.is_dir():
        return any(path.glob(f"*{DICOM}")) or (is_store(path) and is_image(path))
    return path.name.lower().endswith((*SUFFIXES, DICOM, ".png", ".jpg", ".jpeg", ".bmp"))


def read_box(slide: Slide, box: tuple[float, float, float, float], size: tuple[int, int]) -> np.ndarray:
    """Part of a slide (x, y, width, height at level 0) as a picture of ``size``, from the level that suits."""
    level = slide.best_level(box[2] / size[0])
    x, y, width, height = (length / slide.level_downsamples[level] for length in box)
    return slide.resampled(level, (x, y, x + width, y + height), size)


def refuse_nothing(done: Any, failures: Mapping[str, str], what: str) -> None:
    """Refuse a request where every slide failed."""
    if not done:
        reason = next(iter(failures.values()), "no file holds features")
        raise InputError(reason if len(failures) < 2 else f"none of the {len(failures)} slides {what}. {reason}")


class Scene(NamedTuple):
    """A bag's patches on their slide."""

    grid: Grid
    view: View
    outline: tuple[Polygon, ...]


def place(bag: Bag, settings: MapSettings, image: Path | None = None, contours: Path | None = None) -> Scene:
    """Places of a bag's patches on their slide, or without an image on the grid of their coordinates."""
    if image is None:
        cells = locate(bag)
        view = blank_view(cells, settings.max_side, bag.spec)
    else:
        with open_slide(image, settings.resolution(image, bag.spec.mpp_level0)) as slide:
            cells, picture = locate(bag, slide), slide.thumbnail(settings.max_side)
            width, height = slide.dimensions
            view = View(picture, (picture.shape[1] / width, picture.shape[0] / height), (0.0, 0.0), slide.mpp)
    if contours is None:
        return Scene(cells, view, ())
    if not contours.is_file():
        raise InputError(f"{contours}: no such file of contours")
    if bag.spec.coords_unit == "um" and image is None:
        raise InputError(f"{bag.source}: coordinates in um and contours in pixels, which requires `slides=`")
    tissue = read_contours(contours).tissue
    return Scene(cells, view, (*tissue.regions, *tissue.ignored))


def locate(bag: Bag, slide: Slide | None = None) -> Grid:
    """Cells of a bag's patches; on a slide they must lie inside of it."""
    check_patches(bag)
    if bag.places is None:
        raise InputError(f"{bag.source}: the file has no coordinates, expected `coords` (h5 of TRIDENT, CLAM, STAMP)")
    with error_context(bag.source):
        cells = grid(bag.places(), bag.spec, None if slide is None else slide.mpp)
    if slide is not None:
        # a padded patch may end beyond the slide, however far
        outside = (cells.corners + cells.pitch / 2 < 0).any(1) | (cells.corners >= np.array(slide.dimensions)).any(1)
        if outside.any():
            width, height = slide.dimensions
            raise InputError(
                f"{bag.source}: {int(outside.sum())} of {len(bag)} patches lie outside {slide.path.name} ({width} x {height} pixels), "
                "expected coordinates at level 0 of the slide that the features were made from"
            )
    return cells


class Assigned(NamedTuple):
    """Patches' shares of the prototypes, and the slide's."""

    assignment: Tensor  # (N, C), rows add up to 1
    weights: Tensor  # (C,), pi of the embedding where the method has one, else the mean of the rows


def assign(bag: Bag, module: Aggregator, device: str = "cpu") -> Assigned:
    """Assignment (N, C) of a prepared bag (`Prototypes.prepared`), in CPU memory; one without patches or with NaN is refused.

    PANTHER's is the posterior :math:`q(c|z_n)` of the embedding's parameters; a row of OT's plan is divided by its mass 1/N; H2T and
    ProtoCounts give ones and zeros (the nearest prototype).
    """
    check_patches(bag)
    moved = replace(bag, features=near(bag.features, device))
    embedding = run_on(moved, placed(module, torch.device(device)), with_assignment=True)
    rows = embedding.assignment
    # only methods with prototypes have a per-prototype view or masses
    if rows is None or "mass" not in embedding.aux:
        raise InputError(
            f"method: {type(module).__name__} assigns no patches, expected panther, ot, h2t or protocounts"
        )
    rows = (rows / rows.sum(-1, keepdim=True)).cpu()
    is_finite = bool(torch.isfinite(rows).all()) and bool(torch.isfinite(embedding.vector).all())
    is_hard = bool(((rows == 0) | (rows == 1)).all())  # counts lose NaN, so the features are checked
    if not is_finite or (is_hard and first_bad_row(bag.features) is not None):
        bad = first_bad_row(bag.features)
        raise too_large(bag.source) if bad is None else not_finite(bag.source, bad)
    weights = embedding.aux.get("weights")
    return Assigned(rows, rows.double().mean(0) if weights is None else weights.detach().cpu().double())


def check_patches(bag: Bag) -> None:
    """Refuse a bag without patches."""
    if len(bag) == 0:
        raise InputError(f"{bag.source}: zero patches")


def prototype_distances(bag: Bag, prototypes: Prototypes) -> Tensor:
    """Euclidean distance (N, C) of every patch of a prepared bag to every prototype.

    Posteriors cannot order members: in a thousand dimensions nearly all of them are 1.
    """
    x = bag.features
    centroids = prototypes.centroids.to(compute_dtype(x.dtype))
    return squared_distances(x, centroids, centroids.mean(0)).double().sqrt()


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances of the patches of one slide: a few numbers a patch, whatever the number of prototypes."""

    to_assigned: np.ndarray  # (N,), to the prototype that the patch belongs to
    nearest: np.ndarray  # (N,), the nearest prototype; most often the same
    to_nearest: np.ndarray  # (N,)


def distances(bag: Bag, prototypes: Prototypes, labels: np.ndarray) -> Distances:
    """Distances of the patches of a prepared bag, which belong to the prototypes ``labels`` (N,)."""
    distance = prototype_distances(bag, prototypes)
    least, nearest = distance.min(1)
    to_assigned = distance.gather(1, torch.from_numpy(labels)[:, None])[:, 0]
    return Distances(to_assigned.numpy(), nearest.numpy(), least.numpy())


def share_farther(distance: np.ndarray, labels: np.ndarray, patch: int) -> float | None:
    """Share of the other patches of the same prototype that lie farther from it: near 1 is typical; None where it is the only one."""
    others = labels == labels[patch]
    others[patch] = False
    return float((distance[others] > distance[patch]).mean()) if others.any() else None
