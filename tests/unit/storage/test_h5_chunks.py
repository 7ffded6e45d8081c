"""Chunks of HDF5 files are found without the library, exactly where the library finds them; whatever is odd is left to it."""

import os
import pickle

import h5py
import numpy as np
import pytest

from panther.errors import InputError
from panther.storage.readers import h5_storage, open_bag
from panther.storage.readers.h5_storage import NODE, StoredBytes, chunk_offsets, read_chunk_index

MANY = NODE * NODE + 300  # chunks of a tree of three levels


def _numbers(rows: int, columns: int = 3) -> np.ndarray:
    return np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)


def _grown(file: h5py.File, x: np.ndarray, chunk: int = 1, batch: int = 100) -> h5py.Dataset:
    """Grown batch by batch, as CLAM and TRIDENT do; nodes of the index lie between the rows."""
    data = file.create_dataset(
        "features", (0, x.shape[1]), x.dtype, maxshape=(None, x.shape[1]), chunks=(chunk, x.shape[1])
    )
    for start in range(0, len(x), batch):
        data.resize(min(start + batch, len(x)), axis=0)
        data[start:] = x[start : start + batch]
    return data


def _grown_backwards(file: h5py.File, x: np.ndarray) -> None:
    data = file.create_dataset("features", x.shape, x.dtype, chunks=(1, x.shape[1]))
    for row in range(len(x))[::-1]:
        data[row] = x[row]


def _with_attributes(file: h5py.File, x: np.ndarray) -> None:
    _grown(file, x).attrs.update({f"note {number}": "x" * 100 for number in range(20)})


def _cut(file: h5py.File, x: np.ndarray) -> None:
    """Longer once, then cut: HDF5 keeps or frees the chunks behind the end."""
    _grown(file, np.concatenate([x, x + 1])).resize(len(x), axis=0)


WRITERS = {
    "grown": _grown,
    "chunks of several rows": lambda file, x: _grown(file, x, chunk=7, batch=50),
    "last row first": _grown_backwards,
    "many attributes": _with_attributes,
    "cut": _cut,
}
OPTIONS = {"as usual": {}, "newest format": {"libver": "latest"}}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("rows", [1, 65, 1000])
def test_rows_come_back_as_they_were_written(tmp_path, writer, options, rows):
    x = _numbers(rows)
    with h5py.File(tmp_path / "a.h5", "w", **OPTIONS[options]) as file:
        WRITERS[writer](file, x)
    bag = open_bag(tmp_path / "a.h5")
    np.testing.assert_array_equal(bag.features[:].numpy(), x)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(bag)).features[rows // 3 : 50].numpy(), x[rows // 3 : 50])


@pytest.mark.parametrize("rows", [1, MANY])
def test_chunks_lie_where_the_library_finds_them(tmp_path, rows, monkeypatch):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        _grown(file, _numbers(rows), batch=1000)
    with h5py.File(tmp_path / "a.h5", "r") as file:
        expected = [file["features"].id.get_chunk_info_by_coord((row, 0)).byte_offset for row in range(rows)]
        # an index of this kind is never left to the library, which would cost 12 ms a slide
        monkeypatch.setattr(h5_storage, "check_storage", None)
        assert chunk_offsets(tmp_path / "a.h5", file["features"]).offsets.tolist() == expected


@pytest.fixture
def clam(tmp_path):
    path = tmp_path / "slide.h5"
    with h5py.File(path, "w") as file:
        _grown(file, _numbers(1000))
    return path


def _header(path):
    with h5py.File(path, "r") as file:
        return h5py.h5o.get_info(file["features"].id).addr


@pytest.mark.parametrize("what", ["signature", "level", "endless"])
def test_a_damaged_index_is_left_to_the_library(clam, what):
    header, content = _header(clam), bytearray(clam.read_bytes())
    assert read_chunk_index(StoredBytes(clam), header, 1000) is not None
    assert read_chunk_index(StoredBytes(clam), header, 999) is None  # more chunks than rows
    _, root = h5_storage._layout_message(StoredBytes(clam), header)
    leaf = int.from_bytes(content[root + 24 + 32 : root + 24 + 40], "little")
    if what == "signature":
        content[leaf : leaf + 4] = b"TRUE"
    elif what == "level":
        content[leaf + 5] = 7
    else:  # a tall tree that leads back to itself
        content[root + 5] = 200
        content[root + 24 + 32 : root + 24 + 40] = root.to_bytes(8, "little")
    clam.write_bytes(content)
    assert read_chunk_index(StoredBytes(clam), header, 1000) is None
    if what != "endless":  # that one crashes HDF5, which is why workers read files
        with pytest.raises(InputError, match=r"slide\.h5: "):
            open_bag(clam).features[:]


def test_a_file_that_is_replaced_or_cut_after_it_was_opened_is_refused(clam):
    bag = open_bag(clam)
    other = clam.with_suffix(".new")
    other.write_bytes(clam.read_bytes())
    os.replace(other, clam)
    with pytest.raises(InputError, match=r"slide\.h5"):
        bag.features[:]
    bag = open_bag(clam)
    bag.features[0:10]
    os.truncate(clam, clam.stat().st_size // 2)
    with pytest.raises(InputError, match=r"slide\.h5: rows 0 to 1000"):
        bag.features[0:1000]
