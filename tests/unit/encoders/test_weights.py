"""Files of weights: every way of packing them, and what is said when they do not fit."""

import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from panther.encoders import about, encoders, load_encoder
from panther.encoders.weights import from_dinov2, from_huggingface, resampled_positions
from panther.errors import InputError


@pytest.fixture(scope="module")
def resnet():
    torch.manual_seed(3)
    return encoders["resnet50"]().state_dict()


PACKINGS = {
    "plain": lambda w: w,
    "state_dict": lambda w: {"epoch": 3, "state_dict": w},
    "model": lambda w: {"model": w, "args": {"lr": 0.1}},
    "module prefix": lambda w: {f"module.{k}": v for k, v in w.items()},
    "teacher": lambda w: {
        "teacher": {**{f"backbone.{k}": v for k, v in w.items()}, "head.mlp.0.weight": torch.zeros(3)}
    },
    "student too": lambda w: {
        "state_dict": {f"module.encoder_q.{k}": v for k, v in w.items()} | {"queue": torch.zeros(2)}
    },
    "whole network": lambda w: {**w, "layer4.0.conv1.weight": torch.zeros(1), "fc.weight": torch.zeros(1000, 2048)},
    "half precision": lambda w: {k: v.half() if v.is_floating_point() else v for k, v in w.items()},
    "no counters": lambda w: {k: v for k, v in w.items() if not k.endswith("num_batches_tracked")},
}


NOISE = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def features(resnet):
    """Features of noise by the architecture with these weights."""
    model = encoders["resnet50"]()
    model.load_state_dict(resnet)
    with torch.no_grad():
        return model.eval()(NOISE)


@pytest.mark.parametrize("packing", PACKINGS)
def test_weights_are_found_however_they_are_packed(packing, resnet, features, tmp_path):
    torch.save(PACKINGS[packing](resnet), tmp_path / "w.pth")
    model = load_encoder("resnet50", tmp_path / "w.pth").model
    assert {value.dtype for value in model.parameters()} == {torch.float32}
    largest = 1e-2 if packing == "half precision" else 1e-4
    assert (model(NOISE) - features).norm() < largest * features.norm()


def test_safetensors_are_read(resnet, features, tmp_path):
    save_file(resnet, tmp_path / "w.safetensors")
    loaded = load_encoder("resnet50", tmp_path / "w.safetensors")
    assert (loaded.model(NOISE) - features).norm() < 1e-4 * features.norm()
    other = dict(resnet)
    other["layer1.0.conv1.weight"] = other["layer1.0.conv1.weight"] + 1
    save_file(other, tmp_path / "w.safetensors")
    assert load_encoder("resnet50", tmp_path / "w.safetensors").weights != loaded.weights


def test_a_mismatch_names_what_is_missing_unexpected_and_of_another_shape(resnet, tmp_path):
    wrong = {k: v for k, v in resnet.items() if not k.startswith("layer3.5.")} | {"stranger": torch.zeros(1)}
    wrong["conv1.weight"] = torch.zeros(64, 1, 7, 7)
    torch.save(wrong, tmp_path / "w.pth")
    with pytest.raises(InputError) as refusal:
        load_encoder("resnet50", tmp_path / "w.pth")
    for part in ("w.pth", "'resnet50'", "15 ", "layer3.5.", "stranger", "(64, 1, 7, 7) instead of (64, 3, 7, 7)"):
        assert part in str(refusal.value)


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('executed')",))


BROKEN = {
    "code.pth": lambda p: p.write_bytes(pickle.dumps(Bomb())),
    "empty.pth": lambda p: p.write_bytes(b""),
    "text.safetensors": lambda p: p.write_text("weights"),
    "list.pth": lambda p: torch.save([torch.zeros(1)], p),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_no_weights_is_refused_and_never_executed(name, tmp_path):
    BROKEN[name](tmp_path / name)
    with pytest.raises(InputError, match=name):
        load_encoder("resnet50", tmp_path / name)


def test_weights_that_cannot_be_had_name_the_page_and_the_other_way(tmp_path, monkeypatch):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError, match=r"huggingface.co/MahmoodLab/UNI\b.*`weights=FILE`"):
        load_encoder("uni")
    with pytest.raises(InputError, match=r"github.com/Xiyue-Wang/TransPath.*`weights=FILE`"):
        load_encoder("ctranspath")
    with pytest.raises(InputError, match=r"no-such\.pth"):
        load_encoder("uni", tmp_path / "no-such.pth")


