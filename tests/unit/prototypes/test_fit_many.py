"""Many fits that walk a cohort together: each as if it were alone, every bag read once for all."""

import os
import signal
import weakref
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mixture_bags import mixture_bag
from panther import fit_prototypes
from panther.engine import LOCAL, Work, open_executor
from panther.errors import InputError
from panther.machine import cores
from panther.prototypes import KMeansSettings, fit, fit_bags, fit_many
from panther.prototypes.kmeans import kmeans_many
from panther.prototypes.patches import choose_rows, draw_patches, plan_draw, scan_bags
from panther.storage.bags import list_bags
from panther.storage.prototypes import save_prototypes
from panther.types import Bag
from reading import Counts, counted

SETTINGS = KMeansSettings(4, sample=600, restarts=2, passes=2)


@dataclass(frozen=True, eq=False)
class Counted:
    """A bag that counts how often it is opened and what is read of it."""

    bag: Bag
    counts: Counts = field(default_factory=Counts)
    files: tuple[Path, ...] = ()

    @property
    def sample(self):
        return self.bag.sample

    @property
    def opened(self):
        return len(self.counts.opened)

    def open(self):
        return counted(self.bag, self.counts)


def cohort(slides=8, n=700, d=8):
    return [Bag(f"s{i}", mixture_bag(n, d, 4, separation=1.0, seed=i)[0]) for i in range(slides)]


def grid(bags):
    """Folds, seeds, numbers, projections and passes that differ."""
    first, second = bags[:6], bags[2:]
    return [
        (first, SETTINGS),
        (second, SETTINGS),
        (first, replace(SETTINGS, seed=1)),
        (first, replace(SETTINGS, n_prototypes=6, passes=3)),
        (second, replace(SETTINGS, normalise=True, share="equal")),
        (second, replace(SETTINGS, pca=3, passes=0)),
    ]


def saved(fitted, path: Path) -> bytes:
    save_prototypes(fitted.prototypes, path)
    return path.read_bytes()


def test_each_fit_has_the_bytes_that_it_has_alone(tmp_path):
    fits = grid(cohort())
    together = fit_many(fits)
    alone = [fit_bags(*fit) for fit in fits]
    assert [saved(f, tmp_path / "a") for f in together] == [saved(f, tmp_path / "a") for f in alone]
    assert len({f.prototypes.content_hash() for f in together}) == len(fits)
    bags, settings = fits[0]  # in whatever order slides are listed
    assert saved(fit_bags(bags[::-1], settings), tmp_path / "a") == saved(together[0], tmp_path / "a")


def test_a_bag_is_opened_and_read_once_a_walk_whatever_the_number_of_fits():
    bags = [Counted(bag) for bag in cohort()]
    fits = grid(bags)
    walks = 2 + max(settings.passes for _, settings in fits) + 1  # look, sample, passes, measure
    fit_many(fits)
    for bag in bags:
        assert bag.opened <= walks
        assert bag.counts.bytes <= (walks - 1) * len(bag.bag) * 8 * 4  # looking reads no rows


def test_fits_walk_in_groups_where_a_job_has_little_memory_and_equal_samples_are_held_once(tmp_path, monkeypatch):
    bags = [Counted(bag) for bag in cohort(n=300)]
    fits = [(bags, replace(SETTINGS, seed=seed)) for seed in range(4)]
    usual = [saved(f, tmp_path / "a") for f in fit_many(fits)]
    before = bags[0].opened
    monkeypatch.setattr(fit, "free_memory", lambda: int(600 * 8 * 4 * 4.5) + fit.WORKER_BYTES * cores())
    assert [saved(f, tmp_path / "a") for f in fit_many(fits)] == usual
    assert bags[0].opened - before == 1 + 2 * (1 + SETTINGS.passes + 1)  # four samples, two at a time
    before, room = bags[0].opened, 600 * 8 * 4 * 2.5 / 1e9  # one sample and its copy
    fit_many([(bags, replace(SETTINGS, n_prototypes=c, memory_gb=room)) for c in (2, 3, 4, 5)])
    assert bags[0].opened - before == 1 + 1 + SETTINGS.passes + 1  # one group


