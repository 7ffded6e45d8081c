"""Numbers, devices and tables that no run can have: a sentence, before the work."""

import errno

import pytest

from hostile.judging import assert_honest, run_here
from hostile.lab import ON_FEATURES
from panther.errors import InputError
from panther.storage.readers import base, open_bag


def refused(lab, *arguments):
    done = run_here(arguments, lab)
    assert done.code == 2, done.text
    assert_honest(done)
    return done.err


MIXTURE = (
    *("steps=1e9", "steps=1000000000", "steps=0", "steps=many", "steps=true", "steps=null", "steps=[1]"),
    *("tau=NaN", "tau=-1", "tau=abc", "temperature=0", "temperature=Infinity"),
    *("variance=-1", "variance=abc", "variance=NaN"),
)
TRANSPORT = ("epsilon=0", "epsilon=NaN", "epsilon=abc", "iterations=1e9", "iterations=0")


@pytest.mark.parametrize(("method", "setting"), [*(("panther", s) for s in MIXTURE), *(("ot", s) for s in TRANSPORT)])
def test_an_impossible_setting_of_a_method_is_refused_by_name(lab, method, setting):
    message = refused(lab, *ON_FEATURES["embed"], "--method", method, "--set", setting)
    assert setting.split("=")[0] in message


@pytest.mark.parametrize("device", ["meta", "nonsense", "cpu:x", ""])
@pytest.mark.parametrize("command", ["prototypes", "embed", "train"])
def test_a_device_that_cannot_compute_is_refused(lab, command, device):
    assert "device" in refused(lab, *ON_FEATURES[command], "--device", device)


@pytest.mark.parametrize("code", [errno.ENOMEM, errno.EMFILE])
def test_a_machine_that_is_short_of_memory_or_handles_is_not_called_damage(lab, monkeypatch, code):
    def short(*given, **more):
        raise OSError(code, "Cannot allocate memory")

    monkeypatch.setattr(base.np, "memmap", short)
    with pytest.raises(InputError, match="cannot be read now"):
        open_bag(lab / "feats" / "s00.h5")
