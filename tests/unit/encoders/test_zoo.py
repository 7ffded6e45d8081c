"""Every registered architecture: names, dimensions, parameters, keys; small ones run."""

import pytest
import torch

from panther.encoders import about, encoders, load_encoder
from panther.errors import InputError

# Millions of parameters, from the papers and model cards (UNI 303M, UNI2-h 681M, Virchow2 631M, GigaPath 1,134,953,984, Swin-T 27.5M ...),
# and the number of tensors: ViT: 12 a block with biases, 14 with layer scale, and what surrounds the blocks.
PUBLISHED = {
    "lite0": (3.4, 294),
    "resnet50": (8.5, 258),
    "ctranspath": (27.5, 200 - 12 - 5),
    "uni": (303.4, 24 * 14 + 6),
    "uni2": (681.4, 24 * 14 + 7),
    "virchow2": (631.2, 32 * 14 + 7),
    "gigapath": (1134.953984, 40 * 14 + 6),
    "h-optimus-0": (1134.8, 40 * 14 + 7),
    "phikon": (85.8, 12 * 12 + 6),
    "phikon-v2": (303.4, 24 * 14 + 6),
    "conch": (87.6, 12 * 12 + 6 + 11 + 2),
    "dinov2-small": (21.6, 12 * 14 + 6),
    "dinov2-base": (85.7, 12 * 14 + 6),
    "dinov2-large": (303.2, 24 * 14 + 6),
    "dinov2-giant": (1134.8, 40 * 14 + 6),
}


@pytest.mark.parametrize("name", encoders.names())
def test_an_architecture_is_built_without_memory_and_has_the_announced_dimension(name):
    facts = about(name)
    with torch.device("meta"):
        model = encoders[name]().eval()
        features = model(torch.empty(2, 3, facts.size, facts.size))
    assert features.shape == (2, facts.dim)
    assert len(facts.mean) == len(facts.std) == 3
    assert facts.licence
    assert facts.hub or facts.page or name == "lite0"


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_tensors_are_those_of_the_publication(name):
    with torch.device("meta"):
        model = encoders[name]()
    millions, tensors = PUBLISHED[name]
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.06)
    assert len(model.state_dict()) == tensors


@pytest.mark.parametrize("name", ["resnet50", "ctranspath", "dinov2-small-reg", "timm:mobilenetv3_small_050"])
def test_small_encoders_run_and_a_patch_does_not_depend_on_its_batch(name):
    encoder = load_encoder(name, seed=0)
    pixels = torch.randint(0, 256, (3, encoder.about.size, encoder.about.size, 3), dtype=torch.uint8)
    together = encoder(pixels)
    assert together.shape == (3, encoder.about.dim)
    assert torch.isfinite(together).all()
    torch.testing.assert_close(encoder(pixels[1:2])[0], together[1], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(together[0], together[1])


def test_virchow2_joins_the_class_token_and_the_mean_of_the_patch_tokens_without_registers():
    from panther.encoders.zoo import ClassAndMean, timm_model

    torch.manual_seed(0)
    trunk = timm_model("vit_tiny_patch16_224", img_size=32, reg_tokens=4, global_pool="").eval()
    image = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        tokens = trunk.forward_features(image)  # class, 4 registers, 2 x 2 patches
        actual = ClassAndMean(trunk)(image)
    assert tokens.shape == (1, 9, 192)
    torch.testing.assert_close(actual, torch.cat([tokens[:, 0], tokens[:, 5:9].mean(1)], 1))


def test_resnet50_is_the_third_block_averaged_over_the_image(tmp_path):
    import timm

    torch.manual_seed(0)
    whole = timm.create_model("resnet50", features_only=True, out_indices=(3,)).eval()
    torch.save(whole.state_dict(), tmp_path / "weights.pth")
    encoder = load_encoder("resnet50", tmp_path / "weights.pth")
    image = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(encoder.model(image), whole(image)[0].mean((2, 3)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("unicorn", "Known are lite0"),
        ("timm:nothing", "timm"),
        ("no.such:thing", "cannot be imported"),
        ("json:__doc__", "no function"),
    ],
)
def test_an_unknown_encoder_is_refused_in_a_sentence(name, part):
    with pytest.raises(InputError, match=part):
        load_encoder(name)


def test_a_factory_of_the_users_own_says_what_it_wants(tmp_path, monkeypatch):
    (tmp_path / "my_encoders.py").write_text(
        "from torch import nn\n"
        "def tiny():\n"
        "    net = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten())\n"
        "    net.size, net.mean, net.std = 32, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)\n"
        "    return net\n"
    )
    monkeypatch.chdir(tmp_path)
    encoder = load_encoder("my_encoders:tiny")
    assert (encoder.about.dim, encoder.about.size) == (12, 32)
    assert torch.allclose(encoder(torch.full((1, 32, 32, 3), 255, dtype=torch.uint8)), torch.ones(1, 12))
