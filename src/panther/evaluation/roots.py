"""Where a function crosses zero, by Brent's method: the numbers of `scipy.optimize.brentq`, which takes a quarter of a second to import."""

import math
from collections.abc import Callable

RELATIVE = 4 * 2.0**-52  # of the root: what can be told apart
STEPS = 100


def bracketed_root(function: Callable[[float], float], low: float, high: float, xtol: float) -> float:
    """Root of a function whose signs at both ends differ (Brent 1973, chapter 4): secants and parabolas, halves where these do not help."""
    before, here = float(low), float(high)
    f_before, f_here = function(before), function(here)
    if f_before == 0:
        return before
    if f_here == 0:
        return here
    if (f_before < 0) == (f_here < 0):
        raise ValueError(f"the function has the same sign at {low} and {high}")
    across = f_across = last = step = 0.0  # the other end of the bracket, the step before the last one, the last one
    for _ in range(STEPS):
        if f_before != 0 and f_here != 0 and (f_before < 0) != (f_here < 0):
            across, f_across = before, f_before
            last = step = here - before
        if abs(f_across) < abs(f_here):  # the better end is here
            before, here, across = here, across, here
            f_before, f_here, f_across = f_here, f_across, f_here
        near = (xtol + RELATIVE * abs(here)) / 2
        half = (across - here) / 2
        if f_here == 0 or abs(half) < near:
            return here
        wanted = math.inf
        if abs(last) > near and abs(f_here) < abs(f_before):
            wanted = _interpolated((before, here, across), (f_before, f_here, f_across))
        if 2 * abs(wanted) < min(abs(last), 3 * abs(half) - near):
            last, step = step, wanted
        else:
            last = step = half
        before, f_before = here, f_here
        here += step if abs(step) > near else math.copysign(near, half)
        f_here = function(here)
    raise ValueError(f"no root was found in {STEPS} steps")


def _interpolated(x: tuple[float, float, float], f: tuple[float, float, float]) -> float:
    """Step from the middle point: by a secant where two of the three are one, else by an inverse parabola."""
    (before, here, across), (f_before, f_here, f_across) = x, f
    if before == across:
        return -f_here * (here - before) / (f_here - f_before)
    first, second = (f_before - f_here) / (before - here), (f_across - f_here) / (across - here)
    return -f_here * (f_across * second - f_before * first) / (second * first * (f_across - f_before))
