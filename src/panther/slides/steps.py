"""The steps `tissue` and `patches` of a job, and the estimate of a job that is not run."""

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from PIL import Image, PngImagePlugin

from panther.errors import InputError, check_choice
from panther.slides.job import SlideFiles
from panther.slides.listing import SlideRef
from panther.slides.patches import EDGES, MIN_TISSUE, PatchGrid, PatchReader, patch_spec, tile_tissue
from panther.slides.polygons import Contours, Tissue, draw_contours, write_contours
from panther.slides.slide import Slide
from panther.slides.tissue import TissueSettings, segment
from panther.storage.names import Job
from panther.storage.trident import Coords, folder_name, write_coords
from panther.store import atomic_write, hash_of
from panther.types import PatchSpec

THUMBNAIL = 1024  # pixels, the longer side
SAMPLE = 16  # patches read per slide to see how fast it decodes
NOTED = 0.001  # share of the tissue without a patch at the edges from which on it is noted
METHOD = 1  # raise it when the same settings give other results


@dataclass(frozen=True)
class TissueStep:
    """Finds tissue and draws it. A GeoJSON that the user has edited or added is kept and drawn."""

    settings: TissueSettings = field(default_factory=TissueSettings)
    name: str = "tissue"

    def done(self, files: SlideFiles) -> bool:
        """Whether the contours are the user's or made with these settings, and the picture shows them."""
        contours = files.contours
        return contours is not None and self._is_current(contours, files.slide) and _drawn(files) == contours.digest

    def run(self, files: SlideFiles) -> None:
        """Contours first, the pictures after them."""
        image, picture = files.image, None
        if files.contours is None or not self._is_current(files.contours, files.slide):
            tissue, view = segment(image, self.settings)
            picture = view.image
            about = {
                "key": self._key(files.slide),
                **_resolution(image),
                "tissue_um2": round(tissue.area * image.mpp**2, 1),
                "settings": asdict(self.settings),
                "unread": float(view.unread.mean()),  # part of the slide
            }
            files.contours = files.edited(write_contours(files.job.geojson(files.slide.name), tissue, about))
        _draw(files, files.contours, picture)

    def about(self, files: SlideFiles) -> Mapping[str, Any]:
        """Resolution and area of the tissue."""
        if files.contours is None:
            return {}
        if files.contours.edited:
            regions = files.contours.regions
            return {"tissue": f"regions: {regions}" if regions else "edited"}
        about = files.contours.about
        unread = about.get("unread", 0.0)
        return {
            "tissue": TissueSettings(**about["settings"]).summary,
            "tissue_mm2": round(about["tissue_um2"] / 1e6, 4),
            "unread": round(unread, 6),
            "mpp": about["mpp"],
            "mpp_source": about["mpp_source"],
            "note": joined(about["note"], not_decoded(unread)),
        }

    def _is_current(self, contours: Contours, slide: SlideRef) -> bool:
        return contours.edited or contours.about.get("key") == self._key(slide)

    def _key(self, slide: SlideRef) -> str:
        return hash_of([METHOD, asdict(self.settings), slide.mpp, _bytes(slide)])


@dataclass(frozen=True)
class PatchStep:
    """Places patches on the tissue."""

    size: int = 256
    mpp: float = 0.5
    overlap: int = 0
    min_tissue: float = MIN_TISSUE
    edge: str = EDGES[0]
    name: str = "patches"

    def __post_init__(self) -> None:
        check_choice("edge", self.edge, EDGES)
        if self.overlap >= self.size:
            raise InputError(f"overlap: found {self.overlap}, expected less than `patch_size={self.size}`")

    @property
    def folder(self) -> str:
        """Name of this set of patches inside the job folder."""
        return folder_name(self.size, self.mpp, self.overlap)

    def done(self, files: SlideFiles) -> bool:
        """Whether the coordinates were made from the present contours, with these settings."""
        with suppress(InputError):
            coords = files.coords(self.folder)
            if files.contours is not None and coords is not None:
                return bool(coords.about.get("key") == self._key(files.slide, files.contours))
        return False

    def run(self, files: SlideFiles) -> None:
        """Write TRIDENT's file; that of a slide without tissue has no rows."""
        slide, contours = files.slide, files.contours
        if contours is None:
            raise InputError(f"{slide.name}: found no contours of the tissue; run the step tissue first")
        image = files.image
        spec, patches = self.place(image, contours.tissue)
        about = {
            **_resolution(image),
            "key": self._key(slide, contours),
            "tissue": contours.digest,
            "min_tissue": self.min_tissue,
            **self.edges(patches, image.mpp),
        }
        about.pop("mpp")  # the slide's; stored as level0_mpp, unrounded
        value = Coords(slide.name, patches.coords, spec, image.mpp, image.dimensions, about)
        write_coords(files.job.coords(slide.name, self.folder), value, f"{self.folder}/patches")
        files.forget_coords(self.folder)

    def about(self, files: SlideFiles) -> Mapping[str, Any]:
        """Number of patches, and the resolution."""
        value = files.coords(self.folder)
        if value is None:
            return {}
        return {
            "mpp": value.mpp,
            "mpp_source": value.about.get("mpp_source", ""),
            "patches": len(value.coords),
            "edge_lost": round(value.about.get("edge_lost", 0.0), 6),
            "note": joined(value.about.get("note", ""), left_over(value.about), no_patch(value.coords)),
        }

    def place(self, image: Slide, tissue: Tissue) -> tuple[PatchSpec, PatchGrid]:
        """Patches of a slide."""
        spec = patch_spec(image, self.size, self.mpp, self.overlap)
        return spec, tile_tissue(image, spec, tissue, self.min_tissue, self.edge)

    def edges(self, patches: PatchGrid, mpp: float) -> dict[str, Any]:
        """Strips at the edges; see :func:`left_over`."""
        strips = [round(pixels * mpp, 1) for pixels in patches.strips]
        return {"edge": self.edge, "edge_um": strips, "edge_lost": patches.lost}

    def _key(self, slide: SlideRef, contours: Contours) -> str:
        padded = () if self.edge == EDGES[0] else (self.edge,)  # jobs of versions without `edge` stay done
        settings = (self.size, self.mpp, self.overlap, self.min_tissue, *padded)
        return hash_of([METHOD, settings, contours.digest, slide.mpp, _bytes(slide)])


