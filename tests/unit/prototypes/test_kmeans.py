"""K-means and the sampling before it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans

from mixture_bags import mixture_bag
from panther.errors import InputError
from panther.prototypes.kmeans import _lloyd_in_torch, _lloyd_on_gpu, energies, kmeans, lloyd, plus_plus
from panther.prototypes.patches import allocate, choose_rows
from panther.statistics import compiled
from panther.statistics.compiled import compiled_kernel


def inertia(x, centroids):
    return float(torch.cdist(x.double(), centroids.double()).amin(1).square().sum())


@pytest.fixture(params=["torch", "auto"])
def kernel(request, monkeypatch):
    """Both ways to iterate, where there is a compiled one."""
    monkeypatch.setenv("PANTHER_KERNEL", request.param)


@pytest.mark.parametrize("offset", [0.0, 300.0])
def test_inertia_is_as_low_as_scikit_learns(offset):
    x, _ = mixture_bag(3000, 16, 10, separation=1.0, offset=offset)
    best, inertias = kmeans(x, 10, seed=0, restarts=5)
    reference = KMeans(10, n_init=5, random_state=0).fit(x.double().numpy())
    assert inertia(x, best.centroids) <= reference.inertia_ * 1.005
    assert best.inertia == pytest.approx(inertia(x, best.centroids), rel=1e-3)
    assert len(inertias) == 5
    assert best.inertia == min(inertias)


def test_lloyd_from_the_same_start_ends_where_scikit_learn_ends(kernel):
    x, h = mixture_bag(1500, 8, 6, separation=2.0)
    start = h + 0.5
    ours = lloyd_from(x.double(), start.double())
    reference = KMeans(6, init=start.double().numpy(), n_init=1, tol=0, max_iter=300).fit(x.double().numpy())
    assert ours.inertia == pytest.approx(float(reference.inertia_), rel=1e-9)
    assert ours.centroids.numpy() == pytest.approx(reference.cluster_centers_, abs=1e-9)


@pytest.mark.parametrize(("separation", "offset"), [(0.3, 0.0), (0.3, 300.0), (30.0, 0.0)])
def test_bounds_skip_no_patch_that_has_a_nearer_centroid(separation, offset, kernel):
    x, _ = mixture_bag(3000, 24, 12, separation=separation, offset=offset)
    result = lloyd_from(x, x[:12].clone())
    z, c = x.double() - x.double().mean(0), result.centroids.double() - x.double().mean(0)
    label = torch.cdist(z, c).argmin(1)
    means = torch.stack([z[label == k].mean(0) for k in range(12)])
    assert (means - c).abs().max() < 1e-3 * z.std()  # a fixed point of plain Lloyd, but for rounding
    assert result.inertia == pytest.approx(inertia(z, c), rel=1e-4)


def lloyd_from(x, start, **more):
    origin = x.mean(0)
    return lloyd(x, [start], origin, energies(x, origin), **more)[0]


@pytest.mark.parametrize("clusters", [3, 16, 21])
@pytest.mark.parametrize("bad", [torch.nan, 1e30])
def test_a_patch_without_finite_distances_gets_a_valid_cluster(bad, clusters):
    library = compiled_kernel()
    if library is None:
        pytest.skip("there is no compiled kernel")
    x, _ = mixture_bag(200, 12, 3)
    x[7] = bad
    run = compiled.CompiledRun(library, x, x[20 : 20 + clusters], x[20:].mean(0), energies(x, x[20:].mean(0)), 1)
    compiled.iterate(library, [run], x.dtype)
    assert float(run.sums.mass.sum()) == 200


def test_an_empty_cluster_is_moved_to_where_patches_are(kernel):
    x, _ = mixture_bag(400, 4, 3, separation=5.0)
    lost = torch.full((1, 4), 1e4)
    centroids = lloyd_from(x, torch.cat([x[:2], lost]), max_iterations=50).centroids
    owner = torch.cdist(x, centroids).argmin(1)
    assert len(owner.unique()) == 3


@pytest.mark.parametrize("most", [1, 300])
@pytest.mark.parametrize(
    ("rows", "dim", "clusters"), [(70, 3, 1), (500, 5, 3), (777, 33, 17), (300, 130, 40), (900, 200, 9)]
)
def test_iterations_in_c_are_those_of_torch(rows, dim, clusters, most, monkeypatch):
    x, _ = mixture_bag(rows, dim, clusters, separation=1.0)
    x, result = x.double(), {}  # in float32 a patch between two centroids may go either way
    for kernel in ("torch", "auto"):
        monkeypatch.setenv("PANTHER_KERNEL", kernel)
        result[kernel] = lloyd_from(x, x[:clusters].clone(), max_iterations=most)
    assert result["auto"].inertia == pytest.approx(result["torch"].inertia, rel=1e-10)
    torch.testing.assert_close(result["auto"].centroids, result["torch"].centroids, rtol=0, atol=1e-9)


@pytest.mark.parametrize("offset", [0.0, 300.0])
def test_comparing_with_few_centroids_gives_the_labels_of_comparing_with_all(offset):
    """Rows of 128 numbers and more are compared with single centroids first; the kernel, which shorter ones are left to, says what is right."""
    short, _ = mixture_bag(2000, 100, 6, separation=0.4, offset=offset)
    origin, result = short.mean(0), []
    for zeros in (0, 60):  # which make rows long and change no distance
        x, about = (torch.nn.functional.pad(t, (0, zeros)) for t in (short, origin))
        result.append(lloyd(x, [x[:14].clone()], about, energies(x, about))[0].centroids[:, :100])
    assert torch.equal(*result)


def test_starts_that_go_together_end_where_each_ends_alone(kernel):
    x, _ = mixture_bag(1100, 150, 5, separation=0.5)
    lost = torch.cat([x[:6], torch.full((1, 150), 1e4)])  # stops because a cluster is empty, while the others go on
    starts = [x[:7], lost, x[50:57]]
    origin = x.mean(0)
    for run, start in zip(lloyd(x, starts, origin, energies(x, origin)), starts, strict=True):
        alone = lloyd_from(x, start)
        assert torch.equal(run.centroids, alone.centroids)
        assert run.inertia == alone.inertia


@pytest.mark.parametrize("most", [3, 300])
def test_looking_at_every_patch_ends_where_bounds_end(most):
    """The way of a GPU, here on the CPU: starts of different lengths, and one that begins with an empty cluster."""
    x = mixture_bag(1500, 12, 7, separation=0.7)[0].double()
    origin = x.mean(0)
    starts = [x[:7].clone(), torch.cat([x[20:26], torch.full((1, 12), 99.0).double()]), x[40:47].clone()]
    result = _lloyd_on_gpu(x, starts, origin, energies(x, origin), most)
    for run, start in zip(result, starts, strict=True):
        reference = _lloyd_in_torch(x, start, origin, energies(x, origin), most)
        torch.testing.assert_close(run.centroids, reference.centroids)
        assert run.inertia == pytest.approx(reference.inertia, rel=1e-12)


def test_seeds_are_different_patches_and_prefer_far_ones():
    x = torch.cat(
        [torch.zeros(500, 3), torch.full((2, 3), 50.0) + torch.randn(2, 3, generator=torch.Generator().manual_seed(0))]
    )
    generators = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
    for seeds in plus_plus(x, 3, x.mean(0), energies(x, x.mean(0)), generators):
        assert len(torch.unique(seeds, dim=0)) == 3


def test_the_same_seed_gives_the_same_bits_and_the_number_of_threads_does_not_matter():
    x, _ = mixture_bag(2000, 12, 5, separation=0.5)
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(kmeans(x, 5, seed=3, restarts=3)[0].centroids)
        assert torch.get_num_threads() == threads
    torch.set_num_threads(before)
    assert torch.equal(*results)


def test_fewer_different_patches_than_prototypes_are_refused():
    with pytest.raises(InputError, match="n_prototypes: 5"):
        kmeans(torch.ones(100, 3), 5, seed=0, restarts=1)


@given(
    counts=st.lists(st.integers(0, 50), min_size=1, max_size=20),
    size=st.integers(1, 400),
    share=st.sampled_from(["proportional", "equal"]),
)
@settings(max_examples=150, deadline=None)
def test_the_sample_has_its_size_and_no_slide_gives_more_than_it_has(counts, size, share):
    taken = allocate(counts, size, share)
    assert sum(taken) == min(size, sum(counts))
    assert all(0 <= n <= count for n, count in zip(taken, counts, strict=True))
    assert allocate([100, 300], 40, share) == ([10, 30] if share == "proportional" else [20, 20])
    assert allocate([5, 300, 300], 65, "equal") == [5, 30, 30]


def test_every_patch_has_the_same_chance_not_only_the_first_ones():
    hits = np.zeros(40)
    for seed in range(600):
        hits[choose_rows("slide", 40, 10, seed).numpy()] += 1
    assert abs(hits - 150).max() < 5 * np.sqrt(600 * 0.25 * 0.75)
