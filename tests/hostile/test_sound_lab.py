"""The yardstick of all other tests here: on the sound cohort every command succeeds."""

import pytest

from hostile.judging import assert_honest, run_here
from hostile.lab import ON_FEATURES, WITH_TABLE


@pytest.mark.parametrize("arguments", dict.fromkeys([*ON_FEATURES.values(), *WITH_TABLE.values()]), ids=" ".join)
def test_a_command_accepts_sound_files(lab, arguments):
    done = run_here(arguments, lab)
    assert_honest(done)
    assert done.code == 0, done.text
