"""The two steps that need no network: tissue, then patches."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, PngImagePlugin

from panther.content import hash_of
from panther.errors import InputError
from panther.slides.coords import Coords, folder_name, read_coords, write_coords
from panther.slides.geojson import Contours, read_contours, write_contours
from panther.slides.job import Job
from panther.slides.listing import SlideRef
from panther.slides.overlay import draw_contours
from panther.slides.patches import EDGES, MIN_TISSUE, lay, patch_spec
from panther.slides.slide import Slide
from panther.slides.tissue import segment
from panther.slides.tissue_settings import TissueSettings
from panther.storage.atomic import atomic_write

THUMBNAIL = 1024  # pixels, the longer side
TOLD = 0.001  # of the tissue: less of it without a patch at the edges is not worth a note
METHOD = 1  # raise it when the same settings give other results


@dataclass(frozen=True)
class TissueStep:
    """Finds tissue and draws it. A GeoJSON that the user has edited or put there is kept and drawn."""

    settings: TissueSettings = field(default_factory=TissueSettings)
    name: str = "tissue"

    def done(self, slide: SlideRef, job: Job) -> bool:
        """Whether the contours are the user's or made with these settings, and the picture shows them."""
        contours = contours_of(slide, job)
        if contours is None:
            return False
        current = contours.edited or contours.about.get("key") == self._key(slide)
        return current and _drawn(job, slide) == contours.digest

    def run(self, slide: SlideRef, job: Job) -> None:
        """Contours first, the pictures after them."""
        with slide.open() as image:
            contours, small = contours_of(slide, job), None
            if contours is None or not (contours.edited or contours.about.get("key") == self._key(slide)):
                tissue, seen = segment(image, self.settings)
                small = seen.image
                about = {
                    "key": self._key(slide),
                    **_resolution(image),
                    "tissue_um2": round(tissue.area * image.mpp**2, 1),
                    "settings": asdict(self.settings),
                    "unread": float(seen.unread.mean()),  # part of the slide
                }
                write_contours(job.geojson(slide.name), tissue, about)
                contours = contours_of(slide, job)
                assert contours is not None
            _draw(job, slide, _picture(image, small), contours, image.dimensions)

    def about(self, slide: SlideRef, job: Job) -> Mapping[str, Any]:
        """Resolution and area of the tissue."""
        contours = contours_of(slide, job)
        if contours is None:
            return {}
        if contours.edited:
            return {"tissue": "edited"}
        known = contours.about
        unread = known.get("unread", 0.0)
        lost = f"{unread:.2%} of the slide could not be decoded and counts as glass" if unread else ""
        return {
            "tissue": self.settings.words,
            "tissue_mm2": round(known["tissue_um2"] / 1e6, 4),
            "unread": round(unread, 6),
            **{key: known[key] for key in ("mpp", "mpp_source")},
            "note": "; ".join(filter(None, (known["note"], lost))),
        }

    def _key(self, slide: SlideRef) -> str:
        return hash_of([METHOD, asdict(self.settings), slide.mpp, _bytes(slide)])


