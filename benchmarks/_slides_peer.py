"""LazySlide, in an environment of its own: started by `benchmarks/slides.py --peer PYTHON`, answers one JSON line for each line it reads.

    {"do": "find", "slide": PATH}                       -> {"patches": number, "coords": [[x, y], ...], "versions": {...}}
    {"do": "open", "slide": PATH, "mpp": um/px}         -> {"patches": number}
    {"do": "iterate" | "load", "patches": n, "workers"} -> {"seconds": s}

It uses nothing of ours, and only what LazySlide's documentation shows.
"""

import importlib.metadata
import itertools
import json
import os
import sys
import time
import warnings
from typing import Any

PATCH, BATCH = 256, 32


class Peer:
    """A slide and its tiles; loaders stay open, as ours do."""

    def find(self, slide: str) -> dict[str, Any]:
        """Tissue and tiles with LazySlide's defaults."""
        import lazyslide
        from wsidata import open_wsi

        wsi = open_wsi(slide)
        lazyslide.pp.find_tissues(wsi)
        lazyslide.pp.tile_tissues(wsi, PATCH, mpp=0.5)
        corners = wsi.shapes["tiles"].bounds[["minx", "miny"]].to_numpy().astype(int).tolist()
        versions = {name: importlib.metadata.version(name) for name in ("lazyslide", "wsidata", "torch")}
        return {"patches": len(corners), "coords": corners, "versions": versions}

    def open(self, slide: str, mpp: float) -> dict[str, Any]:
        """All tiles of a slide, tissue or not: what is measured is decoding."""
        import lazyslide
        from wsidata import open_wsi

        self._wsi = open_wsi(slide)
        lazyslide.pp.tile_tissues(
            self._wsi, PATCH, mpp=0.5, slide_mpp=mpp, background_filter=False, tissue_key=None, key_added="tiles"
        )
        tiles = self._wsi.shapes["tiles"]
        tiles["tile_id"] = range(len(tiles))  # its iterator asks for it, its tiling without tissue does not give it
        self._loader = None
        return {"patches": len(tiles)}

    def iterate(self, patches: int, workers: int) -> dict[str, Any]:
        """One process, its iterator."""
        start = time.perf_counter()
        tiles = itertools.islice(self._wsi.iter.tile_images("tiles"), patches)
        seen = sum(tile.image.shape[0] == PATCH for tile in tiles)
        return {"seconds": time.perf_counter() - start, "seen": seen}

    def load(self, patches: int, workers: int) -> dict[str, Any]:
        """Worker processes: its torch dataset in torch's loader, as its feature extraction does."""
        from torch.utils.data import DataLoader, Subset

        if self._loader is None:
            part = Subset(self._wsi.ds.tile_images("tiles"), range(patches))
            self._loader = DataLoader(part, BATCH, num_workers=workers, persistent_workers=True)
        start = time.perf_counter()
        seen = sum(len(batch["image"]) for batch in self._loader)
        return {"seconds": time.perf_counter() - start, "seen": seen}


def main() -> None:
    warnings.filterwarnings("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not look like an answer
    peer = Peer()
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(getattr(peer, request.pop("do"))(**request)), file=answers, flush=True)


if __name__ == "__main__":
    main()
