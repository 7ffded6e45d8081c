"""Slides: reading images of any scanner, their resolution, tissue and patches; without torch.

- ``open_slide(path, mpp=None)`` gives a `Slide`: sizes, levels, validated ``mpp``, ``read_region``; pickles by path.
- ``patch_spec(slide, size, mpp, overlap)`` gives a `PatchSpec`; ``PatchReader(slide, spec).read(x0, y0)`` the pixels.
- ``find_tissue(slide, settings)`` gives `Tissue`: polygons with holes at level 0.
- ``tile_tissue(slide, spec, tissue, min_tissue).coords`` are coordinates (N, 2) at level 0; ``read_coords`` reads TRIDENT's file.
- ``Job``, ``SlideRef``, ``run_job``: a folder of slides, resumable per slide and step.
"""

from panther.slides.job import SlideFiles, run_job
from panther.slides.listing import SlideRef, list_slides
from panther.slides.patches import PatchGrid, PatchReader, patch_spec, tile_tissue
from panther.slides.polygons import Polygon, Tissue
from panther.slides.resolution import read_mpp_table, resolve_mpp
from panther.slides.slide import Slide, open_slide, slide_readers
from panther.slides.steps import PatchStep, TissueStep
from panther.slides.tissue import TissueSettings, find_tissue, segmenters
from panther.storage.names import Job
from panther.storage.trident import Coords, read_coords

__all__ = [
    "Coords",
    "Job",
    "PatchGrid",
    "PatchReader",
    "PatchStep",
    "Polygon",
    "Slide",
    "SlideFiles",
    "SlideRef",
    "Tissue",
    "TissueSettings",
    "TissueStep",
    "find_tissue",
    "list_slides",
    "open_slide",
    "patch_spec",
    "read_coords",
    "read_mpp_table",
    "resolve_mpp",
    "run_job",
    "segmenters",
    "slide_readers",
    "tile_tissue",
]