def test_a_hub_that_cannot_be_reached_is_asked_once(tmp_path, monkeypatch, caplog):
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    download = "huggingface_hub.hf_hub_download"
    monkeypatch.setattr(download, lambda *_: pytest.fail("this would try again, and tell of each time"))
    with pytest.raises(InputError, match="cannot be reached"):
        load_encoder("uni")
    assert not caplog.records


# CTransPath's file, written down from timm 0.5.4's SwinTransformer with the authors' stem: 200 tensors
def ctranspath_file() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes: dict[str, tuple[int, ...]] = {}
    for place, (before, after) in {0: (3, 12), 3: (12, 24)}.items():
        shapes[f"patch_embed.proj.{place}.weight"] = (after, before, 3, 3)
        shapes |= {
            f"patch_embed.proj.{place + 1}.{n}": (after,) for n in ("weight", "bias", "running_mean", "running_var")
        }
        shapes[f"patch_embed.proj.{place + 1}.num_batches_tracked"] = ()
    shapes |= {"patch_embed.proj.6.weight": (96, 24, 1, 1), "patch_embed.proj.6.bias": (96,)}
    shapes |= {"patch_embed.norm.weight": (96,), "patch_embed.norm.bias": (96,)}
    for layer, depth in enumerate((2, 2, 6, 2)):
        d, heads, windows = 96 * 2**layer, 3 * 2**layer, (56 // 2**layer // 7) ** 2
        for block in range(depth):
            at = f"layers.{layer}.blocks.{block}"
            if block % 2 and layer < 3:  # the last layer is one window: nothing is shifted
                shapes[f"{at}.attn_mask"] = (windows, 49, 49)
            shapes |= {f"{at}.{norm}.{n}": (d,) for norm in ("norm1", "norm2") for n in ("weight", "bias")}
            shapes[f"{at}.attn.relative_position_bias_table"] = (169, heads)
            shapes[f"{at}.attn.relative_position_index"] = (49, 49)
            linear = {"attn.qkv": (3 * d, d), "attn.proj": (d, d), "mlp.fc1": (4 * d, d), "mlp.fc2": (d, 4 * d)}
            for name, shape in linear.items():
                shapes |= {f"{at}.{name}.weight": shape, f"{at}.{name}.bias": shape[:1]}
        if layer < 3:
            at = f"layers.{layer}.downsample"
            shapes |= {f"{at}.reduction.weight": (2 * d, 4 * d), f"{at}.norm.weight": (4 * d,)}
            shapes[f"{at}.norm.bias"] = (4 * d,)
    shapes |= {"norm.weight": (768,), "norm.bias": (768,)}
    made = {name: torch.randn(shape, generator=generator) * 0.05 for name, shape in shapes.items()}
    made |= {name: tensor.abs() + 0.5 for name, tensor in made.items() if name.endswith("running_var")}
    return made


def torchvision_swin(published: dict[str, torch.Tensor]) -> nn.Module:
    """The same weights in torchvision's Swin-T, an independent network that keeps the old places of the merging."""
    from torchvision.models import swin_t
    from torchvision.ops import Permute

    model = swin_t(weights=None)
    stem = [nn.Conv2d(3, 12, 3, 2, 1, bias=False), nn.BatchNorm2d(12), nn.ReLU()]
    stem += [nn.Conv2d(12, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 96, 1)]
    model.features[0] = nn.Sequential(nn.Sequential(*stem), Permute([0, 2, 3, 1]), nn.LayerNorm(96))
    model.head = nn.Identity()
    own_part = model.state_dict()
    for name, tensor in published.items():
        if name.endswith(("attn_mask", "relative_position_index")):
            continue
        parts = name.split(".")
        if parts[0] == "patch_embed":
            name = ".".join(["features.0", "0" if parts[1] == "proj" else "2", *parts[2:]])
        elif parts[0] == "layers":
            place = 2 * int(parts[1]) + 1
            name = ".".join([f"features.{place if parts[2] == 'blocks' else place + 1}", *parts[3:]])
            name = name.replace("mlp.fc1", "mlp.0").replace("mlp.fc2", "mlp.3")
        assert own_part[name].shape == tensor.shape, name
        own_part[name] = tensor
    model.load_state_dict(own_part)
    return model.eval()


def test_ctranspath_reads_the_key_names_of_timm_0_5_4_as_an_independent_swin_does(tmp_path):
    published = ctranspath_file()
    assert len(published) == 200
    torch.save({"model": published}, tmp_path / "ctranspath.pth")
    encoder = load_encoder("ctranspath", tmp_path / "ctranspath.pth")
    assert torch.equal(
        encoder.model.layers[1].downsample.reduction.weight, published["layers.0.downsample.reduction.weight"]
    )
    image = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(encoder.model(image), torchvision_swin(published)(image), rtol=1e-3, atol=1e-4)


def huggingface_vit(depth: int, d: int, version: int) -> dict[str, torch.Tensor]:
    """Names of transformers' ViTModel (1) and Dinov2Model (2)."""
    names = ["embeddings.cls_token", "embeddings.position_embeddings", "layernorm.weight", "layernorm.bias"]
    names += [f"embeddings.patch_embeddings.projection.{n}" for n in ("weight", "bias")]
    inner = {
        1: ["layernorm_before", "layernorm_after", "intermediate.dense", "output.dense"],
        2: ["norm1", "norm2", "mlp.fc1", "mlp.fc2"],
    }
    for i in range(depth):
        at = f"encoder.layer.{i}"
        attention = [f"attention.{p}" for p in ("attention.query", "attention.key", "attention.value", "output.dense")]
        parts = [*attention, *inner[version]]
        names += [f"{at}.{part}.{n}" for part in parts for n in ("weight", "bias")]
        names += [f"{at}.layer_scale{n}.lambda1" for n in (1, 2)] * (version == 2)
    names += ["embeddings.mask_token"] * (version == 2) + ["pooler.dense.weight"] * (version == 1)
    return {name: torch.full((2,), float(i)) for i, name in enumerate(names)}


@pytest.mark.parametrize(("name", "depth", "version"), [("phikon", 12, 1), ("phikon-v2", 24, 2)])
def test_names_of_transformers_become_those_of_timm(name, depth, version):
    published = huggingface_vit(depth, about(name).dim, version)
    with torch.device("meta"):
        expected = encoders[name]().state_dict()
    renamed = from_huggingface(published, expected)
    assert set(renamed) - set(expected) <= {"mask_token", "pooler.dense.weight"}
    assert set(expected) <= set(renamed)
    at = "encoder.layer.3.attention.attention"
    joined = torch.cat([published[f"{at}.{part}.bias"] for part in ("query", "key", "value")])
    assert torch.equal(renamed["blocks.3.attn.qkv.bias"], joined)


def test_dinov2s_own_files_fit_beside_timms():
    place, token = torch.randn(1, 5, 8), torch.randn(1, 1, 8)
    published = {"cls_token": token, "pos_embed": place, "register_tokens": torch.zeros(1, 4, 8)}
    published["blocks.0.mlp.w12.weight"] = token
    renamed = from_dinov2(published, {"reg_token": torch.zeros(1, 4, 8)})
    assert set(renamed) == {"cls_token", "pos_embed", "reg_token", "blocks.0.mlp.fc1.weight"}
    torch.testing.assert_close(renamed["cls_token"], token + place[:, :1])
    assert renamed["pos_embed"].shape == (1, 4, 8)


def test_positions_of_a_larger_image_are_interpolated():
    constant = torch.cat([torch.full((1, 1, 4), 9.0), torch.full((1, 37 * 37, 4), 2.0)], 1)
    (actual,) = resampled_positions(
        {"pos_embed": constant}, {"pos_embed": torch.empty(1, 257, 4, device="meta")}
    ).values()
    assert actual.shape == (1, 257, 4)
    assert torch.equal(actual[:, 0], constant[:, 0])
    torch.testing.assert_close(actual[:, 1:], torch.full((1, 256, 4), 2.0))
