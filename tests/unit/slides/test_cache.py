"""Copies of slides on a local disk: whole, in time, never more than allowed, and gone afterwards; results do not know of them."""

import errno
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli.running import Runner
from panther.errors import InputError
from panther.slides import Job, SlideRef, list_slides, run_job
from panther.slides import cache as module
from panther.slides.cache import SlideCache, remove_copy
from panther.slides.listing import SERIES, files_read


def make(folder: Path, **sizes: int) -> list[SlideRef]:
    folder.mkdir(exist_ok=True)
    for name, size in sizes.items():
        (folder / f"{name}.svs").write_bytes(os.urandom(size))
    return [SlideRef(folder / f"{name}.svs", name) for name in sizes]


def held(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.svs"))


def test_slides_come_in_their_order_with_copies_that_never_exceed_the_limit(tmp_path):
    refs = make(tmp_path / "slow", a=400, b=300, c=10, d=900, e=300, done=100, f=700)
    seen = []
    with SlideCache(tmp_path / "fast", 700) as cache:
        for slide in cache.ahead(refs, lambda ref: ref.name != "done"):
            seen.append((slide.name, slide.copy is not None))
            assert held(tmp_path / "fast") <= 700
            if slide.copy is not None:
                assert slide.copy.name == slide.path.name
                assert slide.copy.read_bytes() == slide.path.read_bytes()
                assert slide.copy.stat().st_mtime_ns == slide.path.stat().st_mtime_ns
            remove_copy(slide)
    copied = [True, True, True, False, True, False, True]
    assert seen == list(zip(["a", "b", "c", "d", "e", "done", "f"], copied, strict=True))
    assert len(cache.notes) == 1
    assert "more than `cache_size=`" in cache.notes[0]
    assert list((tmp_path / "fast").iterdir()) == []


def test_the_next_slide_is_copied_while_one_is_worked_on(tmp_path):
    with SlideCache(tmp_path / "fast", 1000) as cache:
        coming = cache.ahead(make(tmp_path / "slow", a=400, b=300), lambda ref: True)
        next(coming)
        for _ in range(600):
            if list((tmp_path / "fast").rglob("b.svs")):
                break
            cache._stop.wait(0.1)
        assert list((tmp_path / "fast").rglob("b.svs"))
        coming.close()


def test_on_a_full_disk_slides_are_read_in_place_with_one_note(tmp_path, monkeypatch):
    def full(source, target, stopped):
        target.parent.mkdir(parents=True)
        target.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module, "copy_file", full)
    refs = make(tmp_path / "slow", a=400, b=300, c=200)
    with SlideCache(tmp_path / "fast") as cache:
        assert list(cache.ahead(refs, lambda ref: True)) == refs
        assert held(tmp_path / "fast") == 0
    assert len(cache.notes) == 1
    assert "No space left on device" in cache.notes[0]


def test_a_source_that_cannot_be_read_is_left_to_whoever_opens_it(tmp_path):
    refs = make(tmp_path / "slow", a=400, b=300)
    refs[0].path.unlink()
    with SlideCache(tmp_path / "fast") as cache:
        gone, there = list(cache.ahead(refs, lambda ref: True))
    assert (gone.copy, there.copy is None) == (None, False)


KEEP = """
import sys, time
from pathlib import Path
from panther.slides.cache import SlideCache
from panther.slides import SlideRef
with SlideCache(Path(sys.argv[1])) as cache:
    for slide in cache.ahead([SlideRef(Path(sys.argv[2]), "a")], lambda ref: True):
        print(slide.copy, flush=True)
        time.sleep(600)
"""


def test_copies_of_a_killed_process_are_swept_away_and_those_of_a_living_one_are_not(tmp_path):
    (ref,) = make(tmp_path / "slow", a=400)
    fast = tmp_path / "fast"
    command = [sys.executable, "-c", KEEP, fast, ref.path]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stdout is not None
    copy = Path(process.stdout.readline().strip())
    with SlideCache(fast):
        assert copy.exists()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert copy.exists()
    with SlideCache(fast):
        assert not copy.exists()
    assert list(fast.iterdir()) == []


