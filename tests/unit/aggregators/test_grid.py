"""Several methods on several prototypes in one pass: the bytes of separate passes, and one read per bag."""

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from panther import store
from panther.aggregators import aggregators, build, embed_bags, panther, pooling, sharing
from panther.aggregators.embed import Embedder, embed_grid
from panther.aggregators.sharing import placed
from panther.engine import LOCAL, open_work
from panther.errors import InputError
from panther.mixture import fit as fitting
from panther.storage.bags import as_bags, list_bags
from panther.storage.embeddings import EmbeddingTable
from panther.types import PatchSpec, Projection, Prototypes
from panther.verbs.embed import embed_cohort
from reading import CountedRef, Counts

DIM = 6
RNG = np.random.default_rng(0)


def prototypes(seed, normalise=False):
    centroids = torch.randn(3, DIM, generator=torch.Generator().manual_seed(seed))
    return Prototypes(centroids, torch.ones(DIM), projection=Projection(normalise=normalise))


EMBEDDERS = [
    Embedder(on, entry.name, options)
    for on in (prototypes(0), prototypes(1, normalise=True))
    for entry in aggregators
    for options in entry.metadata.variants[:2]
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "UNSETTLED_SECONDS", 0.0)
    (tmp_path / "feats").mkdir()
    for number in range(4):
        np.save(tmp_path / f"feats/s{number}.npy", RNG.normal(size=(40 + number, DIM)).astype("f2"))
    return tmp_path / "feats"


def count_calls(monkeypatch, module, name):
    """Count calls of a function of a module."""
    calls, function = Counter(), getattr(module, name)

    def call(*arguments, **options):
        calls[name] += 1
        return function(*arguments, **options)

    monkeypatch.setattr(module, name, call)
    return calls


def tables_of(listing, embedders=EMBEDDERS, work=LOCAL):
    return list(embed_grid(as_bags(listing).refs, embedders, work))


def assert_same(table, alone):
    assert table.samples == alone.samples
    assert table.observations == alone.observations
    assert table.failures == alone.failures
    assert table.contents == alone.contents
    np.testing.assert_array_equal(table.vectors, alone.vectors)
    np.testing.assert_array_equal(table.weights, alone.weights)


@pytest.mark.parametrize("spare", [True, False], ids=["held", "read by blocks"])
def test_one_pass_for_all_gives_the_bytes_of_separate_passes(folder, spare, monkeypatch):
    monkeypatch.setattr(sharing, "is_spare", lambda size: spare)
    for embedder, table in zip(EMBEDDERS, tables_of(folder), strict=True):
        assert_same(table, embed_cohort(folder, embedder.prototypes, embedder.method, **embedder.options))


def test_readouts_of_one_mixture_share_its_fit_without_changing_bytes(folder, monkeypatch):
    readouts = ("all", "wa", "top", "bottom")
    embedders = [
        Embedder(on, "panther", {"readout": readout, **more})
        for on in (prototypes(0), prototypes(1))
        for more in ({}, {"preset": "calibrated", "steps": 2})
        for readout in readouts
    ]
    alone = [embed_cohort(folder, one.prototypes, one.method, **one.options) for one in embedders]
    fits = count_calls(monkeypatch, panther, "fit_mixture")
    for table, expected in zip(tables_of(folder, embedders), alone, strict=True):
        assert_same(table, expected)
    assert fits["fit_mixture"] == 4 * len(embedders) / len(readouts)  # four bags


def test_mixtures_with_the_same_start_share_their_first_step_without_changing_bytes(folder, monkeypatch):
    alike = [{}, {"covariance": "spherical"}, {"tau": 0.5, "steps": 2}, {"blocks": ["space"], "readout": "wa"}]
    others = [{"temperature": 2.0}, {"preset": "calibrated"}, {"preset": "published-code", "blocks": ["tail"]}]
    on = replace(prototypes(0), surprise=torch.tensor([[10.0, 12.0]] * 3))
    bags = {ref.sample: with_places(ref.open()) for ref in list_bags(folder).refs}
    embedders = [Embedder(on, "panther", options) for options in (*alike, *others)]
    alone = [embed_cohort(bags, on, "panther", **one.options) for one in embedders]
    passes = count_calls(monkeypatch, fitting, "accumulate")
    for table, expected in zip(tables_of(bags, embedders), alone, strict=True):
        assert table.observations == expected.observations
        np.testing.assert_array_equal(table.vectors, expected.vectors)
    assert passes["accumulate"] == len(bags) * (1 + 1 + len(others))  # the shared step, one second step, the others


