"""On a real GPU: the contract of the kernel, and of what is built on it. Skipped where there is none."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch

import panther
from mixture_bags import mixture_bag
from panther.aggregators.embed import EmbedBag, Embedder, embed_grid
from panther.encoders import load_encoder
from panther.engine import Work, attempt_all, open_executor
from panther.explain.attention import attention
from panther.mixture import PRESETS, EMSettings, fit_mixture, together
from panther.prototypes.kmeans import kmeans
from panther.statistics import accumulate, nearest
from panther.statistics.upload import fetch, upload
from panther.storage.bags import as_bags
from panther.store import HashedRows
from panther.types import Ragged

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")

SETTINGS = [*PRESETS.values(), EMSettings(steps=5), EMSettings(steps=3, temperature=4.0, covariance="tied", tau=0.1)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("settings", SETTINGS, ids=range(len(SETTINGS)))
@torch.no_grad()
def test_a_gpu_gives_what_the_cpu_gives(settings, dtype):
    settings = settings if settings.variance != "pooled" else EMSettings(tau=1.0, variance=1.0)
    x, h = mixture_bag(3000, 70, 7, separation=0.5)
    x = x.to(dtype)
    here = fit_mixture(x.double(), h, torch.ones(70), settings, keep_assignment=True, keep_scores=True)
    there = fit_mixture(x.cuda(), h.cuda(), torch.ones(70), settings, keep_assignment=True, keep_scores=True)
    for a, b in zip((*there.mixture, *there[1:]), (*here.mixture, *here[1:]), strict=True):
        torch.testing.assert_close(a.cpu().double(), b.double(), rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_bytes_depend_neither_on_the_run_nor_on_the_bags_beside():
    bags = [mixture_bag(n, 33, 5, seed=n)[0].cuda() for n in (1, 1500, 64, 2049)]
    h = mixture_bag(1, 33, 5)[1].cuda()
    for settings in (EMSettings(), EMSettings(steps=3)):
        batch = Ragged(torch.cat(bags), tuple(map(len, bags)))
        together = [fit_mixture(batch, h, torch.ones(33), settings).mixture for _ in range(2)]
        for i, bag in enumerate(bags):
            alone = fit_mixture(bag, h, torch.ones(33), settings).mixture
            for a, b, c in zip(*together, alone, strict=True):
                assert torch.equal(a[i], b[i])
                assert torch.equal(a[i], c)


@torch.no_grad()
def test_hard_assignment_counts_every_patch_once():
    x, h = mixture_bag(5000, 40, 9, separation=0.2)
    sums, a, _ = accumulate(x.cuda(), nearest(h.cuda()), torch.zeros(40).cuda(), keep_assignment=True)
    assert float(sums.mass.sum()) == 5000
    assert torch.equal(a.cpu().argmax(-1), torch.cdist(x, h).argmin(-1))


@torch.no_grad()
def test_an_ill_conditioned_bag_is_repeated_in_float64_on_a_gpu_too():
    x, h = mixture_bag(200, 6, 3, separation=300.0)
    exact, got = (
        fit_mixture(x.double(), h, torch.ones(6)).mixture,
        fit_mixture(x.cuda(), h.cuda(), torch.ones(6)).mixture,
    )
    torch.testing.assert_close(got.variances.cpu().double(), exact.variances.double(), rtol=1e-5, atol=1e-8)


def test_gradients_flow_through_torch():
    x, h = mixture_bag(100, 5, 3)
    centroids = h.cuda().requires_grad_()
    fit_mixture(x.cuda(), centroids, torch.ones(5)).mixture.means.sum().backward()
    assert torch.isfinite(centroids.grad).all()


@pytest.mark.parametrize("method", ["panther", "protocounts", "h2t", "ot", "deepsets"])
def test_a_cohort_is_embedded_as_on_the_cpu(method):
    rng = np.random.default_rng(0)
    bags = {f"s{i}": rng.normal(i % 2, 1, (50 + 300 * i, 12)).astype("float32") for i in range(5)}
    prototypes = panther.fit_prototypes(bags, n_prototypes=4)
    here = panther.embed_cohort(bags, prototypes, method)
    there = panther.embed_cohort(bags, prototypes, method, device="cuda")
    assert here.samples == there.samples
    np.testing.assert_allclose(there.vectors, here.vectors, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("blocks", [["space"], ["tail"], ["space", "tail"]], ids="+".join)
@pytest.mark.parametrize("preset", ["paper", "calibrated"])
def test_blocks_are_read_on_a_gpu_as_on_the_cpu(blocks, preset):
    """Where patches lie, and what no prototype explains: ten patches of a tissue that the prototypes have never seen."""
    rng, corners = (
        np.random.default_rng(0),
        torch.tensor([[x, y] for x in range(0, 8192, 256) for y in range(0, 8192, 256)]),
    )
    tissues = 2 * rng.normal(size=(5, 24))
    known = {str(i): tissues[rng.integers(0, 4, 400)] + rng.normal(size=(400, 24)) for i in range(4)}
    prototypes = panther.fit_prototypes(known, n_prototypes=4)
    bags = []
    for number in range(3):
        tissue = np.repeat(rng.integers(0, 4, 32), 32)  # 32 columns of 32 patches
        tissue[:10] = 4
        rows = torch.tensor(tissues[tissue] + rng.normal(size=(1024, 24)), dtype=torch.float32)
        bags.append(panther.Bag(f"s{number}", rows, lambda: corners, panther.PatchSpec(size_level0=256)))
    here, there = (
        panther.embed_cohort(bags, prototypes, preset=preset, blocks=blocks, device=device)
        for device in ("cpu", "cuda")
    )
    assert not here.failures
    assert not there.failures
    np.testing.assert_allclose(there.vectors, here.vectors, rtol=1e-3, atol=1e-4)
    if "tail" in blocks:
        assert (np.exp(here.vectors[:, [s for _, s, _ in here.columns].index("tail_share")]) > 0.005).all()


def test_rows_of_a_file_come_to_the_gpu_as_they_are_and_are_hashed_on_the_way(tmp_path):
    rows = np.random.default_rng(0).normal(size=(5001, 517)).astype("float32")  # several blocks, none of them full
    np.save(tmp_path / "s.npy", rows)
    bag = panther.open_bag(tmp_path / "s.npy")
    hashed = HashedRows(bag.features)
    assert torch.equal(upload(hashed, "cuda").cpu(), torch.from_numpy(rows))
    assert hashed.digest() == bag.fingerprint()


def test_results_are_fetched_in_one_copy_as_they_are():
    given = [torch.rand(3, 5), torch.rand(7, dtype=torch.float64), torch.tensor(True), torch.arange(3), torch.rand(())]
    for here, back in zip(given, fetch([t.cuda() for t in given]), strict=True):
        assert back.device.type == "cpu"
        assert back.dtype == here.dtype
        assert torch.equal(back, here)


def test_prototypes_are_found_as_on_the_cpu():
    tissues = np.random.default_rng(0).normal(size=(4, 16)).astype("float32")
    bags = [
        np.repeat(tissues, 50, axis=0) + 0.01 * np.random.default_rng(i).normal(size=(200, 16)).astype("float32")
        for i in range(4)
    ]
    here, there = (panther.fit_prototypes(bags, n_prototypes=4, device=d) for d in ("cpu", "cuda"))
    np.testing.assert_allclose(np.sort(there.centroids, 0), np.sort(here.centroids, 0), atol=1e-4)


def embedded(bags, prototypes, executor, **options):
    (table,) = embed_grid(as_bags(bags).refs, [Embedder(prototypes, "panther", options)], Work(executor, "cuda"))
    return table


@torch.no_grad()
def test_threads_may_share_a_gpu():
    """Dask's workers have several threads: nothing is recorded there, and the numbers are those of one thread."""
    bags = {str(seed): mixture_bag(700 + seed, 33, 5, seed=seed)[0] for seed in range(24)}
    prototypes = panther.Prototypes(mixture_bag(1, 33, 5)[1])
    one = panther.embed_cohort(bags, prototypes, steps=3, device="cuda")
    for _ in range(10):  # what went wrong here once went wrong now and then
        with ThreadPoolExecutor(6) as threads:
            many = embedded(bags, prototypes, threads, steps=3)
        np.testing.assert_array_equal(many.vectors, one.vectors)


