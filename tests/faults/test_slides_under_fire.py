"""`panther slides` by several processes on one job folder, one of which is stopped in the middle of a slide and comes back late."""

import os
import signal

import pytest

from faults.lab import SOURCE, Lab, until
from slides.phantoms import tissue_slide, write_pyramid

pytestmark = pytest.mark.slow

ENCODER = """
import time, torch

class Colours(torch.nn.Module):
    size = 32

    def forward(self, images):
        time.sleep(0.2)
        return torch.nn.functional.adaptive_avg_pool2d(images, 2).flatten(1)
"""
SLIDES = ("slides", "slides", "--encoder", "slowly:Colours", "--patch-size", 64, "--mpp", 4, "--batch", 4, "-j", 1)
SLIDES += ("--device", "cpu")


@pytest.fixture
def lab(tmp_path):
    lab = Lab(tmp_path / "lab")
    (lab.folder / "slides").mkdir(parents=True)
    image, _ = tissue_slide()
    for number in range(4):
        write_pyramid(lab.folder / "slides" / f"S{number}.tif", image[:, : 900 - 20 * number], 4.0)
    (lab.folder / "slowly.py").write_text(ENCODER)
    return lab


def start(lab, job):
    env = {"PYTHONPATH": f"{SOURCE}{os.pathsep}{lab.folder}", "PANTHER_LOCK_LIMIT": "3"}
    return lab.start(*SLIDES, "-o", job, apart=True, env=env)


def features(lab, job):
    found = {path.name: path.read_bytes() for path in (lab.folder / job).rglob("*.h5")}
    assert len(found) == 8  # features and patches
    return found


def test_one_that_was_stopped_in_a_slide_comes_back_after_another_has_done_it(lab, tally):
    start(lab, "alone").wait()
    stopped = start(lab, "job")
    until(
        lambda: (
            [path for path in (lab.folder / "job").rglob("rows") if path.stat().st_size] or stopped.code is not None
        ),
        "rows",
    )
    for process in [*lab.others(stopped), stopped.process]:
        process.send_signal(signal.SIGSTOP)
    start(lab, "job").wait()
    assert features(lab, "job") == features(lab, "alone")
    for process in [*lab.others(stopped), stopped.process]:
        process.send_signal(signal.SIGCONT)
    stopped.wait()
    assert features(lab, "job") == features(lab, "alone")
    assert (lab.folder / "job" / "summary.csv").read_text().count(",done,") == 4
    lab.assert_clean()
    tally("`slides` stopped (SIGSTOP) in a slide and back after another has done it")


def test_three_at_once_one_of_which_is_killed(lab, tally):
    start(lab, "alone").wait()
    three = [start(lab, "job") for _ in range(3)]
    until(lambda: any(path.stat().st_size for path in (lab.folder / "job").rglob("rows")), "rows")
    killed = three[0].kill()
    for command in three[1:]:
        command.wait()
    start(lab, "job").wait()
    assert features(lab, "job") == features(lab, "alone")
    assert (lab.folder / "job" / "summary.csv").read_text().count(",done,") == 4
    lab.assert_clean()
    tally("one of three `slides` on the same folder killed (-9)", int(killed))
