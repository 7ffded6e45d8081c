"""The yardstick of all other tests here: on the sound cohort every command is content."""

import pytest

from hostile.judging import assert_honest, run_apart, run_here
from hostile.lab import ON_FEATURES, WITH_TABLE


@pytest.mark.parametrize("command", ON_FEATURES)
def test_a_command_is_content_with_sound_files(lab, command):
    done = run_here(ON_FEATURES[command], lab)
    assert_honest(done)
    assert done.code == 0, done.text


@pytest.mark.parametrize("command", WITH_TABLE)
def test_a_command_is_content_with_sound_files_and_their_table(lab, command):
    done = run_here(WITH_TABLE[command], lab)
    assert_honest(done)
    assert done.code == 0, done.text


def test_a_command_that_hangs_or_crashes_is_caught(lab):
    assert run_apart(("inspect", "feats"), lab, limit=0.01).timed_out
    done = run_apart(("inspect", "nothing"), lab)
    assert (done.code, done.timed_out) == (2, False)
    with pytest.raises(AssertionError):
        assert_honest(done, lost=["s00"])