def test_distances_and_means_are_computed_once_for_all_methods(folder, monkeypatch):
    bases = prototypes(0), prototypes(1)
    methods = (
        ("ot", {}),
        ("protocounts", {}),
        ("ot", {"epsilon": 1.0}),
        ("protocounts", {"scale": "l2"}),
        ("deepsets", {}),
    )
    distances = count_calls(monkeypatch, sharing, "distances_to_prototypes")
    means = count_calls(monkeypatch, pooling, "accumulate")
    tables = tables_of(folder, [Embedder(on, *method) for on in bases for method in methods])
    bags = len(list_bags(folder).refs)
    assert (distances.total(), means.total()) == (bags * len(bases), bags)
    np.testing.assert_array_equal(tables[4].vectors, tables[9].vectors)  # DeepSets


def test_the_start_of_em_is_computed_once_for_all_bags(folder, monkeypatch):
    starts = count_calls(monkeypatch, sharing, "start_of")
    on, presets = prototypes(0), ("paper", "calibrated", "published-code")
    tables_of(folder, [Embedder(on, "panther", {"preset": preset}) for preset in presets])
    assert len(list_bags(folder).refs) > 1
    assert starts.total() == len(presets)


def test_distances_are_released_after_their_last_use(folder):
    on, bag = prototypes(0), list_bags(folder).refs[0].open()
    modules = [build("ot", on), build("protocounts", on)]
    shared = sharing.SharedBag(bag, sharing.SharedMethods([(on, module) for module in modules], "cpu"))
    held = []
    for module in modules:
        shared.embed(on, module)
        held.append(any("distances" in key for key in shared._made))
    assert held == [True, False]


def with_places(bag):
    """The bag on a line, for methods that read coordinates."""
    along = torch.arange(len(bag)) * 256
    places = torch.stack([along, torch.zeros_like(along)], 1)
    return replace(bag, places=lambda: places, spec=PatchSpec(size=256, size_level0=256))


def test_workers_give_the_same_bytes(folder):
    with open_work(1) as work:
        for here, there in zip(tables_of(folder), tables_of(folder, work=work), strict=True):
            assert_same(here, there)


def test_a_bag_is_opened_and_read_once_whatever_the_grid(folder):
    counts = Counts()
    tables_of([CountedRef(ref.files[0], counts) for ref in list_bags(folder).refs])
    assert counts.opened == ["s0", "s1", "s2", "s3"]
    assert counts.bytes == sum(40 + number for number in range(4)) * DIM * 2


def test_a_bag_fails_only_for_the_methods_that_cannot_embed_it(folder):
    np.save(folder / "s1.npy", np.full((5, DIM), 1e30, "f4"))  # its square is beyond float32
    np.save(folder / "s2.npy", np.full((5, DIM), np.nan, "f4"))
    np.save(folder / "s3.npy", np.empty((0, DIM), "f4"))
    kept = {}
    for embedder, table in zip(EMBEDDERS, tables_of(folder), strict=True):
        assert_same(table, embed_bags(folder, embedder.prototypes, embedder.method, embedder.options))
        assert list(table.failures)[-1] == "s3"
        kept.setdefault(embedder.method, table.samples)
    assert kept["panther"] == ["s0"]
    assert kept["deepsets"] == ["s0", "s1"]


def test_an_embedder_without_a_single_bag_does_not_stop_the_others(folder):
    other = Prototypes(torch.randn(3, DIM + 1))
    good, bad = tables_of(folder, [Embedder(prototypes(0)), Embedder(other)])
    assert isinstance(good, EmbeddingTable)
    assert isinstance(bad, InputError)
    with pytest.raises(InputError) as alone:
        embed_cohort(folder, other)
    assert str(bad) == str(alone.value)


def test_threads_that_share_a_module_move_it_once(monkeypatch):
    """A second move would free memory that other threads compute with, which made embeddings on a GPU wrong."""
    module = build("panther", Prototypes(torch.eye(3)))
    moves, move = [], module.to

    def slowly(device):
        moves.append(device)
        time.sleep(0.05)
        return move(device)

    monkeypatch.setattr(module, "to", slowly)
    with ThreadPoolExecutor(8) as threads:
        there = list(threads.map(lambda _: placed(module, torch.device("meta")), range(8)))
    assert moves == [torch.device("meta")]
    assert all(one.centroids.device.type == "meta" for one in there)
