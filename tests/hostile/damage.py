"""What becomes of feature files on their way through transfers, clusters and hands: each function replaces a sound file of the lab."""

import pickle
import random
import zipfile
import zlib
from pathlib import Path

import h5py
import numpy as np
import torch

from hostile.lab import Damage, write_bag


def _bytes(content: bytes) -> Damage:
    return lambda path: path.write_bytes(content) and None


def dangling_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nowhere/features.h5")


def features_that_are_a_group(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_group("features")
        file["coords"] = np.zeros((3, 2), np.int64)


def coordinates_only(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["coords"] = np.zeros((3, 2), np.int64)


def external_link(path: Path) -> None:
    """The numbers of another slide under this one's name."""
    other = path.with_name("elsewhere")
    write_bag(other, 99)
    with h5py.File(path, "w") as file:
        file["features"] = h5py.ExternalLink(other.name, "/features")


def external_storage(path: Path) -> None:
    """Any file of the machine as features."""
    raw = path.with_name("raw.bin")
    raw.write_bytes(np.ones((16, 6), np.float32).tobytes())
    with h5py.File(path, "w") as file:
        file.create_dataset("features", (16, 6), "f4", external=[(str(raw), 0, 16 * 6 * 4)])


def virtual(path: Path) -> None:
    outside = path.parent.parent / "outside.h5"
    write_bag(outside, 98)
    layout = h5py.VirtualLayout((16, 6), "f4")
    layout[:] = h5py.VirtualSource("../outside.h5", "features", (16, 6))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("features", layout)


def half_written(path: Path) -> None:
    """Chunks 8 to 15 were never written: HDF5 calls them zeros."""
    with h5py.File(path, "w") as file:
        file.create_dataset("features", (16, 6), "f4", chunks=(1, 6))[:8] = 1.0


def never_written(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("features", (16, 6), "f4")


def declares_a_billion_rows(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("features", (10**9, 1024), "f4", chunks=(1, 1024))[:2] = 1.0


def gzip_bomb(path: Path) -> None:
    with h5py.File(path, "w") as file:
        data = file.create_dataset("features", (200_000, 1024), "f4", chunks=(200_000, 1024), compression="gzip")
        compressor = zlib.compressobj(1)
        block = bytes(1 << 20)
        parts = [compressor.compress(block) for _ in range(200_000 * 4096 >> 20)]
        data.id.write_direct_chunk((0, 0), b"".join([*parts, compressor.flush()]))


def cut_in_half(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


FEATURE_DAMAGE: dict[str, Damage] = {
    "empty": _bytes(b""),
    "zeros": _bytes(bytes(4096)),
    "HTML": _bytes(b"<!DOCTYPE html><html><body>Please log in</body></html>"),
    "Git LFS pointer": _bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123456\n"),
    "git-annex pointer": _bytes(b"/annex/objects/SHA256E-s123--00.h5\n"),
    "raw pickle": _bytes(pickle.dumps({"features": [[1.0]]})),
    "text": _bytes(b"hello, I am text and nothing else"),
    "cut in half": cut_in_half,
    "dangling link": dangling_link,
    "features that are a group": features_that_are_a_group,
    "external link": external_link,
    "external storage": external_storage,
    "virtual": virtual,
    "half written": half_written,
    "never written": never_written,
    "a billion rows declared": declares_a_billion_rows,
    "gzip bomb": gzip_bomb,
}


def expanded_pt(path: Path) -> None:
    torch.save(torch.ones(1, 1).expand(10**9, 1024), path)


def compressed_pt(path: Path) -> None:
    torch.save(torch.ones(16, 6), path)
    with zipfile.ZipFile(path) as archive:
        entries = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


def huge_npy(path: Path) -> None:
    np.save(path, np.ones((2, 1024), np.float32))
    content = path.read_bytes().replace(b"(2, 1024), }" + b" " * 9, b"(1000000000, 1024), }", 1)
    path.write_bytes(content)


OTHER_DAMAGE: dict[str, tuple[str, Damage]] = {
    "pt that repeats one number": (".pt", expanded_pt),
    "pt, compressed": (".pt", compressed_pt),
    "npy of a billion rows": (".npy", huge_npy),
    "pt, HTML": (".pt", _bytes(b"<html>")),
    "pt, raw pickle": (".pt", _bytes(pickle.dumps([1.0]))),
    "safetensors, zeros": (".safetensors", _bytes(bytes(64))),
    "npy, Git LFS pointer": (".npy", _bytes(b"version https://git-lfs.github.com/spec/v1\n")),
}


EXTREMES = (b"\x00" * 4, b"\xff" * 4, b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\x01\x00\x00\x00")


def mutate(content: bytes, rng: random.Random) -> bytes:
    """One of the ways in which files go wrong; mostly near the beginning, where headers are."""
    if not content:
        return b"\x00"
    data = bytearray(content)
    reach = len(data) if rng.random() < 0.5 else min(len(data), 2048)
    place = rng.randrange(reach)
    kind = rng.choice(("flip", "flip", "flip", "number", "cut", "zeros", "swap", "insert", "remove"))
    if kind == "flip":
        for _ in range(rng.choice((1, 1, 2, 4, 16))):
            data[rng.randrange(reach)] = rng.choice((0, 255, rng.randrange(256)))
    elif kind == "number":
        data[place : place + 4] = rng.choice(EXTREMES)
    elif kind == "cut":
        del data[place:]
    elif kind == "zeros":
        data[place : place + 512] = bytes(min(512, len(data) - place))
    elif kind == "swap":
        other = rng.randrange(len(data) // 64 + 1) * 64
        place -= place % 64
        data[place : place + 64], data[other : other + 64] = data[other : other + 64], data[place : place + 64]
    elif kind == "insert":
        data[place:place] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 8))))
    else:
        del data[place : place + rng.choice((1, 8, 64))]
    return bytes(data)
