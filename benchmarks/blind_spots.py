"""What a mixture of prototypes cannot see, and what the blocks `space` and `tail` and centring do about it.

    python benchmarks/blind_spots.py --tiles TILES [--device cuda] [--workers 14]   # TILES: LC25000's lung tiles, a folder per tissue
    python benchmarks/blind_spots.py --sites --tiles TILES                          # several new laboratories at once
    python benchmarks/blind_spots.py --cost                                         # time and numbers of the blocks
    python benchmarks/blind_spots.py --tiles TILES --displacement                   # why a threshold can be off where slides are ranked well

Cohorts are composed of tiles, drawn and real, so that the classes differ in one thing only (`_blind_spot_worlds.py`). Without TILES the drawn ones
alone are judged. Finished cells are kept in a file: a stopped run goes on.
"""

import argparse
from collections.abc import Container, Iterator
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch

import _harness as harness
from _blind_spot_cells import Cell, Job, judged
from _blind_spot_cost import cost
from _blind_spot_displacement import displacement
from _blind_spot_methods import NETWORK_KINDS, NETWORKS, ROWS, answers, network_answer
from _blind_spot_sites import run_sites
from _blind_spot_tables import tell
from _blind_spot_worlds import QUESTIONS, make_cohort
from _planted_bank import Bank, drawn_bank, laboratories, real_bank

LABORATORIES, SPREAD = 8, 2.5  # stains, and how much stronger they differ than the demo's sites
TILES_DRAWN = 320  # of each tissue


def bank_path(how: argparse.Namespace, name: str) -> Path:
    """File of a bank."""
    return Path(how.banks / (f"{name}.npz" if how.spread == SPREAD else f"{name}_{how.spread:g}.npz"))


def make_banks(how: argparse.Namespace) -> list[str]:
    """Draw, stain and encode what is not there yet; names of the banks."""
    tiles, device, quick = how.tiles, how.device, how.quick
    stains = laboratories(5 if quick else LABORATORIES, how.spread)
    makers = {"drawn": partial(drawn_bank, stains, 80 if quick else TILES_DRAWN, device=device)}
    if tiles is not None:
        makers["real"] = partial(real_bank, tiles, stains, device=device)
    how.banks.mkdir(parents=True, exist_ok=True)
    for name, make in makers.items():
        if not bank_path(how, name).exists():
            make().save(bank_path(how, name))
    return list(makers)


@lru_cache(maxsize=2)
def bank(path: Path) -> Bank:
    return Bank.load(path)


def judge(question: str, seed: int, methods: list[str], how: argparse.Namespace) -> list[tuple[Cell, list[float]]]:
    """Logits of the test patients by rows, or by a network."""
    torch.set_num_threads(1)
    asked = QUESTIONS[question]
    cohort = make_cohort(asked, bank(bank_path(how, asked.bank)), seed)
    if methods[0] in NETWORKS:
        found = [(methods[0], network_answer(methods[0], cohort, seed, how.device, how.quick))]
    else:
        found = list(answers({name: ROWS[name] for name in methods}, cohort, seed))
    return [((question, seed, name), np.round(logits, 4).tolist()) for name, logits in found]


def jobs(how: argparse.Namespace, banks: list[str], done: Container[Cell]) -> Iterator[Job]:
    """What is missing, seed by seed, so that a stopped run has whole ones; the slow networks first."""
    asked = [name for name, question in QUESTIONS.items() if question.bank in banks and how.only in name]
    for seed in range(how.first_seed, how.first_seed + how.seeds):
        missing = [(q, m) for m in how.methods for q in asked if answered(m, q) and (q, seed, m) not in done]
        yield from ((q, seed, [m]) for q, m in missing if m in NETWORKS)
        for question in asked:
            rows = [m for q, m in missing if q == question and m in ROWS]
            if rows:
                yield question, seed, rows


def answered(method: str, question: str) -> bool:
    """Whether a method is asked that question."""
    return QUESTIONS[question].kind in (ROWS[method].kinds if method in ROWS else NETWORK_KINDS)


def run(how: argparse.Namespace) -> dict[Cell, np.ndarray]:
    banks = make_banks(how)
    return judged(judge, partial(jobs, how, banks), how)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiles", type=Path, help="folder with a folder of pictures per tissue: aca, normal, scc")
    parser.add_argument("--banks", type=Path, default=Path("banks"), help="folder of encoded tiles")
    parser.add_argument("--cells", type=Path, default=Path("blind_spots.jsonl"), help="file of finished cells")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=20, help="seeds below were looked at while blocks were made")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="questions with this in their name")
    parser.add_argument(
        "--methods", nargs="*", default=[*NETWORKS, *ROWS], choices=[*NETWORKS, *ROWS], metavar="METHOD"
    )
    parser.add_argument(
        "--spread", type=float, default=SPREAD, help="of stains, where they differ; the demo's sites: 1"
    )
    parser.add_argument("--sites", action="store_true", help="external cohorts of several new laboratories instead")
    parser.add_argument("--macenko", action="store_true", help="with --sites: tiles normalised before encoding, too")
    parser.add_argument("--cost", action="store_true", help="time and numbers of the blocks instead")
    parser.add_argument(
        "--displacement", action="store_true", help="how far test slides lie from training slides instead"
    )
    parser.add_argument("--quick", action="store_true", help="one seed, few tiles, networks of two epochs")
    how = parser.parse_args()
    print(harness.machine("scikit-learn"))
    if how.cost:
        cost(how.quick)
        return
    how.seeds = 1 if how.quick else how.seeds
    if how.sites:
        run_sites(how)
        return
    if how.displacement:
        for name in make_banks(how):
            seeds = range(how.first_seed, how.first_seed + how.seeds)
            displacement(f"{name}: lesion of 1 %", bank(bank_path(how, name)), seeds)
        return
    tell(run(how), [*ROWS, *NETWORKS])


if __name__ == "__main__":
    main()