def test_all_files_of_a_slide_are_copied(tmp_path):
    def touch(*names):
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(b"x")

    def read(name):
        return {path.relative_to(tmp_path).as_posix() for path in files_read(tmp_path / name)}

    touch("m.mrxs", "m/Slidedat.ini", "m/Data0000.dat", "other.mrxs", "v.jpg", "v_map.jpg", "w.jpg", "one.svs")
    assert read("m.mrxs") == {"m.mrxs", "m/Slidedat.ini", "m/Data0000.dat"}
    assert read("one.svs") == {"one.svs"}
    (tmp_path / "v.vms").write_text(
        "[Virtual Microscope Specimen]\nImageFile=v.jpg\nMapFile=v_map.jpg\nName=../w.jpg\n"
    )
    assert read("v.vms") == {"v.vms", "v.jpg", "v_map.jpg"}
    for name, series in (("d/1.dcm", b"1.2"), ("d/2.dcm", b"1.3"), ("d/3.dcm", b"1.2")):
        (tmp_path / "d").mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"DICM" + SERIES + len(series).to_bytes(2, "little") + series)
    assert read("d/1.dcm") == {"d/1.dcm", "d/3.dcm"}
    assert read("d") == {"d/1.dcm", "d/2.dcm", "d/3.dcm"}


@dataclass(frozen=True)
class Pixels:
    """A step that writes down a slide's pixels, and where they were read."""

    folder: Path
    name: str = "features"
    read: list[Path] = field(default_factory=list)

    def done(self, files):
        return (self.folder / files.slide.name).exists()

    def run(self, files):
        with files.slide.open() as image:
            self.read.append(image.path)
            (self.folder / files.slide.name).write_bytes(image.thumbnail(64).tobytes())

    def about(self, files):
        return {}


def test_results_do_not_know_whether_there_was_a_copy(tmp_path):
    slides = tmp_path / "slides"
    slides.mkdir()
    rng = np.random.default_rng(0)
    for name in ("a", "b", "c"):
        Image.fromarray(rng.integers(0, 255, (96, 128, 3), np.uint8)).save(slides / f"{name}.tif")
    (slides / "torn.tif").write_bytes(b"II*\0")
    refs, found, rows = list_slides([slides], mpp=0.5).refs, [], []
    for name in ("cached", "in place"):
        (tmp_path / name).mkdir()
        step = Pixels(tmp_path / name)
        with SlideCache(tmp_path / "fast") as cache:
            given = cache if name == "cached" else None
            report = run_job(refs, [step], Job(tmp_path / f"{name} job"), cache=given)
        found.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
        rows.append(report.rows)
        assert {path.is_relative_to(tmp_path / "fast") for path in step.read} == {name == "cached"}
    assert found[0] == found[1]
    assert rows[0] == rows[1]
    assert set(found[0]) == {"a", "b", "c"}


def test_a_sentence_is_about_the_slide_and_not_about_its_copy(tmp_path):
    refs = make(tmp_path / "slow", a=400)

    class Refusing(Pixels):
        def run(self, files):
            raise InputError(f"{files.slide.read_from}: torn.")

    with SlideCache(tmp_path / "fast") as cache:
        report = run_job(refs, [Refusing(tmp_path)], Job(tmp_path / "job"), cache=cache)
    assert report.failures == {"a": f"{refs[0].path}: torn."}


def test_a_place_that_cannot_be_is_refused_before_the_work(tmp_path, monkeypatch, capsys):
    refs = make(tmp_path / "slow", a=400)
    panther = Runner(monkeypatch, capsys)
    words = ("slides", tmp_path / "slow", "-o", tmp_path / "job", "--encoder", "lite0", "--cache")
    assert "cannot be written" in panther(*words, refs[0].path / "x", code=2)[1]
    assert "cache" in panther(*words, tmp_path, "-j", "tcp://127.0.0.1:9", code=2)[1]
    assert not (tmp_path / "job").exists()


@pytest.mark.slow
def test_features_have_the_same_bytes_with_and_without_a_cache(shared_data, tmp_path, monkeypatch, capsys):
    panther = Runner(monkeypatch, capsys)
    slides = [shared_data / "slides" / name for name in ("CMU-1-Small-Region.svs", "CMU-1-dicom")]
    for job, more in (("plain", ()), ("cached", ("--cache", tmp_path / "fast", "--cache-size", "0.05"))):
        panther("slides", *slides, "-o", tmp_path / job / "job", "--encoder", "lite0", *more)
    files = {
        job: {p.relative_to(tmp_path / job): p.read_bytes() for p in (tmp_path / job).rglob("*") if p.is_file()}
        for job in ("plain", "cached")
    }
    assert files["plain"] == files["cached"]
    assert list((tmp_path / "fast").iterdir()) == []
