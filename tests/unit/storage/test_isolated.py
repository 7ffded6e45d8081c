"""A read that crashes or never ends costs one error, also in a process that is no worker."""

import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import panther
from panther.errors import InputError
from panther.machine import READ_LIMIT, reading
from panther.storage.embeddings import read_vectors, read_weights, write_embeddings
from panther.storage.isolated import call_isolated


def hang(path):
    with reading():
        ctypes.PyDLL(None).sleep(600)  # in C, and with Python's lock


def crash(path):
    with reading():
        ctypes.string_at(0)


def refuse(path):
    raise InputError(f"{path}: refused")


def process_and_folder(path):
    return os.getpid(), os.getcwd()


@pytest.fixture
def short_limit(monkeypatch):
    monkeypatch.setenv(READ_LIMIT, "1")


@pytest.mark.parametrize("fault", [hang, crash])
def test_a_read_that_crashes_or_never_ends_is_an_error_that_names_the_file(short_limit, fault, tmp_path, monkeypatch):
    begin = time.monotonic()
    with pytest.raises(InputError, match=r"bad\.h5ad"):
        call_isolated(fault, Path("bad.h5ad"))
    assert time.monotonic() - begin < 60
    monkeypatch.chdir(tmp_path)  # the next one works, in the folder of now
    assert call_isolated(process_and_folder, None) == (call_isolated(process_and_folder, None)[0], str(tmp_path))


def test_an_error_passes_through_and_the_process_is_kept():
    with pytest.raises(InputError, match="refused"):
        call_isolated(refuse, Path("x"))
    first, second = (call_isolated(process_and_folder, None)[0] for _ in range(2))
    assert first == second != os.getpid()


def test_ctrl_c_ends_a_read_that_hangs_and_leaves_no_process_behind(tmp_path):
    script = tmp_path / "script.py"  # without a guard, which worker processes would need
    script.write_text(
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # also where this session ignores it\n"
        "from storage import test_isolated as t\n"
        "print(t.call_isolated(t.process_and_folder, None)[0], flush=True)\n"
        "t.call_isolated(t.hang, 'x')\n"
    )
    process = subprocess.Popen(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    helper = int(process.stdout.readline())
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, err = process.communicate(timeout=20)
    assert "KeyboardInterrupt" in err
    with pytest.raises(ProcessLookupError):
        os.kill(helper, 0)


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("sound") / "s.h5ad"
    rng = np.random.default_rng(0)
    bags = {f"s{n}": rng.normal(size=(16, 6)).astype(np.float32) for n in range(12)}
    prototypes = panther.fit_prototypes(bags, n_prototypes=3)
    write_embeddings(panther.embed_cohort(bags, prototypes), path)
    return path


def test_embeddings_with_damaged_blocks_are_read_or_refused_in_time(short_limit, sound, tmp_path):
    content, path = sound.read_bytes(), tmp_path / "s.h5ad"
    for seed in range(12):
        rng, data = random.Random(seed), bytearray(content)
        one, other = (64 * rng.randrange(len(data) // 64) for _ in range(2))
        block = data[one : one + 64]
        data[one : one + 64] = data[other : other + 64] if seed % 2 else bytes(64)
        if seed % 2:
            data[other : other + 64] = block
        path.write_bytes(data)
        for read in (read_vectors, lambda path: read_weights(path, "n_patches")):
            begin = time.monotonic()
            with suppress(InputError):
                read(path)
            assert time.monotonic() - begin < 60, seed
