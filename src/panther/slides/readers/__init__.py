"""Readers of slide files, in the order in which they are tried. A new one is a file here and a line below."""

from panther.slides.readers import zarr, openslide_file, tiff, image  # isort: skip  (the order is the order of trying)

__all__ = ["image", "openslide_file", "tiff", "zarr"]