def joined(*notes: str) -> str:
    """Notes about one slide as one; empty ones are left out."""
    return "; ".join(filter(None, notes))


def not_decoded(unread: float) -> str:
    """Note on the part of a slide that cannot be read."""
    return f"{unread:.2%} of the slide could not be decoded and counts as glass" if unread else ""


def no_patch(coords: np.ndarray) -> str:
    """Note on a slide without patches."""
    return "" if len(coords) else "no patch has enough tissue"


def left_over(about: Mapping[str, Any]) -> str:
    """Note on tissue at the edges that no patch covers."""
    if about.get("edge_lost", 0.0) < NOTED:
        return ""
    right, bottom = about["edge_um"]
    what = "`edge=pad` gives them patches" if about["edge"] == EDGES[0] else "too little for `min_tissue=`"
    strips = f"strips at the right ({right:.0f} um) and bottom ({bottom:.0f} um) edge"
    return f"{about['edge_lost']:.1%} of the tissue lies in {strips} that no patch covers ({what})"


def _resolution(image: Slide) -> dict[str, Any]:
    return {"mpp": image.mpp, "mpp_source": image.resolution.source, "note": image.resolution.note}


def _draw(files: SlideFiles, contours: Contours, picture: np.ndarray | None) -> None:
    """Thumbnail and overlay, from the picture of the segmentation where that is large enough: the slide is read once."""
    job, name, (width, height) = files.job, files.slide.name, files.image.dimensions
    if picture is None or max(picture.shape[:2]) < THUMBNAIL:
        picture = files.image.thumbnail(THUMBNAIL)
    else:
        scale = THUMBNAIL / max(picture.shape[:2])
        size = (max(1, round(picture.shape[1] * scale)), max(1, round(picture.shape[0] * scale)))
        picture = np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BOX))
    digest = PngImagePlugin.PngInfo()
    digest.add_text("contours", contours.digest)
    drawn = draw_contours(picture, contours.tissue, (picture.shape[1] / width, picture.shape[0] / height))
    for path, pixels, info in ((job.thumbnail(name), picture, None), (job.overlay(name), drawn, digest)):
        with atomic_write(path) as temporary:
            # level 1: noise compresses badly at any level
            Image.fromarray(pixels).save(temporary, format="png", pnginfo=info, compress_level=1)


def _drawn(files: SlideFiles) -> str | None:
    """Hash of the contours that the picture shows."""
    if not files.job.thumbnail(files.slide.name).exists():
        return None
    try:
        with Image.open(files.job.overlay(files.slide.name)) as picture:
            return str(picture.info.get("contours"))
    except OSError:
        return None


def _bytes(slide: SlideRef) -> int:
    """Size of the slide's files, which tells a replaced one: hashing gigabytes would take longer than the work."""
    return sum(path.stat().st_size for path in slide.files if path.exists())


@dataclass(frozen=True)
class SlidePlan:
    """Estimate for one slide."""

    mpp: float
    patches: int
    tissue_seconds: float
    decode_seconds: float  # for all its patches, one process
    note: str = ""  # that of the job


def plan_slide(slide: SlideRef, job: Job, tissue_step: TissueStep, patch_step: PatchStep) -> SlidePlan:
    """Find tissue and patches as the job would, in memory, and measure the time of a few patches."""
    with slide.open() as image:
        start, unread = time.perf_counter(), 0.0
        contours = SlideFiles(slide, job).contours
        if contours and contours.edited:
            tissue = contours.tissue
        else:
            tissue, view = segment(image, tissue_step.settings)
            unread = float(view.unread.mean())
        spec, patches = patch_step.place(image, tissue)
        tissue_seconds, coords = time.perf_counter() - start, patches.coords
        reader, start = PatchReader(image, spec), time.perf_counter()
        sample = coords[len(coords) // 2 :][:SAMPLE]  # neighbours, as the job reads them: they share tiles
        for x, y in sample:
            with suppress(InputError):  # a damaged tile: the job reads another level, or leaves the patch out
                reader.read(int(x), int(y))
        seconds = (time.perf_counter() - start) / max(len(sample), 1) * len(coords)
        edges = left_over(patch_step.edges(patches, image.mpp))
        note = joined(image.resolution.note, not_decoded(unread), edges, no_patch(coords))
        return SlidePlan(image.mpp, len(coords), tissue_seconds, seconds, note)


def totals(plans: Iterable[SlidePlan], workers: int, dims: Iterable[int] = (1024, 1280)) -> dict[str, float]:
    """Sums over the slides: patches, seconds, bytes of float16 features of these widths (two usual ones)."""
    plans = list(plans)
    patches = sum(plan.patches for plan in plans)
    return {
        "slides": len(plans),
        "patches": patches,
        "tissue_seconds": sum(plan.tissue_seconds for plan in plans) / workers,
        "decode_seconds": sum(plan.decode_seconds for plan in plans) / workers,
        **{f"feature_bytes_{dim}": patches * (2 * dim + 16) for dim in dims},  # 16: the coordinates
    }