@dataclass(frozen=True)
class PatchStep:
    """Lays a grid over the tissue."""

    size: int = 256
    mpp: float = 0.5
    overlap: int = 0
    min_tissue: float = MIN_TISSUE
    edge: str = EDGES[0]
    name: str = "patches"

    @property
    def folder(self) -> str:
        """Name of this set of patches inside the job folder."""
        return folder_name(self.size, self.mpp, self.overlap)

    def path(self, slide: SlideRef, job: Job) -> Path:
        """Coordinates of that slide."""
        return job.coords(slide.name, self.folder)

    def done(self, slide: SlideRef, job: Job) -> bool:
        """Whether the coordinates were made from the contours that are there now, with these settings."""
        with suppress(InputError):
            contours = contours_of(slide, job)
            if contours is not None and self.path(slide, job).exists():
                return read_coords(self.path(slide, job)).about.get("key") == self._key(slide, contours)
        return False

    def run(self, slide: SlideRef, job: Job) -> None:
        """Write TRIDENT's file; a slide without tissue gets one with no rows."""
        contours = contours_of(slide, job)
        if contours is None:
            raise InputError(f"{slide.name}: there are no contours of its tissue; run the step tissue first.")
        with slide.open() as image:
            spec = patch_spec(image, self.size, self.mpp, self.overlap)
            laid = lay(image, spec, contours.tissue, self.min_tissue, self.edge)
            about = {
                "key": self._key(slide, contours),
                "tissue": contours.digest,
                "min_tissue": self.min_tissue,
                "edge": self.edge,
                "edge_um": [round(pixels * image.mpp, 1) for pixels in laid.strips],
                "edge_lost": laid.lost,
                **_resolution(image),
            }
            about.pop("mpp")  # the slide's; stored as level0_mpp, unrounded
            value = Coords(slide.name, laid.coords, spec, image.mpp, image.dimensions, about)
        write_coords(self.path(slide, job), value, f"{self.folder}/patches")

    def about(self, slide: SlideRef, job: Job) -> Mapping[str, Any]:
        """Number of patches, and the resolution."""
        value = read_coords(self.path(slide, job))
        notes = [value.about.get("note", ""), _left_over(value.about)]
        if not len(value.coords):
            notes.append("no patch has enough tissue")
        return {
            "mpp": value.mpp,
            "mpp_source": value.about.get("mpp_source", ""),
            "patches": len(value.coords),
            "edge_lost": round(value.about.get("edge_lost", 0.0), 6),
            "note": "; ".join(filter(None, notes)),
        }

    def _key(self, slide: SlideRef, contours: Contours) -> str:
        padded = () if self.edge == EDGES[0] else (self.edge,)  # jobs from before there was a choice are still done
        settings = (self.size, self.mpp, self.overlap, self.min_tissue, *padded)
        return hash_of([METHOD, settings, contours.digest, slide.mpp, _bytes(slide)])


def contours_of(slide: SlideRef, job: Job) -> Contours | None:
    """Contours of a slide: `SLIDE.geojson`, or, before it, one named after the whole file name, `SLIDE.svs.geojson`."""
    own = job.geojson(slide.name)
    for path in (own.with_name(f"{slide.path.name}.geojson"), own):
        if path.exists():
            return read_contours(path)
    return None


def _left_over(about: Mapping[str, Any]) -> str:
    """Sentence about tissue at the edges that no patch covers; none where it is next to nothing."""
    if about.get("edge_lost", 0.0) < TOLD:
        return ""
    right, bottom = about["edge_um"]
    what = "`edge=pad` gives them patches" if about["edge"] == EDGES[0] else "too little for `min_tissue=`"
    return (
        f"{about['edge_lost']:.1%} of the tissue lies in strips at the right ({right:.0f} um) and bottom ({bottom:.0f} um) edge "
        f"that no patch covers ({what})"
    )


def _resolution(image: Slide) -> dict[str, Any]:
    return {"mpp": image.mpp, "mpp_source": image.resolution.source, "note": image.resolution.note}


def _picture(image: Slide, small: np.ndarray | None) -> np.ndarray:
    """Thumbnail; made from the image of the segmentation where that is large enough, so that the slide is read once."""
    if small is None or max(small.shape[:2]) < THUMBNAIL:
        return image.thumbnail(THUMBNAIL)
    scale = THUMBNAIL / max(small.shape[:2])
    size = (max(1, round(small.shape[1] * scale)), max(1, round(small.shape[0] * scale)))
    return np.asarray(Image.fromarray(small).resize(size, Image.Resampling.BOX))


def _draw(job: Job, slide: SlideRef, picture: np.ndarray, contours: Contours, size: tuple[int, int]) -> None:
    scale = picture.shape[1] / size[0], picture.shape[0] / size[1]
    text = PngImagePlugin.PngInfo()
    text.add_text("contours", contours.digest)
    drawn = draw_contours(picture, contours.tissue, scale)
    for path, pixels, info in ((job.thumbnail(slide.name), picture, None), (job.overlay(slide.name), drawn, text)):
        with atomic_write(path) as temporary:
            # level 1: noise compresses badly however long one tries
            Image.fromarray(pixels).save(temporary, format="png", pnginfo=info, compress_level=1)


def _drawn(job: Job, slide: SlideRef) -> str | None:
    """Hash of the contours that the picture shows."""
    if not job.thumbnail(slide.name).exists():
        return None
    try:
        with Image.open(job.overlay(slide.name)) as picture:
            return str(picture.info.get("contours"))
    except OSError:
        return None


def _bytes(slide: SlideRef) -> int:
    """Size of the slide's files: a slide that was replaced is most often of another size. Hashing gigabytes would take longer than the work."""
    return sum(path.stat().st_size for path in slide.paths if path.exists())