def test_numbers_of_prototypes_are_compared_on_a_gpu_too():
    rng = np.random.default_rng(0)
    tissues = rng.normal(size=(4, 1, 16)) * 3
    bags = [(tissues + rng.normal(size=(4, 40, 16))).reshape(-1, 16).astype("float32") for _ in range(6)]
    assert panther.choose_c(bags, (2, 8), device="cuda").recommended == 4


def test_a_study_trains_its_networks_on_a_gpu_and_says_so(tmp_path):
    rng = np.random.default_rng(0)
    bags = {f"S{i}": rng.normal(i % 2, 1, (30, 8)).astype("float32") for i in range(12)}
    table = pd.DataFrame({"slide_id": list(bags), "case_id": list(bags), "subtype": ["a", "b"] * 6})
    study = {
        "name": "gpu",
        "table": table,
        "features": bags,
        "task": {"label": "subtype"},
        "methods": ["mean", "abmil"],
    }
    study |= {"heads": ["probe"], "mil_training": {"epochs": 3}, "splits": {"k": 2}, "bootstrap": 10}
    results = panther.run_study(study, tmp_path, device="cuda")
    assert results.model(fold=0, method="abmil").about["training"]["device"] == "cuda"
    assert "device" not in results.model(fold=0, method="mean").about["training"]


