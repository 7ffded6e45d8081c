"""Ways to run the embedded encoder on a CPU: patches a second of each, and its error against float64.

`python benchmarks/encode.py` needs no arguments. ONNX Runtime (with onnx, onnxscript) and OpenVINO are measured where they are installed;
torch.compile with `--compile`, which takes minutes and needs a C++ compiler.
"""

import argparse
import copy
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

import _harness as harness
from panther.encoders import load_encoder
from panther.encoders._base import normalise
from panther.machine import cores

PATCHES, ROUNDS = 48, 3
Network = Callable[[Tensor], Tensor]


def folded(model: nn.Module) -> nn.Module:
    """Batch norms folded into the convolutions before them."""
    model = copy.deepcopy(model)
    for part in model.modules():
        names = [name for name, _ in part.named_children()]
        for first, second in pairwise(names):
            convolution, norm = getattr(part, first), getattr(part, second)
            if isinstance(convolution, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(part, first, fuse_conv_bn_eval(convolution, norm))
                setattr(part, second, getattr(norm, "act", nn.Identity()))  # timm's norm holds its activation
    return model.to(memory_format=torch.channels_last)


def of_onnx(model: nn.Module, example: Tensor, folder: Path) -> dict[str, Network]:
    """The same network in ONNX Runtime and OpenVINO, where they are there."""
    if find_spec("onnx") is None:
        return {}
    path, found = str(folder / "lite0.onnx"), {}
    names = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": {"x": {0: "b"}, "y": {0: "b"}}}
    torch.onnx.export(model, (example.contiguous(),), path, dynamo=False, **names)
    if find_spec("onnxruntime") is not None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = cores()
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        found["ONNX Runtime"] = lambda x: torch.from_numpy(session.run(None, {"x": x.contiguous().numpy()})[0])
    if find_spec("openvino") is not None:
        import openvino

        settings = {"INFERENCE_NUM_THREADS": cores(), "INFERENCE_PRECISION_HINT": "f32"}
        compiled: Any = openvino.compile_model(path, "CPU", settings)
        found["OpenVINO"] = lambda x: torch.from_numpy(compiled(x.contiguous().numpy())[0].copy())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", action="store_true", help="also torch.compile")
    arguments = parser.parse_args()
    print(harness.machine("timm", "onnxruntime", "openvino"))
    torch.set_num_threads(cores())
    encoder = load_encoder("lite0")
    pixels = np.random.default_rng(0).integers(0, 256, (PATCHES, 224, 224, 3), dtype=np.uint8)

    def whole(network: Network, batch: int) -> Callable[[], Tensor]:
        def run() -> Tensor:
            parts = (normalise(p, encoder.about.mean, encoder.about.std) for p in torch.tensor(pixels).split(batch))
            return torch.cat([network(part) for part in parts])

        return run

    model = encoder.model
    example = normalise(torch.tensor(pixels[:8]), encoder.about.mean, encoder.about.std)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        networks = {"torch, all threads on a batch": model, "the same, batch norms folded": folded(model)}
        networks["the same, bfloat16"] = lambda x: torch.autocast("cpu", torch.bfloat16)(model)(x).float()
        if arguments.compile:
            networks["torch.compile"] = torch.compile(folded(model))
        networks |= of_onnx(model, example, Path(folder))
        sides = {
            f"{name}, batch {batch}": whole(network, batch) for name, network in networks.items() for batch in (2, 8)
        }
        sides["ours: cores side by side, batch 8"] = lambda: torch.cat(
            [encoder(pixels[i : i + 8]) for i in range(0, PATCHES, 8)]
        )
        double = copy.deepcopy(model).double()
        exact = whole(lambda x: double(x.double()), 8)()
        errors = {name: float((side() - exact).abs().max() / exact.abs().max()) for name, side in sides.items()}
        seconds = harness.interleaved(sides, ROUNDS)
    before = seconds["torch, all threads on a batch, batch 8"]
    rows = [
        [name, f"{PATCHES / took:.0f}", f"{before / took:.2f}x", f"{errors[name]:.0e}"]
        for name, took in seconds.items()
    ]
    header = ["how", "patches/s", "to torch at batch 8 (what it was)", "largest error / largest feature"]
    harness.table(f"EfficientNet-Lite0 on {cores()} cores, {PATCHES} patches", header, rows)


if __name__ == "__main__":
    main()
