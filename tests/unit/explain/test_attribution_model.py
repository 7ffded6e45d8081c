"""Attribution of trained models, from files to files."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from known_regions import contents, csv_rows, write_bag
from PIL import Image

from cli.running import strict_json
from panther import attribute
from panther.cohort.load import load_cohort
from panther.errors import InputError
from panther.explain.attribution import against_the_others
from panther.models.fitting import TrainingRecipe, train_model
from panther.models.model import save_model
from panther.models.predict import predict_bags
from panther.models.settings import Named, TrainSettings
from panther.prototypes import KMeansSettings
from panther.storage.bags import list_bags
from panther.verbs.embed import embed_cohort
from study.generated import generate

RECIPE = TrainingRecipe(
    Named(name="panther", options={"preset": "calibrated"}),
    Named(name="probe"),
    Named(name="cross-entropy"),
    KMeansSettings(4, restarts=2, passes=1),
    TrainSettings(epochs=3),
)


class Trained:
    """A cohort of slides, and models on it."""

    def __init__(self, folder):
        generate(folder, patients=18, patches=40)
        self.folder, self.listing = folder, list_bags(folder / "features")
        self.bags = self.listing.refs

    def __call__(self, survival=False, **changes):
        outcome = {"survival": "dss"} if survival else {"label": "subtype"}
        cohort = load_cohort(self.folder / "table.csv", **outcome, bags=self.listing, level="slide")
        return train_model(self.bags, cohort.target, replace(RECIPE, **changes))[0]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return Trained(tmp_path_factory.mktemp("cohort"))


def embedded(model, trained):
    assert model.prototypes is not None
    return np.asarray(embed_cohort(trained.bags, model.prototypes, model.method.name, **model.method.options).vectors)


def test_a_probe_on_share_weighted_mixtures_is_attributed_exactly_too(trained):
    model = trained()
    found = attribute(model, trained.bags)
    assert found.kind == "exact"
    assert found.gap < 1e-9
    assert {statistic for _, statistic in found.players} == {"pi", "mu", "Sigma", "part of mean"}
    log = np.log(predict_bags(model, trained.bags)[1]["probabilities"])
    change = found.contributions.sum(2) + found.baseline
    np.testing.assert_allclose(change, np.stack([log[:, 0] - log[:, 1], log[:, 1] - log[:, 0]], 1), atol=1e-4)
    # here the samples are the training's, so that contributions are measured from their mean
    np.testing.assert_allclose(found.contributions.mean(0), 0, atol=1e-5)
    x, usual = embedded(model, trained).astype(float), model.scaler.usual
    weights, means = x.reshape(len(x), 4, -1)[..., :1], x.reshape(len(x), 4, -1)[..., 1 : 1 + usual.means.shape[1]]
    weight = (model.network.network.weight / model.scaler.scale).detach().numpy().astype(float)
    weight = (weight - weight[::-1])[:, -usual.means.shape[1] :]
    part = (weights * means)[:, 2] - usual.parts[2].numpy()
    p = found.players.index((2, "part of mean"))
    np.testing.assert_allclose(found.contributions[..., p], part @ weight.T, atol=1e-5)


@pytest.mark.parametrize("count", [3, 5], ids=["enumerated", "sampled"])
def test_a_structured_head_is_attributed_by_shapley_values_that_add_up(trained, count):
    model = trained(
        scaling=Named(name="balanced"),
        head=Named(name="paper-classification", options={"after_dim": 8, "per_prototype_dim": 6}),
        prototypes=KMeansSettings(count, restarts=2, passes=1),
    )
    found = attribute(model, trained.bags)
    assert found.kind == "shapley"
    assert (found.sampling_error is None) == (count == 3)
    assert found.gap < 1e-10
    x = torch.from_numpy(embedded(model, trained))
    with torch.no_grad():
        assert model.scaler is not None
        at = against_the_others(model.network(model.scaler(torch.cat([x, x.mean(0)[None]]))))
    np.testing.assert_allclose(found.contributions.sum(2), (at[:-1] - at[-1]).numpy(), atol=1e-4)
    if count == 5:
        more = attribute(model, trained.bags, pairs=64)
        assert (more.sampling_error or 1) < (found.sampling_error or 0)
        assert np.abs(more.contributions - found.contributions).max() < 6 * (found.sampling_error or 0)


@pytest.mark.parametrize(("loss", "kind"), [("cox", "exact"), ("nll", "shapley")])
def test_survival_models_are_attributed_on_the_risk_they_predict(trained, loss, kind):
    model = trained(survival=True, head=Named(name="linear"), loss=Named(name=loss))
    found = attribute(model, trained.bags, pairs=2)
    assert found.kind == kind
    risk = predict_bags(model, trained.bags)[1]["risk"]
    np.testing.assert_allclose(found.contributions.sum((1, 2)) + found.baseline[0], risk, atol=1e-4)


def test_models_without_a_part_for_each_prototype_are_refused(trained):
    for name, options, head, culprit in (
        ("panther", {"readout": "wa"}, "linear", "readout 'wa'"),
        ("deepsets", {}, "linear", "deepsets"),
        ("abmil", {"hidden": 8, "attention": 4}, "own", "abmil"),
    ):
        with pytest.raises(InputError, match=culprit):
            attribute(trained(method=Named(name=name, options=options), head=Named(name=head)), trained.bags)
    with pytest.raises(InputError, match=r"^kind: exact"):
        attribute(trained(head=Named(name="mlp")), trained.bags, kind="exact")
    with pytest.raises(InputError, match=r"^kind: found 'magic'"):
        attribute(trained(), trained.bags, kind="magic")


def coordinates(trained, folder):
    """Three slides with coordinates, one without."""
    folder.mkdir()
    for number, ref in enumerate(trained.bags[:4]):
        x = ref.open().features[:]
        grid = np.stack([np.arange(len(x)) % 8, np.arange(len(x)) // 8], 1) * 60
        write_bag(folder / f"{ref.sample}.h5", np.asarray(x), grid if number < 3 else None)
    return folder


def without_encoder(model):
    (block,) = model.blocks
    return replace(model, blocks=(replace(block, basis=replace(block.basis, encoder=None)),))


def test_the_command_writes_tables_and_pictures(trained, tmp_path, run, refused):
    save_model(without_encoder(trained()), tmp_path / "m.st")
    coordinates(trained, tmp_path / "f")
    (tmp_path / "n.yaml").write_text("C1: stroma\n")
    for name in "ab":
        out, err = run("attribute", "m.st", "f", "-o", name, "--names", "n.yaml", "--max-side", 150)
    assert "4 samples attributed (exact" in out
    assert "1 slides have no coordinates" in err
    pictures = [f"{ref.sample}.attribution.png" for ref in trained.bags[:3]]
    files = contents(tmp_path / "a")
    assert list(files) == [*pictures, "attribution.csv", "attribution.json", "cohort.png"]
    assert files == contents(tmp_path / "b")
    content = strict_json((tmp_path / "a" / "attribution.json").read_text())
    assert [content[key] for key in ("format", "kind", "outputs")] == [1, "exact", ["high", "low"]]
    assert content["prototypes"][1] == {"prototype": 1, "name": "stroma", "colour": "#E69F00"}
    rows = csv_rows(tmp_path / "a" / "attribution.csv")
    assert len(rows) == 4 * 2 * 16
    player = ("output", "prototype", "statistic")
    mean = next(row for row in content["cohort"] if [row[key] for key in player] == ["low", 2, "Sigma"])
    values = [float(row["contribution"]) for row in rows if [row[key] for key in player] == ["low", "2", "Sigma"]]
    assert mean["mean"] == pytest.approx(np.mean(values))
    assert mean["mean_absolute"] == pytest.approx(np.mean(np.abs(values)))
    with Image.open(tmp_path / "a" / pictures[0]) as picture:
        colours = np.asarray(picture.convert("RGB")).reshape(-1, 3).astype(int)
    assert (np.abs(colours[:, 0] - colours[:, 2]) > 60).any()  # red or blue patches are on it
    out, _ = run("attribute", "m.st", trained.folder / "features", "-o", "p", "--table", trained.folder / "table.csv",
                 "--level", "patient", "--no-maps", "--json")  # fmt: skip
    assert json.loads(out)["samples"] == 18
    (tmp_path / "n.yaml").write_text("C9: stroma\n")
    refused("'C9'", "attribute", "m.st", "f", "--names", "n.yaml")
    refused("panther train", "attribute", "f", "f")
