"""Heads and probes on 1,000 x 32,784 embeddings (C = 16, d = 1024): the trainer, and per-prototype networks beside a Python loop.

python benchmarks/learning.py             # minutes; on a machine with a GPU it measures there too
python benchmarks/learning.py --quick     # does it run? seconds; its figures mean nothing
"""

import argparse
import statistics

import numpy as np
import torch
from torch import Tensor, nn

import _harness as harness
from panther.cohort.targets import Survival
from panther.models.heads import Structured, build_head
from panther.models.probes import fit_cox, fit_logistic
from panther.models.settings import usual_training
from panther.models.tasks import fit_task
from panther.models.trainer import ArraySource, fit

PATIENTS, PROTOTYPES, TOKEN = 1000, 16, 2049
SMALL = (64, 257)  # also C = 64 tokens of d = 128, where a loop's overhead shows


class Loop(nn.Module):
    """The same head, one prototype after the other."""

    def __init__(self, head: Structured) -> None:
        super().__init__()
        self.shape, self.shared, self.after, self.out = head.sizes[:2], head.shared, head.after, head.out
        own = head.per_prototype[0]
        self.each = nn.ModuleList()
        for weight, bias in zip(own.weight.detach(), own.bias.detach(), strict=True):
            layer = nn.Linear(*weight.shape)
            layer.weight.data, layer.bias.data = weight.T.contiguous().clone(), bias[0].clone()
            self.each.append(nn.Sequential(layer, nn.ReLU(), nn.Dropout(0.1)))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(len(x), *self.shape)
        each = [network(self.shared(tokens[:, c])) for c, network in enumerate(self.each)]
        return self.out(self.after(torch.cat(each, 1)))


def cohort(shape: tuple[int, int]) -> tuple[Tensor, Survival]:
    rng = np.random.default_rng(0)
    x = torch.randn(PATIENTS, shape[0] * shape[1], generator=torch.Generator().manual_seed(0))
    risk = x[:, :20].sum(1).numpy() / 4
    return x, Survival(rng.exponential(1000 * np.exp(-risk)) + 1, rng.random(PATIENTS) < 0.4)


def steps(model: nn.Module, x: Tensor, batch: dict[str, Tensor], task, number: int) -> None:
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)  # both sides, as the trainer does
    for _ in range(number):
        optimiser.zero_grad(set_to_none=True)
        task.loss(model(x), batch).backward()
        optimiser.step()


def beside_a_loop(device: str) -> None:
    """Training steps of batch 64, interleaved; and that both compute the same."""
    rows = []
    number = 200 if device == "cuda" else 4
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    for shape in ((PROTOTYPES, TOKEN), SMALL):
        x, target = cohort(shape)
        task = fit_task("cox", target)
        batch = {k: v[:64].to(device) for k, v in task.encode(target).items()}
        for name in ("paper-survival", "paper-classification"):
            head = build_head(name, shape, 1, seed=0)
            loop = Loop(head).to(device)
            head = build_head(name, shape, 1, seed=0).to(device)
            part = x[:64].to(device)
            with torch.no_grad():
                expected = head.eval()(part)
                error = float((expected - loop.eval()(part)).abs().max() / expected.abs().max())
            for side in (head, loop):
                side.train()
            sides = {
                "loop": lambda loop=loop, part=part, batch=batch, task=task: steps(loop, part, batch, task, number),
                "ours": lambda head=head, part=part, batch=batch, task=task: steps(head, part, batch, task, number),
            }
            seconds = {k: s / number * 1e3 for k, s in harness.interleaved(sides, 7, synchronise=wait).items()}
            ratio = f"{seconds['loop'] / seconds['ours']:.2f}x"
            rows.append(
                [
                    f"C {shape[0]}, t {shape[1]}",
                    name,
                    f"{seconds['loop']:.2f}",
                    f"{seconds['ours']:.2f}",
                    ratio,
                    f"{error:.0e}",
                ]
            )
    header = ["tokens", "head", "loop ms/step", "ours ms/step", "ratio", "relative difference"]
    harness.table(f"Structured head beside a per-prototype loop, {device}, batch 64", header, rows)


def whole_trainings(device: str) -> None:
    """The paper's survival training (50 epochs, batch 64), from the array to the fitted head."""
    x, target = cohort((PROTOTYPES, TOKEN))
    task = fit_task("cox", target)
    rows = []
    for name in ("linear", "paper-survival"):
        settings = usual_training("survival", network=False)
        settings = type(settings)(**{**vars(settings), "device": device, "mixed_precision": device == "cuda"})
        source = ArraySource(x, task.encode(target), settings.batch_size)
        model = build_head(name, (PROTOTYPES, TOKEN), 1, seed=1)
        seconds, fitted = harness.timed(lambda m=model, s=source, t=settings: fit(m, s, task, t))
        losses = [row["train_loss"] for row in fitted.history]
        rows.append([name, settings.epochs, f"{seconds:.1f}", f"{losses[0]:.3f} -> {losses[-1]:.3f}"])
    harness.table(f"{len(x):,} x {x.shape[1]:,}, Cox, {device}", ["head", "epochs", "seconds", "training loss"], rows)


def probes() -> None:
    """Probes with five inner folds over the whole grid of penalties."""
    x, target = cohort((PROTOTYPES, TOKEN))
    labels = (x[:, :20].sum(1) > 0).long().numpy()
    array = x.numpy()
    rows = []
    for name, call in {
        "logistic": lambda: fit_logistic(array, labels, 2),
        "ridge-cox": lambda: fit_cox(array, target.time, target.event),
    }.items():
        took = [harness.timed(call) for _ in range(2)]
        rows.append([name, f"{statistics.median(t for t, _ in took):.1f}", len(took[0][1].scores), took[0][1].strength])
    harness.table(
        f"Probes on {len(x):,} x {x.shape[1]:,}, one thread",
        ["probe", "seconds", "penalties tried x 5 folds", "chosen"],
        rows,
    )


def weighed_probes() -> None:
    """What weighing four statistics costs a probe (decision 9): nine weightings instead of one."""
    x, target = cohort((PROTOTYPES, TOKEN))
    array = x.numpy()
    labels = (x[:, :20].sum(1) > 0).long().numpy()
    blocks = np.arange(array.shape[1]) % 4
    rows = []
    for n in (min(60, PATIENTS), min(200, PATIENTS)):
        calls = {
            "logistic": lambda n=n, **o: fit_logistic(array[:n], labels[:n], 2, **o),
            "ridge-cox": lambda n=n, **o: fit_cox(array[:n], target.time[:n], target.event[:n], **o),
        }
        for name, call in calls.items():
            plain, weighed = (
                statistics.median(harness.timed(lambda c=call, o=options: c(**o))[0] for _ in range(3))
                for options in ({}, {"blocks": blocks})
            )
            rows.append([name, n, f"{plain:.2f}", f"{weighed:.2f}", f"{weighed / plain:.1f}x"])
    harness.table(
        f"Probes on patients x {array.shape[1]:,}, one thread",
        ["probe", "patients", "seconds", "weighed", "ratio"],
        rows,
    )


def main() -> None:
    global PATIENTS, TOKEN
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    if parser.parse_args().quick:
        PATIENTS, TOKEN = 60, 17
    torch.set_num_threads(1)
    print(harness.machine("scikit-learn", "scipy"))
    for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        beside_a_loop(device)
        whole_trainings(device)
    probes()
    weighed_probes()


if __name__ == "__main__":
    main()
