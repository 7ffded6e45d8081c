"""What a job would come to, without writing anything."""

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from panther.errors import InputError
from panther.slides.folder import SlideFiles
from panther.slides.listing import SlideRef
from panther.slides.patches import PatchReader, lay, patch_spec
from panther.slides.steps import PatchStep, TissueStep, joined, left_over, no_patch, not_decoded
from panther.slides.tissue import segment
from panther.storage.names import Job

SAMPLE = 16  # patches read per slide to see how fast it decodes


@dataclass(frozen=True)
class SlidePlan:
    """Estimate for one slide."""

    mpp: float
    patches: int
    tissue_seconds: float
    decode_seconds: float  # for all its patches, one process
    note: str = ""  # as the job would note it


@dataclass(frozen=True)
class Planner:
    """Finds tissue and patches as the job would, in memory, and reads a few patches with a watch in hand."""

    job: Job
    tissue: TissueStep
    patches: PatchStep

    def __call__(self, slide: SlideRef) -> SlidePlan:
        """Plan of one slide."""
        with slide.open() as image:
            spec = patch_spec(image, self.patches.size, self.patches.mpp, self.patches.overlap)
            start = time.perf_counter()
            known, unread = SlideFiles(slide, self.job).contours, 0.0
            if known and known.edited:
                tissue = known.tissue
            else:
                tissue, seen = segment(image, self.tissue.settings)
                unread = float(seen.unread.mean())
            laid = lay(image, spec, tissue, self.patches.min_tissue, self.patches.edge)
            coords, edges = laid.coords, self.patches.edges(laid, image.mpp)
            found = time.perf_counter()
            # neighbours, as the job reads them: they share tiles
            sample = coords[len(coords) // 2 :][:SAMPLE]
            reader = PatchReader(image, spec)
            for x, y in sample:
                with suppress(InputError):  # a damaged tile: the job reads another level, or leaves the patch out
                    reader.read(int(x), int(y))
            each = (time.perf_counter() - found) / max(len(sample), 1)
            note = joined(image.resolution.note, not_decoded(unread), left_over(edges), no_patch(coords))
            return SlidePlan(image.mpp, len(coords), found - start, each * len(coords), note)


def totals(plans: Iterable[SlidePlan], workers: int, dims: Iterable[int] = (1024, 1280)) -> dict[str, float]:
    """Sums over the slides: patches, seconds, bytes of float16 features of these widths (two usual ones)."""
    plans = list(plans)
    patches = int(np.sum([plan.patches for plan in plans], dtype=int))
    return {
        "slides": len(plans),
        "patches": patches,
        "tissue_seconds": sum(plan.tissue_seconds for plan in plans) / workers,
        "decode_seconds": sum(plan.decode_seconds for plan in plans) / workers,
        **{f"feature_bytes_{dim}": patches * (2 * dim + 16) for dim in dims},  # 16: the coordinates
    }
