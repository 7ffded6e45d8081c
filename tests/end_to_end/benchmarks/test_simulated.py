"""The simulation of `benchmarks/scale.py` against cases with a known answer."""

import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def simulated():
    folder = str(Path(__file__).parents[3] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        import _simulated

        yield _simulated
    finally:
        sys.path.remove(folder)


def test_the_submitting_process_limits_many_workers(simulated):
    """100 workers would need 1000 tasks a second of 0.1 s; at 10 ms each there are 100."""
    load, costs = simulated.Load(5000, 0.1, spread=0), simulated.Costs(0.01, 0)
    with simulated.one_per_task():
        alone = simulated.simulate(load, 100, costs, 0.01)
    assert alone.seconds == pytest.approx(5000 * 0.01, rel=0.01)
    assert alone.efficiency == pytest.approx(0.1, rel=0.01)
    assert alone.busy > 0.99


def test_batches_keep_up_where_single_items_do_not(simulated):
    load, costs = simulated.Load(50_000, 0.05), simulated.Costs(2e-3, 1e-5)
    with simulated.one_per_task():
        alone = simulated.simulate(load, 200, costs, 2e-3)
    together = simulated.simulate(load, 200, costs, 2e-3)
    assert alone.largest == 1
    assert alone.efficiency < 0.2
    assert together.efficiency > 0.7
    assert together.tasks < alone.tasks / 10
