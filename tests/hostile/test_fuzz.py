"""A short, seeded share of `make fuzz`."""

import random

from hostile.fuzz import fuzz_bags


def test_every_one_of_a_hundred_damaged_feature_files_comes_out_or_is_named(tmp_path, sound_lab):
    lost, done = fuzz_bags(tmp_path, sound_lab / "p.safetensors", random.Random(1), 100)
    assert not lost, done.text
    assert done.code == 1
