"""`panther slides` by several processes on one job folder, one of which is stopped in the middle of a slide and comes back late."""

import pytest

from faults.lab import Lab, until
from faults.slow_slides import features, start_slides, write_slow_slides

pytestmark = pytest.mark.slow


@pytest.fixture
def lab(tmp_path):
    lab = Lab(tmp_path / "lab")
    write_slow_slides(lab.folder)
    return lab


def test_three_at_once_one_of_which_is_killed(lab):
    start_slides(lab, "alone").wait()
    three = [start_slides(lab, "job") for _ in range(3)]
    until(lambda: any((lab.folder / "job").rglob("*_patches.h5")), "patches")
    three[0].kill()
    for command in three[1:]:
        command.wait()
    start_slides(lab, "job").wait()
    assert features(lab, "job") == features(lab, "alone")
    assert (lab.folder / "job" / "summary.csv").read_text().count(",done,") == 4
    lab.assert_clean()
