"""Files appear whole or not at all."""

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from limits import files_no_larger_than
from safetensors.numpy import save_file

from panther.errors import InputError
from panther.storage.files import write_json
from panther.storage.prototypes import load_prototypes, save_prototypes
from panther.storage.writers import save_bag
from panther.store import atomic_write, check_writable, check_writable_folder
from panther.types import Bag, Prototypes


def test_the_file_is_there_when_the_block_ends_and_not_before(tmp_path):
    path = tmp_path / "new" / "folder" / "a.bin"
    with atomic_write(path) as temporary:
        temporary.write_bytes(b"whole")
        assert not path.exists()
    assert path.read_bytes() == b"whole"
    assert list(path.parent.iterdir()) == [path]


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")

    def half_written():
        with atomic_write(path) as temporary:
            temporary.write_bytes(b"half")
            raise RuntimeError("the work failed")

    with pytest.raises(RuntimeError, match="the work failed"):
        half_written()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_next_writer_removes_what_a_killed_one_left_and_nothing_of_others(tmp_path):
    path = tmp_path / "a.bin"
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom panther.store import atomic_write\n"
        "with atomic_write(Path(sys.argv[1])) as t:\n    t.write_bytes(b'half')\n    os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, path], check=False).returncode == -9
    assert not path.exists()
    assert len(list(tmp_path.iterdir())) == 1
    others = [  # of running processes, other machines and other files
        tmp_path / f".a.bin.{socket.gethostname()}.{os.getppid()}.part",
        tmp_path / ".a.bin.another-machine.999999999.part",
        tmp_path / f".b.bin.{socket.gethostname()}.999999999.part",
    ]
    for other in others:
        other.touch()
    with atomic_write(path) as temporary:
        temporary.write_bytes(b"whole")
    assert set(tmp_path.iterdir()) == {path, *others}


def test_a_full_disk_leaves_the_old_file_or_nothing(tmp_path):
    bag, path, old = Bag("s", torch.ones(5000, 64)), tmp_path / "p.safetensors", Prototypes(torch.ones(2, 3))
    save_prototypes(old, path)
    with files_no_larger_than(10_000):
        for suffix in (".h5", ".npy", ".safetensors"):
            with pytest.raises(InputError, match=rf"s\{suffix}"):
                save_bag(bag, tmp_path / f"s{suffix}")
        with pytest.raises(InputError, match=r"p\.safetensors"):
            save_prototypes(Prototypes(torch.ones(200, 300)), path)
    assert torch.equal(load_prototypes(path).centroids, old.centroids)
    assert list(tmp_path.iterdir()) == [path]


def test_saved_prototypes_are_the_same_bytes_and_come_back(tmp_path):
    generator = np.random.default_rng(0)
    prototypes = Prototypes(
        torch.from_numpy(generator.normal(size=(4, 3)).astype(np.float32)),
        within_variance=torch.ones(3),
        encoder="uni_v1",
        slides=("a", "b"),
        settings={"seed": 0},
        diagnostics={"inertia": 1.5},
        parents="hash",
        version="0",
    )
    paths = [tmp_path / f"{i}.safetensors" for i in range(5)]
    for path in paths:
        save_prototypes(prototypes, path)
    assert len({path.read_bytes() for path in paths}) == 1
    there = load_prototypes(paths[0])
    assert torch.equal(there.centroids, prototypes.centroids)
    assert there.content_hash() == prototypes.content_hash()
    kept = ("encoder", "slides", "settings", "diagnostics", "parents", "version")
    assert [getattr(there, name) for name in kept] == [getattr(prototypes, name) for name in kept]


def test_a_folder_a_device_a_file_for_a_folder_and_a_protected_folder_are_refused(tmp_path):
    check_writable(tmp_path / "new" / "folder" / "a.h5ad")
    assert list(tmp_path.iterdir()) == []  # nothing is left behind
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "file").touch()
    for check, path in (
        (check_writable, Path("/proc/panther/a.h5ad")),
        (check_writable, tmp_path),
        (check_writable, pipe),
        (lambda path: atomic_write(path).__enter__(), pipe),
        (check_writable_folder, tmp_path / "file" / "inner"),
    ):
        with pytest.raises(InputError, match=str(path.parent)):
            check(path)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_json_of_any_text_comes_back_and_nan_is_refused(tmp_path):
    value = {"π": [1, 0.1, None], "slide": "Präparat \udc80"}  # the last is how Python holds a name that is no Unicode
    for name in ("a.json", "b.json"):
        write_json(tmp_path / name, value)
    content = (tmp_path / "a.json").read_bytes()
    assert content == (tmp_path / "b.json").read_bytes()
    assert json.loads(content.decode("utf-8")) == value
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            write_json(tmp_path / "c.json", [number])
    assert not (tmp_path / "c.json").exists()


def test_a_file_has_the_rights_that_other_files_of_the_user_have(tmp_path):
    (tmp_path / "plain").touch()
    with atomic_write(tmp_path / "model.safetensors") as temporary:
        save_file({"x": np.zeros(3, np.float32)}, temporary)
    assert (tmp_path / "model.safetensors").stat().st_mode == (tmp_path / "plain").stat().st_mode
