"""Numbers, devices and tables that no run can have: a sentence, before the work."""

import errno
import math

import numpy as np
import pytest
import yaml

from hostile.judging import assert_honest, run_here
from hostile.lab import ON_FEATURES, STUDY
from panther.errors import InputError
from panther.evaluation.shift import site_shift
from panther.mixture import EMSettings
from panther.models.settings import TrainSettings
from panther.prototypes import KMeansSettings
from panther.storage.readers import base, open_bag

SEEDED = ("prototypes", "choose-c", "train", "atlas", "attribute")


def refused(lab, *arguments):
    done = run_here(arguments, lab)
    assert done.code == 2, done.text
    assert_honest(done)
    return done.err


@pytest.mark.parametrize("seed", [-1, 2**32, 2**63, 2**64, 10**30])
@pytest.mark.parametrize("command", SEEDED)
def test_a_seed_that_no_generator_takes_is_refused(lab, command, seed):
    refused(lab, *ON_FEATURES[command], "--seed", seed)


@pytest.mark.parametrize(
    "setting",
    [
        *("steps=1e9", "steps=1000000000", "steps=0", "steps=many", "steps=true", "steps=null", "steps=[1]"),
        *("tau=NaN", "tau=-1", "tau=abc", "temperature=0", "temperature=Infinity"),
        *("variance=-1", "variance=abc", "variance=NaN"),
    ],
)
def test_a_setting_of_the_mixture_that_makes_no_sense_is_refused(lab, setting):
    told = refused(lab, *ON_FEATURES["embed"], "--set", setting)
    assert setting.split("=")[0] in told


@pytest.mark.parametrize("setting", ["epsilon=0", "epsilon=NaN", "epsilon=abc", "iterations=1e9", "iterations=0"])
def test_a_setting_of_optimal_transport_that_makes_no_sense_is_refused(lab, setting):
    told = refused(lab, *ON_FEATURES["embed"], "--method", "ot", "--set", setting)
    assert setting.split("=")[0] in told


@pytest.mark.parametrize("device", ["meta", "nonsense", "cpu:x", ""])
@pytest.mark.parametrize("command", ["prototypes", "embed", "train"])
def test_a_device_that_cannot_compute_is_refused(lab, command, device):
    assert "device" in refused(lab, *ON_FEATURES[command], "--device", device)


@pytest.mark.parametrize("command", ["prototypes", "train"])
def test_no_prototypes_are_too_few(lab, command):
    refused(lab, *ON_FEATURES[command], "-C", 0)


@pytest.mark.parametrize(
    "change",
    [
        {"training": {"epochs": "abc"}},
        {"training": {"epochs": 0}},
        {"training": {"epochs": math.nan}},
        {"training": {"learning_rate": math.nan}},
        {"mil_training": {"seed": 2**63}},
        {"n_prototypes": [0]},
        {"n_prototypes": [math.nan]},
        {"prototypes": {"restarts": "many"}},
        {"train_sizes": [math.nan]},
        {"train_sizes": [math.inf]},
        {"seeds": [2**63]},
        {"seeds": [-1]},
        {"methods": [{"name": "panther", "steps": 1e9}]},
    ],
)
def test_a_number_of_a_study_that_makes_no_sense_is_refused(lab, change):
    content = {**STUDY, "heads": ["linear"], **change}
    (lab / "study.yaml").write_text(yaml.safe_dump(content))
    refused(lab, "run", "study.yaml", "-o", "out", "-j", 1)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1", b"slide_id,label\ns00,a\n"])
@pytest.mark.parametrize("command", ["embed", "train"])
def test_a_table_that_only_calls_itself_parquet_is_refused(lab, command, content):
    (lab / "table.parquet").write_bytes(content)
    arguments = [a for a in ON_FEATURES[command] if a not in ("--table", "table.csv")]
    assert "table.parquet" in refused(lab, *arguments, "--table", "table.parquet")


@pytest.mark.parametrize("code", [errno.ENOMEM, errno.EMFILE])
def test_a_machine_that_is_short_of_memory_or_handles_is_not_called_damage(lab, monkeypatch, code):
    def short(*given, **more):
        raise OSError(code, "Cannot allocate memory")

    monkeypatch.setattr(base.np, "memmap", short)
    with pytest.raises(InputError, match="cannot be read now"):
        open_bag(lab / "feats" / "s00.h5")


@pytest.mark.parametrize("settings", [{"steps": 2.0}, {"steps": True}, {"tau": math.inf}, {"temperature": "hot"}])
def test_settings_in_python_are_checked_as_well(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        EMSettings(**settings)


@pytest.mark.parametrize("settings", [{"n_prototypes": "3"}, {"seed": 2**40}, {"sample": 2.5}, {"memory_gb": math.nan}])
def test_settings_of_prototypes_are_checked_as_well(settings):
    with pytest.raises(InputError):
        KMeansSettings(**settings)


@pytest.mark.parametrize("settings", [{"epochs": "abc"}, {"batch_size": 1.5}, {"seed": -1}, {"patience": 0}])
def test_settings_of_training_are_checked_as_well(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        TrainSettings(**settings)


def test_a_site_shift_of_what_is_no_number_is_not_denied():
    weights = np.full((20, 3), 1 / 3)
    weights[4] = np.nan
    with pytest.raises(InputError, match="s4"):
        site_shift(weights, ["A", "B"] * 10, [f"s{n}" for n in range(20)])
