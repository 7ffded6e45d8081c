"""`Panther` as a scikit-learn transformer of bags."""

import numpy as np
import pytest
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import panther
from mixture_bags import mixture_bag
from panther import EmbeddingClassifier, EmbeddingScaler, InputError, Panther
from storage.layouts import trident


@pytest.fixture
def bags():
    return [mixture_bag(60, 6, 3, separation=2.0, seed=0)[0][i * 5 :] for i in range(6)]


def test_fit_transform_gives_one_row_per_bag(bags):
    model = Panther(n_prototypes=3, random_state=0)
    rows = model.fit_transform(bags)
    assert rows.shape == (6, 3 * 13)
    assert rows.dtype == np.float32
    assert model.n_features_in_ == 6
    names = model.get_feature_names_out()
    assert len(names) == rows.shape[1]
    assert list(names[:2]) == ["C0:pi", "C0:mu:0"]
    assert np.array_equal(rows, model.transform(bags))


@pytest.mark.parametrize("kind", ["arrays", "files"])
def test_workers_give_the_same_bytes_in_fit_and_transform(bags, tmp_path, kind):
    if kind == "files":
        for i, bag in enumerate(bags):
            trident(tmp_path / f"slide{i}.h5", bag.numpy(), np.arange(2 * len(bag)).reshape(-1, 2))
        bags = sorted(tmp_path.iterdir())
    one, two = Panther(3).fit(bags), Panther(3, n_jobs=2).fit(bags)
    assert torch.equal(one.prototypes_.centroids, two.prototypes_.centroids)
    assert one.prototypes_.content_hash() == two.prototypes_.content_hash()
    assert np.array_equal(one.transform(bags), two.transform(bags))
    if kind == "files":
        assert np.array_equal(one.transform(tmp_path), two.transform(bags))


def test_seeds_are_taken_as_scikit_learn_takes_them(bags):
    def centroids(random_state):
        return Panther(3, random_state=random_state, max_iter=0, n_init=1).fit(bags).prototypes_.centroids

    assert torch.equal(centroids(np.int64(4)), centroids(4))
    assert torch.equal(centroids(np.random.RandomState(4)), centroids(np.random.RandomState(4)))
    shared = np.random.RandomState(4)
    assert Panther(3, random_state=shared).fit(bags).prototypes_.settings["seed"] != shared.randint(2**31 - 1)
    seeds = {Panther(3, random_state=None).fit(bags).prototypes_.settings["seed"] for _ in range(3)}
    assert len(seeds) == 3


def test_the_settings_of_em_are_parameters_that_grid_search_sees(bags):
    labels = [0, 1, 0, 1, 0, 1]
    pipeline = make_pipeline(Panther(2), EmbeddingClassifier())
    grid = {"panther__tau": [0.0, 1.0], "panther__steps": [1, 2]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(np.stack([bag[:30].numpy() for bag in bags]), labels)
    assert set(search.best_params_) == set(grid)
    for settings in ({"tau": 1.0}, {"steps": 3}, {"variance": 0.1}, {"temperature": 4.0}, {"covariance": "tied"}):
        model = Panther(3, **settings).fit(bags)
        expected = panther.embed(bags[0], model.prototypes_, **settings).vector
        assert np.array_equal(model.transform(bags[:1])[0], expected)
        assert not np.array_equal(
            model.transform(bags[:1]), model.set_params(**dict.fromkeys(settings)).transform(bags[:1])
        )


def test_prototypes_that_exist_need_no_fit(bags, tmp_path):
    fitted = Panther(3).fit(bags)
    panther.save_prototypes(fitted.prototypes_, tmp_path / "protos.safetensors")
    for given in (fitted.prototypes_, tmp_path / "protos.safetensors", str(tmp_path / "protos.safetensors")):
        model = Panther.from_prototypes(given, tau=1.0)
        assert (model.n_prototypes, model.n_features_in_, model.tau) == (3, 6, 1.0)
        assert np.array_equal(model.transform(bags), fitted.set_params(tau=1.0).transform(bags))


def test_set_output_gives_tables(bags):
    model = Panther(3).set_output(transform="pandas")
    table = model.fit_transform(bags)
    assert list(table.columns) == list(model.get_feature_names_out())
    scaler = EmbeddingScaler().set_output(transform="pandas")
    scaled = scaler.fit_transform(table)
    assert list(scaled.columns[:2]) == ["C0:pi", "C0:mu:0"]
    assert scaled.shape == (6, 3 * 13 + 6)


@pytest.mark.parametrize(
    "bad", [torch.zeros(3), torch.zeros(3, 6, dtype=torch.long), torch.full((4, 6), torch.nan), torch.zeros(0, 6)]
)
def test_invalid_bags_are_refused(bags, bad):
    model = Panther(3).fit(bags)
    with pytest.raises(InputError):
        model.transform([bad])
    with pytest.raises(InputError, match="5-dimensional but the prototypes expect 6"):
        model.transform([torch.zeros(3, 5)])


def test_the_order_of_the_bags_does_not_matter(bags):
    bags = [bag + 0.1 * index for index, bag in enumerate(bags)]
    usual = Panther(3, random_state=0, n_sample_patches=100).fit(bags)
    turned = Panther(3, random_state=0, n_sample_patches=100).fit(bags[::-1])
    assert torch.equal(usual.prototypes_.centroids, turned.prototypes_.centroids)
    assert np.array_equal(usual.transform(bags), turned.transform(bags))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_bag_that_cannot_be_used_is_named_as_the_user_knows_it(bags, n_jobs):
    bags[3][7, 1] = float("nan")
    with pytest.raises(InputError, match=r"^slide 3: row 7 of the features"):
        Panther(3, n_jobs=n_jobs).fit(bags)
    named = [panther.Bag(f"s-{i}", bag) for i, bag in enumerate(bags)]
    with pytest.raises(InputError, match=r"^slide s-3: row 7"):
        Panther(3, n_jobs=n_jobs).fit(named)
    with pytest.raises(InputError, match=r"^4: has 5 features per patch"):
        Panther(3).fit([*bags[:3], bags[4], bags[5][:, :5]])
