"""A damaged feature file is named and counted by every command that lists feature files, and the rest of the cohort goes on."""

import os
import shutil
import time
from pathlib import Path

import pytest

from hostile.damage import FEATURE_DAMAGE, OTHER_DAMAGE, coordinates_only
from hostile.judging import assert_goes_on, run_apart, run_here
from hostile.lab import ON_FEATURES, WITH_TABLE
from panther.engine import map_slides, open_executor
from panther.errors import InputError
from panther.storage.readers import open_bag

LOST = "s05"


@pytest.mark.parametrize("damage", [*FEATURE_DAMAGE, *OTHER_DAMAGE])
def test_a_damaged_file_is_refused_quickly_and_named(tmp_path, sound_lab, damage):
    suffix, write = OTHER_DAMAGE.get(damage) or (".h5", FEATURE_DAMAGE[damage])
    path = tmp_path / f"{LOST}{suffix}"
    shutil.copy(sound_lab / "feats" / f"{LOST}.h5", path)
    write(path)
    before = time.process_time()
    with pytest.raises(InputError, match=LOST) as caught:
        open_bag(path)
    assert type(caught.value) is InputError  # never "not a bag", which is passed over
    assert time.process_time() - before < 5


@pytest.mark.parametrize("command", ON_FEATURES)
def test_every_command_counts_damaged_files_and_goes_on(lab, command):
    """All kinds at once, each in a file of its own, so that no command can lose one of them."""
    kinds = [
        "zeros",
        "HTML",
        "dangling link",
        "features that are a group",
        "external link",
        "half written",
        "raw pickle",
    ]
    lost = []
    for number, kind in enumerate(kinds):
        lost.append(f"x{number}")
        path = lab / "feats" / f"x{number}.h5"
        shutil.copy(lab / "feats" / "s05.h5", path)
        FEATURE_DAMAGE[kind](path)
    if command in ("train", "run"):  # what no table names is not asked for
        with (lab / "table.csv").open("a") as handle:
            handle.writelines(f"q{n},{name},{'ab'[n % 2]},100,0\n" for n, name in enumerate(lost))
    assert_goes_on(run_here(ON_FEATURES[command], lab), lost)


@pytest.mark.parametrize("command", WITH_TABLE)
def test_a_slide_that_the_table_names_is_never_passed_over(lab, command):
    coordinates_only(lab / "feats" / f"{LOST}.h5")
    (lab / "feats" / "s07.h5").unlink()
    assert_goes_on(run_here(WITH_TABLE[command], lab), [LOST, "s07"])


def cut_and_read(path: Path) -> float:
    """What another program does to a file that is mapped."""
    bag = open_bag(path)
    os.truncate(path, 0)
    return float(bag.features[:16].sum())


def test_a_file_truncated_while_it_is_mapped_costs_only_itself(lab):
    files = [lab / "feats" / f"{LOST}.h5", lab / "feats" / "s06.h5"]
    with open_executor(1) as executor:
        lost, also = map_slides(cut_and_read, files, executor)
        (kept,) = map_slides(str, ["the rest goes on"], executor)
    # the second attempt finds an empty file and says so; where the page is still in memory nothing happens at all
    for outcome, file in ((lost, files[0]), (also, files[1])):
        assert outcome.reason is None or str(file) in outcome.reason
    assert kept.value == "the rest goes on"


# In every process of the command, workers included: reading the file of one slide crashes, or never ends and keeps Python's lock.
TREACHEROUS = """
import ctypes, os, signal, h5py
_init = h5py.File.__init__
def treacherous(self, name, *args, **options):
    if "s05" in str(name):
        {act}
    _init(self, name, *args, **options)
h5py.File.__init__ = treacherous
"""
ACTS = {"crashes": "os.kill(os.getpid(), signal.SIGSEGV)", "never ends": "ctypes.PyDLL(None).pause()"}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(
    "command",
    [pytest.param(name, marks=() if name == "embed" else pytest.mark.slow) for name in ON_FEATURES],
)
def test_a_file_that_crashes_or_blocks_the_library_is_named_and_the_rest_goes_on(lab, command, act):
    (lab / "site").mkdir()
    (lab / "site" / "sitecustomize.py").write_text(TREACHEROUS.format(act=ACTS[act]))
    places = os.pathsep.join([str(lab / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = run_apart(ON_FEATURES[command], lab, env={"PANTHER_READ_LIMIT": "3", "PYTHONPATH": places})
    assert_goes_on(done, [LOST])
    assert "SIGSEGV" in done.err or "PANTHER_READ_LIMIT" in done.err
