"""From 20,000 tiny slides to 1,000,000 large ones: what handing out costs, how many workers one process feeds, and what a million slides take.

python benchmarks/scale.py                       # handing out, scaling, simulation, costs: minutes on two quiet cores
python benchmarks/scale.py --only slides --device cuda --encoder uni    # `panther slides` end to end, on a machine with a GPU
python benchmarks/scale.py --quick               # does it run? its figures mean nothing
"""

import argparse
import os
from contextlib import nullcontext
from pathlib import Path

import _harness as harness
from _simulated import Costs, Load, one_per_task, simulate

os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
PARTS = ("overhead", "tiny", "scaling", "simulation", "costs", "slides")
# what a run of `--only overhead` and `--only slides` on the machines of docs/benchmarks.md gave; used where those parts are not run
POOL, DASK = Costs(3e-4, 7e-6), Costs(4e-3, 4e-5)
WORK = {
    "a million slides, 15,000 patches each: embedded from files, one core": Load(1_000_000, 0.03, result=131_000),
    "a million slides: their tissue found": Load(1_000_000, 3.0, result=1_000),
    "20,000 tiny slides": Load(20_000, 1e-3, result=1_000),
}


def simulation(costs: dict[str, Costs], workers: tuple[int, ...]) -> None:
    """Where it bends: efficiency and load of the process that hands out, with and without batches."""
    from panther.cluster import DaskPool

    for name, load in WORK.items():
        rows = []
        for count in workers:
            for batching in (False, True):
                with nullcontext() if batching else one_per_task():
                    found = simulate(load, count, costs["Dask, 2"], DaskPool.seconds_per_task)
                row = [
                    count,
                    "together" if batching else "one per task",
                    f"{found.efficiency:.1%}",
                    f"{found.busy:.0%}",
                ]
                row += [
                    f"{found.tasks / found.seconds:,.0f}",
                    found.largest,
                    f"{found.waiting:,}",
                    f"{found.memory / 1e6:,.0f}",
                ]
                rows.append([*row, f"{found.seconds / 3600:.2f}"])
        header = ["workers", "items", "efficiency", "handing out is busy", "tasks/s", "items per task at most"]
        header += ["items on their way", "results that wait, MB", "hours"]
        harness.table(f"Simulated, Dask: {name} ({load.items:,} of {load.seconds:g} s)", header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", choices=PARTS, action="append", help="a part; may be repeated. Default: all but slides"
    )
    parser.add_argument("--device", default="cpu", help="of the part slides")
    parser.add_argument("--encoder", default="lite0", help="of the part slides; random weights")
    parser.add_argument("--slides", type=int, default=18, help="of the part slides")
    parser.add_argument("--patches", type=int, default=15_000, help="per slide, of the part slides")
    parser.add_argument("--tissue", type=Path, help="a slide whose tissue is used; default: of ../shared, else noise")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    options = parser.parse_args()
    parts, quick = options.only or PARTS[:-1], options.quick
    print(harness.machine("distributed", "dask", "panther-wsi"))
    costs = {"pool, 2": POOL, "Dask, 2": DASK}
    if {"overhead", "tiny", "scaling"} & set(parts):
        import _scale_overhead as measured

        if "overhead" in parts:
            costs |= measured.overhead(2_000 if quick else 20_000, 300 if quick else 3_000)
        if "tiny" in parts:
            measured.tiny_slides(200 if quick else 20_000)
        if "scaling" in parts:
            sizes = ((1, 2), (2,)) if quick else ((1, 2, 8, 32, 128), (1, 2, 8, 32))
            measured.scaling(20 if quick else 60, *sizes, costs)
    if "simulation" in parts:
        if quick:
            for name in list(WORK)[:2]:
                WORK.pop(name)
        simulation(costs, (10, 100) if quick else (10, 100, 300, 1000))
    if "costs" in parts:
        from _scale_costs import costs_of_a_million

        costs_of_a_million(quick=quick)
    if "slides" in parts:
        from _scale_slides import TISSUE, end_to_end

        slides, patches = (2, 300) if quick else (options.slides, options.patches)
        end_to_end(options.encoder, options.device, slides, patches, options.tissue or TISSUE)


if __name__ == "__main__":
    main()
