"""Hashes of features: every number counts, layouts do not, and a stored hash is only believed of files that are untouched."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from layouts import LAYOUTS, features, write

from panther import store
from panther.errors import InputError
from panther.storage import bags as fingerprints
from panther.storage.bags import BagRef, concatenate, fingerprint, fingerprint_all
from panther.store import HashedRows, stamp_of
from panther.types import Bag

X = torch.from_numpy(np.random.default_rng(0).normal(size=(6000, 16)).astype(np.float32))


def hash_rows(rows):
    return HashedRows(rows).digest()


@pytest.fixture
def at_once(monkeypatch):
    """Files are believed as soon as they are written: tests cannot wait."""
    monkeypatch.setattr(store, "UNSETTLED_SECONDS", 0.0)


class Counted:
    """Rows that count how often each one is read."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows, self.read = rows, np.zeros(len(rows), int)
        self.shape, self.dtype = rows.shape, rows.dtype

    def __getitem__(self, rows: slice) -> torch.Tensor:
        self.read[rows] += 1
        return self.rows[rows]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows", ["as they lie", "turned", "elsewhere"])
def test_large_blocks_are_copied_and_hashed_piece_by_piece(monkeypatch, rows, dtype):
    """Pieces end inside of rows, and blocks inside of pieces."""
    monkeypatch.setattr("panther.store.PIECE_BYTES", 1000)
    x = X.to(dtype)
    arguments = {"as they lie": x, "turned": x.T.contiguous().T, "elsewhere": Counted(x)}[rows]
    hashed, actual = HashedRows(arguments), torch.empty_like(x)
    for start in range(0, 6000, 700):
        hashed.read_into(slice(start, min(start + 700, 6000)), actual[start : start + 700])
    assert torch.equal(actual, x)
    assert hashed.digest() == hash_rows(x)
    if rows == "elsewhere":
        assert (arguments.read == 1).all()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_equal_features_have_equal_hashes_in_every_layout(tmp_path, dtype):
    x, coords = features(300, dtype=dtype)
    actual = set()
    for number, layout in enumerate(LAYOUTS):
        (tmp_path / str(number)).mkdir()
        path = write(tmp_path / str(number), layout, x, coords)
        ref = BagRef("s", (path,))
        rows, read = HashedRows(ref.open().features), torch.full_like(torch.from_numpy(x), 7.0)
        for start in range(0, 300, 70):
            rows.read_into(slice(start, min(start + 70, 300)), read[start : start + 70])
        assert torch.equal(read, torch.from_numpy(x))
        actual |= {rows.digest(), fingerprint((ref, None))[1]}
    assert actual == {hash_rows(torch.from_numpy(x))}


def saved(path: Path, x: torch.Tensor = X) -> BagRef:
    np.save(path, x.numpy())
    return BagRef(path.stem, (path,))


@pytest.mark.parametrize("touch", ["rewritten", "date restored", "replaced by a copy", "one byte in place"])
def test_a_file_that_was_touched_is_read_again(tmp_path, at_once, touch):
    ref = saved(tmp_path / "a.npy")
    first, before = fingerprint((ref, None)), (tmp_path / "a.npy").stat()
    other = X.clone()
    other[4000, 3] += 1
    if touch == "replaced by a copy":
        saved(tmp_path / "b.npy", other)
        (tmp_path / "b.npy").replace(tmp_path / "a.npy")
    elif touch == "one byte in place":
        with (tmp_path / "a.npy").open("r+b") as handle:
            handle.seek(-(2000 * 16 - 3) * 4, os.SEEK_END)
            handle.write(other[4000, 3].numpy().tobytes())
    else:
        saved(tmp_path / "a.npy", other)
    if touch == "date restored":
        os.utime(tmp_path / "a.npy", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (tmp_path / "a.npy").stat().st_size == before.st_size
    assert fingerprint((ref, first))[1] == hash_rows(other) != first[1]


def test_a_file_that_was_just_written_or_changes_while_it_is_read_is_not_believed_later(tmp_path, monkeypatch):
    """Within one tick of the clock a second change leaves no trace in the times."""
    ref = saved(tmp_path / "a.npy")
    first = fingerprint((ref, None))
    assert first[0] == ""
    saved(tmp_path / "a.npy", X + 1)
    assert fingerprint((ref, first))[1] == hash_rows(X + 1)
    monkeypatch.setattr(store, "UNSETTLED_SECONDS", 0.0)

    def slow(sample):
        saved(tmp_path / "a.npy", X)
        return "hash"

    monkeypatch.setattr(fingerprints, "finite_content", slow)
    assert fingerprint((ref, None))[0] == ""


def test_bags_in_memory_are_always_read_and_a_missing_file_has_no_stamp(tmp_path, at_once):
    bag = Bag("a", X.clone(), path=Path(__file__))  # a path alone proves nothing
    first = fingerprint((bag, None))
    bag.features[17, 1] += 1
    assert fingerprint((bag, first))[1] != first[1]
    saved(tmp_path / "a.npy")
    time.sleep(0.01)
    assert stamp_of([tmp_path / "a.npy"])
    assert not stamp_of([tmp_path / "a.npy", tmp_path / "none.npy"])


def test_hashes_are_kept_over_runs_and_a_damaged_file_costs_reading(tmp_path, at_once, monkeypatch):
    refs = {f"e: {name}": saved(tmp_path / f"{name}.npy", X + n) for n, name in enumerate("abc")}
    refs["e: \udc80"] = saved(tmp_path / "d.npy")  # a file name that is no Unicode
    (tmp_path / "b.npy").write_bytes(b"rubbish")
    file = tmp_path / "cache" / "fingerprints.json"
    actual, failures = fingerprint_all(refs, file)
    assert set(actual) == {"e: a", "e: c", "e: \udc80"}
    assert "b.npy" in failures["b"]
    saved(tmp_path / "b.npy")
    monkeypatch.setattr(fingerprints, "finite_content", lambda ref: f"read {ref.sample}")
    again, failures = fingerprint_all(refs, file)
    assert not failures
    assert {name: again[name] for name in actual} == actual
    assert again["e: b"] == "read b"
    for damage in (
        b"",
        b"\xff\xfe",
        b"[]",
        b"1",
        b'{"e: a": 1}',
        b'{"e: a": ["x"]}',
        b'{"e: a": ["x", 3]}',
        b"[" * 100_000,
    ):
        file.write_bytes(damage)
        assert fingerprint_all(refs, file)[0]["e: a"] == "read a"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_bag_with_nan_has_no_fingerprint_and_its_slide_is_named(dtype):
    sound = torch.full((5, 3), 6e4).to(dtype)  # whose sum is too large for float16
    assert fingerprint((Bag("a", sound), None))[1] == hash_rows(sound)
    bad = sound.clone()
    bad[2, 1] = float("-inf")
    with pytest.raises(InputError, match="slide b: row 2"):
        fingerprint((concatenate("patient", [Bag("a", sound), Bag("b", bad)]), None))
