r"""The kernel on a GPU, in Triton: two launches read the features, a third adds up. :mod:`panther.statistics.gpu` makes them.

The first makes the assignment of a block of rows, looping over pieces of the features. The second adds up :math:`A^T [z, z^2]` in registers, each
program for one piece of the features and one chunk of rows. The third adds the chunks of a bag in float64, in their order. There are no atomics: the
bytes of a bag depend neither on the run nor on the bags beside it. Products of float32 numbers are made of three tf32 ones.
"""

import triton
import triton.language as tl


@triton.jit
def assign(
    x,
    origin,
    linear,
    bias,
    quadratic,
    common,
    chunks,
    assignment,
    d,
    C,
    bag_stride,
    inverse_temperature,
    ROWS: tl.constexpr,
    PIECE: tl.constexpr,
    PADDED: tl.constexpr,
    QUADRATIC: tl.constexpr,
    COMMON: tl.constexpr,
    HARD: tl.constexpr,
    TEMPERED: tl.constexpr,
    NEGLIGIBLE: tl.constexpr,
):
    chunk, block = tl.program_id(0), tl.program_id(1)
    bag = tl.load(chunks + 3 * chunk)
    first = tl.load(chunks + 3 * chunk + 1) + block * ROWS
    last = tl.load(chunks + 3 * chunk + 2)
    c = tl.arange(0, PADDED)
    if first < last:
        rows = first + tl.arange(0, ROWS)
        real = rows < last
        own = c < C
        logits = tl.zeros((ROWS, PADDED), tl.float32)
        shared = tl.zeros((ROWS,), tl.float32)
        parameters = bag * bag_stride * d
        for start in range(0, d, PIECE):
            k = start + tl.arange(0, PIECE)
            inside = k < d
            z = tl.load(x + rows[:, None] * d + k[None, :], mask=real[:, None] & inside[None, :], other=0.0).to(
                tl.float32
            )
            z = z - tl.load(origin + k, mask=inside, other=0.0)[None, :]
            z = tl.where(real[:, None], z, 0.0)
            where = parameters + c[:, None] * d + k[None, :]
            both = own[:, None] & inside[None, :]
            logits = tl.dot(
                z, tl.trans(tl.load(linear + where, mask=both, other=0.0)), logits, input_precision="tf32x3"
            )
            if QUADRATIC:
                q2 = tl.load(quadratic + where, mask=both, other=0.0)
                logits = tl.dot(z * z, tl.trans(q2), logits, input_precision="tf32x3")
            if COMMON:
                shared += tl.sum(z * z * tl.load(common + k, mask=inside, other=0.0)[None, :], 1)
        logits += tl.load(bias + bag * bag_stride + c, mask=own, other=float("-inf"))[None, :]
        top = tl.max(logits, 1)
        if HARD:
            a = (tl.argmax(logits, 1)[:, None] == c[None, :]).to(tl.float32)
            score = top
        else:
            CUT: tl.constexpr = -70.0775527898  # log(NEGLIGIBLE) - 1
            e = tl.where(own[None, :], tl.exp(tl.maximum(logits - top[:, None], CUT)), 0.0)
            total = tl.sum(e, 1)
            score = top + tl.log(total)
            if TEMPERED:
                e = tl.where(own[None, :], tl.exp(tl.maximum((logits - top[:, None]) * inverse_temperature, CUT)), 0.0)
                total = tl.sum(e, 1)
            a = e / total[:, None]
            a = tl.where(a > NEGLIGIBLE, a, 0.0)
        a = tl.where(real[:, None], a, 0.0)
        row = assignment + rows * (C + 1)  # the score stands beside the assignment
        tl.store(row[:, None] + c[None, :], a, mask=real[:, None] & own[None, :])
        tl.store(row + C, score + shared, mask=real)


@triton.jit
def add(
    x,
    origin,
    assignment,
    chunks,
    partial,
    d,
    C,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PADDED: tl.constexpr,
    SQUARES: tl.constexpr,
):
    chunk = tl.program_id(0)
    k = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    first, last = tl.load(chunks + 3 * chunk + 1), tl.load(chunks + 3 * chunk + 2)
    c = tl.arange(0, PADDED)
    inside, own = k < d, c < C
    centre = tl.load(origin + k, mask=inside, other=0.0)
    total = tl.zeros((PADDED, COLUMNS), tl.float32)
    square = tl.zeros((PADDED, COLUMNS), tl.float32)
    mass = tl.zeros((PADDED,), tl.float64)  # these two by one program alone
    score = tl.zeros((ROWS,), tl.float64)
    for start in range(first, last, ROWS):
        rows = start + tl.arange(0, ROWS)
        real = rows < last
        z = tl.load(x + rows[:, None] * d + k[None, :], mask=real[:, None] & inside[None, :], other=0.0).to(tl.float32)
        z = tl.where(real[:, None], z - centre[None, :], 0.0)
        row = assignment + rows * (C + 1)
        a = tl.load(row[None, :] + c[:, None], mask=real[None, :] & own[:, None], other=0.0)
        total = tl.dot(a, z, total, input_precision="tf32x3")
        if SQUARES:
            square = tl.dot(a, z * z, square, input_precision="tf32x3")
        if tl.program_id(1) == 0:
            mass += tl.sum(a, 1).to(tl.float64)
            score += tl.load(row + C, mask=real, other=0.0).to(tl.float64)
    MOMENTS: tl.constexpr = 2 if SQUARES else 1
    own_part = partial + chunk * (MOMENTS * C * d + C + 1)
    where = own_part + c[:, None] * d + k[None, :]
    both = own[:, None] & inside[None, :]
    tl.store(where, total, mask=both)
    if SQUARES:
        tl.store(where + C * d, square, mask=both)
    if tl.program_id(1) == 0:
        tl.store(own_part + MOMENTS * C * d + c, mass.to(tl.float32), mask=own)
        tl.store(own_part + MOMENTS * C * d + C, tl.sum(score, 0).to(tl.float32))


@triton.jit
def finish(partial, firsts, out, width, SIZE: tl.constexpr):
    """Add the parts of each bag in float64, in their order."""
    bag = tl.program_id(0)
    i = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    inside = i < width
    total = tl.zeros((SIZE,), tl.float64)
    for part in range(tl.load(firsts + bag), tl.load(firsts + bag + 1)):
        total += tl.load(partial + part * width + i, mask=inside, other=0.0).to(tl.float64)
    tl.store(out + bag * width + i, total, mask=inside)
