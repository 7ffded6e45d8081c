"""Ways to run an encoder: patches per second of each, and its error.

`python benchmarks/encode.py` runs the embedded encoder on a CPU, beside float64; `--device cuda` UNI, ResNet50 and GigaPath with random weights
on a GPU, beside float32 and beside TRIDENT's loop (autocast to float16 in batches of 64).

ONNX Runtime (with onnx, onnxscript) and OpenVINO are measured where they are installed;
`--compile` needs a C++ compiler.
"""

import argparse
import copy
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import _harness as harness
from panther.encoders import load_encoder
from panther.encoders._base import normalise
from panther.encoders.loading import _with_weights, find_recipe
from panther.machine import cores

PATCHES, ROUNDS = 48, 3
Network = Callable[[Tensor], Tensor]


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


@torch.inference_mode()
def on_gpu(name: str, device: str, batches: int = 8) -> None:
    """Print a table of one architecture: patches in memory to features in memory, batches of 256 unless the row names another."""
    exact = load_encoder(name, device=device, precision="float32", seed=0)
    half = load_encoder(name, device=device, seed=0)
    for encoder in (exact, half):
        for key, value in encoder.model.named_parameters():
            if key.endswith(
                "gamma"
            ):  # starts at 1e-5: without training every block would be the identity, and errors invisible
                value.fill_(0.1)
    start = time.perf_counter()
    compiled = half.compile(256)
    cold = time.perf_counter() - start
    rng = np.random.default_rng(0)
    coarse = torch.tensor(rng.integers(0, 256, (256, 3, 16, 16)), dtype=torch.float32)
    pixels = nn.functional.interpolate(coarse, exact.about.size, mode="bicubic").clamp(0, 255)
    pixels = pixels.permute(0, 2, 3, 1).to(torch.uint8).contiguous().to(device)

    def autocast(dtype: torch.dtype, size: int) -> Callable[[], Tensor]:
        def run() -> Tensor:
            with torch.autocast("cuda", dtype):
                return torch.cat(
                    [exact.model(normalise(x, exact.about.mean, exact.about.std)) for x in pixels.split(size)]
                )

        return run

    sides: dict[str, Callable[[], Tensor]] = {
        "TRIDENT's loop: autocast to float16, batch 64": autocast(torch.float16, 64),
        "autocast to bfloat16": autocast(torch.bfloat16, 256),
        "ours: float16 weights": lambda: half._encode(pixels),
        "ours: bfloat16 weights": partial(half.in_bfloat16()._encode, pixels),
        f"ours: float16 compiled ({cold:.0f} s before)": lambda: compiled._encode(pixels),
    }
    truth = torch.cat([exact._encode(x) for x in pixels.split(64)]).double()
    errors = {
        side: float(((run().double() - truth).norm(dim=1) / truth.norm(dim=1)).max()) for side, run in sides.items()
    }
    many = {side: partial(_repeat, run, batches) for side, run in sides.items()}
    seconds = harness.interleaved(many, 3, synchronise=torch.cuda.synchronize)
    first = next(iter(seconds.values()))
    rows = [
        [side, f"{256 * batches / took:.0f}", f"{first / took:.2f}x", f"{errors[side]:.1e}"]
        for side, took in seconds.items()
    ]
    harness.table(
        f"{name}, random weights, {device}", ["how", "patches/s", "ratio", "largest error of a patch / its norm"], rows
    )


def _repeat(run: Callable[[], Tensor], times: int) -> None:
    for _ in range(times):
        run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compile", action="store_true", help="also torch.compile")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    arguments = parser.parse_args()
    print(harness.machine("timm", "onnxruntime", "openvino"))
    if arguments.device != "cpu":
        for name in ("uni", "resnet50", "gigapath"):
            on_gpu(name, arguments.device)
        return
    torch.set_num_threads(cores())
    encoder = load_encoder("lite0")
    pixels = np.random.default_rng(0).integers(0, 256, (PATCHES, 224, 224, 3), dtype=np.uint8)

    def whole(network: Network, batch: int) -> Callable[[], Tensor]:
        def run() -> Tensor:
            parts = (normalise(p, encoder.about.mean, encoder.about.std) for p in torch.tensor(pixels).split(batch))
            return torch.cat([network(part) for part in parts])

        return run

    model = _with_weights(find_recipe("lite0"), None).eval().to(memory_format=torch.channels_last)
    as_before = replace(encoder, model=model)
    example = normalise(torch.tensor(pixels[:8]), encoder.about.mean, encoder.about.std)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        networks: dict[str, Network] = {"torch, all threads on a batch": model}
        networks["the same, batch norms folded"] = encoder.model
        networks["the same, bfloat16"] = lambda x: torch.autocast("cpu", torch.bfloat16)(model)(x).float()
        networks |= of_onnx(model, example, Path(folder))
        sides = {
            f"{name}, batch {batch}": whole(network, batch) for name, network in networks.items() for batch in (2, 8)
        }
        pieces = {"one piece per core, batch norms not folded": as_before, "panther: one piece per core": encoder}
        if arguments.compile:
            pieces["the same, compiled"] = encoder.compile(8)
        for name, one in pieces.items():
            sides[name] = lambda one=one: torch.cat([one(pixels[i : i + 8]) for i in range(0, PATCHES, 8)])
        double = copy.deepcopy(model).double()
        exact = whole(lambda x: double(x.double()), 8)()
        errors = {name: float((side() - exact).abs().max() / exact.abs().max()) for name, side in sides.items()}
        seconds = harness.interleaved(sides, ROUNDS)
    before = seconds["torch, all threads on a batch, batch 8"]
    rows = [
        [name, f"{PATCHES / took:.0f}", f"{before / took:.2f}x", f"{errors[name]:.0e}"]
        for name, took in seconds.items()
    ]
    header = ["method", "patches/s", "ratio to torch at batch 8", "largest error / largest feature"]
    harness.table(f"EfficientNet-Lite0 on {cores()} cores, {PATCHES} patches", header, rows)


if __name__ == "__main__":
    main()