def test_folds_hold_the_patches_that_they_have_in_common_once():
    bags = cohort(5, n=300)
    folds = [bags[:4], bags[1:]]
    draws = [plan_draw(fold, scan_bags(fold, LOCAL), SETTINGS) for fold in folds]
    first, second = draw_patches(draws, LOCAL)
    assert len(first) == len(second) == SETTINGS.sample
    members, other = first.parts[1], second.parts[0]  # of s1
    assert members.rows is other.rows
    assert len(members.rows) == len(members.pick)  # both drew the same
    assert sum((draws[0].parts() | draws[1].parts()).values()) == 5 / 4 * draws[0].nbytes
    names = torch.tensor([0, 1, 2, 3]).repeat_interleave(150)
    assert torch.equal(second.owner, names)
    rows = torch.cat([b.features[choose_rows(b.sample, 300, 150, SETTINGS.seed)] for b in folds[1]])
    assert torch.equal(second.gathered(), rows)


@pytest.mark.parametrize(("settings", "drawn"), [({}, 0), ({"normalise": True}, 0), ({"seed": 1}, 8)])
def test_drawn_patches_are_freed_where_no_fit_gathers_them_again(settings, drawn, monkeypatch):
    rows, held = [], []

    def draw(*arguments):
        samples = draw_patches(*arguments)
        rows.extend(weakref.ref(part.rows) for sample in samples for part in sample.parts)
        return samples

    def solve(*arguments):
        held.append(len({id(there()) for there in rows if there() is not None}))
        return kmeans_many(*arguments)

    monkeypatch.setattr("panther.prototypes.fit.draw_patches", draw)
    monkeypatch.setattr("panther.prototypes.fit.kmeans_many", solve)
    bags = cohort()
    others = [(bags, SETTINGS)] if settings == {"seed": 1} else []
    fit_many([(bags, replace(SETTINGS, **settings)), *others])
    assert held == [drawn]


def test_an_impossible_fit_does_not_stop_the_others(tmp_path):
    bags = cohort()
    nothing = [Bag("none", torch.empty(0, 8))]
    same = [Bag("same", torch.ones(50, 8))]
    broken = [Bag("nan", torch.full((700, 8), torch.nan))]
    late = Bag("late", bags[0].features.clone())
    late.features[650, 3] = torch.inf
    fits = [
        (nothing, SETTINGS),
        (bags, SETTINGS),
        (same, SETTINGS),
        (broken, SETTINGS),
        ([late], replace(SETTINGS, sample=4, n_prototypes=2)),  # the row is not in the sample
        (bags[:1], replace(SETTINGS, pca=50)),
        ([*bags, late], SETTINGS),
        ([bags[0], Bag("odd", torch.randn(50, 5))], SETTINGS),
    ]
    result = fit_many(fits)
    culprits = ("features", None, "n_prototypes: 4", "features", "No slide", "pca: 50", None, "features")
    for outcome, culprit in zip(result, culprits, strict=True):
        assert isinstance(outcome, InputError) == (culprit is not None)
        assert culprit is None or culprit in str(outcome)
    assert list(result[6].failures) == ["late"]
    assert "row 650" in result[6].failures["late"]
    assert saved(result[1], tmp_path / "a") == saved(fit_bags(bags, SETTINGS), tmp_path / "a")
    small = [Bag(bag.sample, bag.features[:, :5].contiguous(), encoder="other") for bag in bags]  # of the same names
    assert [f.prototypes.dim for f in fit_many([(bags, SETTINGS), (small, SETTINGS)])] == [8, 5]


@dataclass(frozen=True)
class Deadly:
    """A file that kills the process that reads it."""

    sample: str
    files: tuple[Path, ...] = ()

    def open(self):
        os.kill(os.getpid(), signal.SIGKILL)


def test_workers_give_the_same_bytes_and_a_bag_that_kills_one_fails_alone(tmp_path):
    for bag in cohort():
        np.save(tmp_path / f"{bag.sample}.npy", bag.features.numpy())
    refs = list_bags(tmp_path).refs
    fits = [(refs[:6], SETTINGS), ([*refs[2:], Deadly("s9")], SETTINGS), ([Deadly("s9")], SETTINGS)]
    with open_executor(2) as executor:
        one, other, none = fit_many(fits, work=Work(executor))
    assert saved(one, tmp_path / "a") == saved(fit_bags(refs[:6], SETTINGS), tmp_path / "a")
    assert saved(other, tmp_path / "a") == saved(fit_bags(refs[2:], SETTINGS), tmp_path / "a")
    assert list(other.failures) == ["s9"]
    assert isinstance(none, InputError)


def test_no_fits_give_nothing_and_no_bags_are_refused():
    assert fit_many([]) == []
    with pytest.raises(InputError, match="features"):
        fit_prototypes([])
    with pytest.raises(InputError, match="features"):
        fit_bags([], SETTINGS)
