"""The field's feature files, written as their own tools write them: each function takes a path, features (N, d) and coords (N, 2)."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import torch
from safetensors.torch import save_file

GEOMETRY = {
    "patch_size": 256, "patch_size_level0": 512, "level0_magnification": 40, "target_magnification": 20, "overlap": 16,
    "name": "slide", "savetodir": "/somewhere", "level0_width": 40_000, "level0_height": 30_000,
}  # fmt: skip
STAMP = {
    "unit": "um", "tile_size_um": 256.0, "tile_size_px": 224, "extractor": "ctranspath", "stamp_version": "2.0",
    "code_hash": "00", "feat_type": "tile",
}  # fmt: skip
Write = Callable[[Path, np.ndarray, np.ndarray], None]


def trident(path: Path, x: np.ndarray, coords: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        features = file.create_dataset("features", data=x)
        features.attrs.update({"name": path.stem, "savetodir": "/somewhere", "encoder": "uni_v1"})
        places = file.create_dataset("coords", data=coords.astype(np.int64))
        places.attrs.update(GEOMETRY)


def clam_h5(path: Path, x: np.ndarray, coords: np.ndarray) -> None:
    """CLAM's save_hdf5: resizable, one row a chunk, appended batch by batch."""
    with h5py.File(path, "w") as file:
        for name, array in (("features", x), ("coords", coords.astype(np.int32))):
            row = array.shape[1:]
            file.create_dataset(name, (0, *row), array.dtype, maxshape=(None, *row), chunks=(1, *row))
        for start in range(0, len(x), 7):
            for name, array in (("features", x), ("coords", coords)):
                part = array[start : start + 7]
                file[name].resize(start + len(part), axis=0)
                file[name][-len(part) :] = part


def stamp(path: Path, x: np.ndarray, coords: np.ndarray) -> None:
    stamp_without_attrs(path, x, coords)
    with h5py.File(path, "r+") as file:
        file.attrs.update(STAMP)


def stamp_without_attrs(path: Path, x: np.ndarray, coords: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        file["feats"], file["coords"] = x, coords.astype(np.float64)


def _h5(change: Callable[[np.ndarray], np.ndarray], before: int = 0, **options: object) -> Write:
    """Features as ``change`` makes them, some bytes before them."""

    def write(path: Path, x: np.ndarray, coords: np.ndarray) -> None:
        with h5py.File(path, "w") as file:
            if before:
                file["label"] = np.zeros(before, np.int8)
            file.create_dataset("features", data=change(x), **options)
            file["coords"] = coords

    return write


def _chunked(chunks: tuple[int, int] | None = None, order: str = "=", **options: object) -> Write:
    def write(path: Path, x: np.ndarray, coords: np.ndarray) -> None:
        shape = None if chunks is None else tuple(max(min(c, n), 1) for c, n in zip(chunks, x.shape, strict=True))
        with h5py.File(path, "w") as file:
            file.create_dataset(
                "features", data=x.astype(x.dtype.newbyteorder(order)), chunks=shape, maxshape=(None, None), **options
            )
            file["coords"] = coords

    return write


def npy(path: Path, x: np.ndarray, coords: np.ndarray) -> None:
    np.save(path, x)


def safetensors(path: Path, x: np.ndarray, coords: np.ndarray) -> None:
    save_file({"features": torch.from_numpy(x), "coords": torch.from_numpy(coords)}, path, {"encoder": "uni_v1"})


def clam_pt(path: Path, x: np.ndarray, coords: np.ndarray) -> None:
    torch.save(torch.from_numpy(x), path)


def _big_endian(x: np.ndarray) -> np.ndarray:
    return x.astype(x.dtype.newbyteorder(">"))


# name: (ending, writer, reader that must recognise it, whether coordinates are kept)
LAYOUTS: dict[str, tuple[str, Write, str, bool]] = {
    "TRIDENT h5": (".h5", trident, "trident", True),
    "CLAM h5": (".h5", clam_h5, "clam", True),
    "CLAM pt": (".pt", clam_pt, "pt", False),
    "CLAM pt, torch < 1.6": (
        ".pt",
        lambda path, x, _: torch.save(torch.from_numpy(x), path, _use_new_zipfile_serialization=False),
        "pt",
        False,
    ),
    "STAMP h5": (".h5", stamp, "stamp", True),
    "STAMP h5, old": (".h5", stamp_without_attrs, "stamp", True),
    "(1, N, d) h5": (".h5", _h5(lambda x: x[None]), "batched", True),
    "(1, N, d) h5, chunked": (".h5", _h5(lambda x: x[None], chunks=True, maxshape=(None, None, None)), "batched", True),
    "h5, gzip": (".h5", _chunked((5, 3), compression="gzip", shuffle=True), "clam", True),
    "h5, chunks across columns": (".h5", _chunked((4, 2)), "clam", True),
    "h5, chunks of several rows": (".h5", _chunked((4, 10**6)), "clam", True),
    "h5, big-endian, chunked": (".h5", _chunked((1, 10**6), ">"), "clam", True),
    "h5, big-endian": (".hdf5", _h5(_big_endian), "clam", True),
    "h5, unaligned": (".h5", _h5(np.asarray, before=3), "clam", True),
    "npy": (".npy", npy, "npy", False),
    "npy, Fortran order": (".npy", lambda path, x, _: np.save(path, np.asfortranarray(x)), "npy", False),
    "npy, (1, N, d)": (".npy", lambda path, x, _: np.save(path, x[None]), "npy", False),
    "npy, big-endian": (".npy", lambda path, x, _: np.save(path, _big_endian(x)), "npy", False),
    "safetensors": (".safetensors", safetensors, "safetensors", True),
    "pt, dictionary": (
        ".pt",
        lambda path, x, xy: torch.save({"features": torch.from_numpy(x), "coords": torch.from_numpy(xy)}, path),
        "pt",
        True,
    ),
}


def features(n: int = 23, d: int = 6, dtype: str = "float32", seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, d) and coords (n, 2) as patches of 512 pixels."""
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, d)).astype(dtype), generator.integers(0, 90, (n, 2)) * 512


def write(folder: Path, layout: str, x: np.ndarray, coords: np.ndarray, name: str = "slide") -> Path:
    """Path of the file written in that layout."""
    suffix, writer, _, _ = LAYOUTS[layout]
    path = folder / f"{name}{suffix}"
    writer(path, x, coords)
    return path