def test_maps_and_attention_are_those_of_the_cpu():
    corners = torch.tensor([[x, y] for x in range(0, 8192, 256) for y in range(0, 8192, 256)])
    x, h = mixture_bag(len(corners), 16, 4, separation=2.0)
    bag = panther.Bag("s", x, lambda: corners, panther.PatchSpec(size_level0=256))
    for method in ("panther", "protocounts", "ot"):
        here, there = (
            panther.make_map(bag, panther.Prototypes(h), method=method, device=device)["s"]
            for device in ("cpu", "cuda")
        )
        np.testing.assert_allclose(there.assignment, here.assignment, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(there.weights, here.weights, rtol=1e-3, atol=1e-5)
    bags = {f"S{i}": x[i::12].numpy() + i % 2 for i in range(12)}
    table = pd.DataFrame({"slide_id": list(bags), "case_id": list(bags), "subtype": ["a", "b"] * 6})
    model = panther.train(bags, table, label="subtype", method="abmil", epochs=1, device="cuda")
    here, there = (attention(bag, model, device).weights for device in ("cpu", "cuda"))
    np.testing.assert_allclose(there, here, rtol=1e-3, atol=1e-6)
    assert next(model.network.parameters()).device == torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@torch.no_grad()
def test_columns_of_any_size_keep_their_digits(dtype):
    """What is made of short numbers has the range of long ones."""
    x, h = mixture_bag(4000, 64, 5, separation=0.5)
    size = 10.0 ** torch.linspace(-6, 6, 64) if dtype == torch.float32 else 10.0 ** torch.linspace(-2, 2, 64)
    x = (x * size).to(dtype)
    here = fit_mixture(x.double(), h * size, size.square()).mixture
    there = fit_mixture(x.cuda(), (h * size).cuda(), size.square()).mixture
    means, variances = there.means.cpu().double(), there.variances.cpu().double()
    assert float(((means - here.means).abs() / here.variances.sqrt()).max()) < 1e-5
    assert float((variances / here.variances - 1).abs().max()) < 1e-5


@torch.no_grad()
def test_k_means_ends_where_it_ends_on_the_cpu():
    x = mixture_bag(20_000, 48, 12, separation=1.0)[0]
    (here, starts), (there, gpu_starts) = kmeans(x, 12, 0, 3), kmeans(x.cuda(), 12, 0, 3)
    np.testing.assert_allclose(gpu_starts, starts, rtol=1e-4)
    torch.testing.assert_close(there.centroids.cpu(), here.centroids, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("blocks_first", [False, True])
def test_a_mixture_that_is_shared_is_where_all_who_read_it_need_it(blocks_first):
    """Some read it out on the host, where it comes in one copy; blocks read patches beside it, on the GPU."""
    rng = np.random.default_rng(0)
    bags = {f"s{i}": rng.normal(i % 2, 1, (200 + 100 * i, 12)).astype("float32") for i in range(3)}
    prototypes = panther.fit_prototypes(bags, n_prototypes=4)
    options = [{}, {"readout": "wa"}, {"blocks": ["tail"]}]
    embedders = [Embedder(prototypes, "panther", each) for each in (options[::-1] if blocks_first else options)]
    here, there = (list(embed_grid(as_bags(bags).refs, embedders, Work(device=place))) for place in ("cpu", "cuda"))
    for a, b in zip(here, there, strict=True):
        assert not b.failures
        np.testing.assert_allclose(b.vectors, a.vectors, rtol=1e-3, atol=1e-4)


def test_the_next_bag_begins_before_the_last_one_is_waited_for():
    """Bytes are those of each bag alone, also where one must be repeated in float64, is empty or holds a NaN."""
    rng = np.random.default_rng(0)
    bags = {f"s{i}": rng.normal(i % 3, 1, (2000 + 500 * i, 70)).astype("float32") for i in range(12)}
    prototypes = panther.fit_prototypes(bags, n_prototypes=5)
    bags["s3"] = (bags["s3"] * np.float32(1e-3) + np.float32(7)).astype("float32")  # far out for its spread: float64
    bags["s5"][17, 3] = np.nan
    bags["s7"] = np.zeros((0, 70), "float32")
    alone = panther.embed_cohort(bags, prototypes, device="cuda")
    with open_executor(1) as pool:
        together = embedded(bags, prototypes, pool)
    with ThreadPoolExecutor(2) as pool:  # threads replay no graphs
        threads = embedded(bags, prototypes, pool)
    assert alone.samples == together.samples == threads.samples
    assert set(alone.failures) == set(together.failures) == set(threads.failures) == {"s5", "s7"}
    assert "NaN" in together.failures["s5"]
    assert np.array_equal(alone.vectors, together.vectors)
    assert np.array_equal(alone.vectors, threads.vectors)
    np.testing.assert_allclose(together.vectors, panther.embed_cohort(bags, prototypes).vectors, rtol=1e-3, atol=1e-4)


def test_no_more_than_two_groups_of_bags_are_on_the_gpu(monkeypatch):
    monkeypatch.setattr(together, "FULL_BYTES", 4 << 20)
    rng = np.random.default_rng(0)
    bags = {f"s{i:02}": rng.normal(i % 3, 1, (5000, 70)).astype("float32") for i in range(60)}  # 1.4 MB each, 84 MB
    embed = EmbedBag([Embedder(panther.fit_prototypes(bags, n_prototypes=5))], "cuda")
    refs = as_bags(bags).refs
    attempt_all(embed, refs[:6])  # what is recorded and compiled stays
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    assert all(result.reason is None for result in attempt_all(embed, refs))
    assert torch.cuda.max_memory_allocated() - before < 40e6


def test_bags_that_are_on_the_gpu_already_are_embedded_too():
    rng = np.random.default_rng(0)
    bags = {f"s{i}": torch.tensor(rng.normal(i, 1, (300, 12)), dtype=torch.float32) for i in range(3)}
    prototypes = panther.fit_prototypes(bags, n_prototypes=4)
    here = panther.embed_cohort(bags, prototypes)
    there = panther.embed_cohort({name: x.cuda() for name, x in bags.items()}, prototypes, device="cuda")
    assert not there.failures
    np.testing.assert_allclose(there.vectors, here.vectors, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["resnet50", "timm:vit_small_patch16_224"])
def test_encoders_in_float16_compiled_or_not_are_close_to_float32(name):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 224, 224, 3), dtype=np.uint8)
    exact = load_encoder(name, device="cuda", precision="float32", seed=0)(pixels)
    half = load_encoder(name, device="cuda", seed=0)
    compiled = half.compile(32)
    assert compiled.compiled is not None
    for encoder in (half, compiled):  # the second batch is a short one
        features = torch.cat([encoder(part) for part in (pixels[:32], pixels[32:])])
        assert ((features - exact).norm(dim=1) / exact.norm(dim=1)).max() < 5e-3
