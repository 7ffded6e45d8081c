"""A short, seeded share of `make fuzz`."""

import random

from hostile.fuzz import OTHERS, fuzz_bags, mutate


def test_every_one_of_a_hundred_damaged_feature_files_comes_out_or_is_named(tmp_path, sound_lab):
    lost, done = fuzz_bags(tmp_path, sound_lab / "p.safetensors", random.Random(1), 100)
    assert not lost, done.text
    assert done.code == 1


def test_a_mutant_is_the_same_for_the_same_seed_and_mostly_differs_from_the_file():
    content = bytes(range(256)) * 8
    first = [mutate(content, random.Random(seed)) for seed in range(50)]
    assert first == [mutate(content, random.Random(seed)) for seed in range(50)]
    assert sum(one != content for one in first) > 45


def test_every_target_has_a_command():
    assert all(arguments for _, _, arguments in OTHERS.values())
