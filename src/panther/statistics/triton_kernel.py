r"""The kernel on a GPU, in Triton: two launches read the features, a third adds up. :mod:`panther.statistics.gpu` makes them.

The first makes the assignment of a block of rows, looping over pieces of the features, and counts it. The second adds up :math:`[z, z^2]^T A` in
registers, each program for one piece of the features and one chunk of rows; the features are the long side of that product, because the tensor cores
work on 64 rows or more. The third adds the chunks of a bag in float64, in their order. There are no atomics: the bytes of a bag depend neither on the
run nor on the bags beside it. Products of float32 numbers are made of three tf32 ones.
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
    scores,
    counted,
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
    own = c < C
    own_count = counted + (chunk * tl.num_programs(1) + block) * (C + 1)
    if first >= last:  # a chunk that ends before this block
        tl.store(own_count + c, tl.zeros((PADDED,), tl.float64), mask=own)
        tl.store(own_count + C, 0.0)
    else:
        rows = first + tl.arange(0, ROWS)
        real = rows < last
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
        score = tl.where(real, score + shared, 0.0)
        tl.store(assignment + rows[:, None] * PADDED + c[None, :], a, mask=real[:, None])
        tl.store(scores + rows, score, mask=real)
        tl.store(own_count + c, tl.sum(a, 0).to(tl.float64), mask=own)
        tl.store(own_count + C, tl.sum(score.to(tl.float64), 0))


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
    total = tl.zeros((COLUMNS, PADDED), tl.float32)
    square = tl.zeros((COLUMNS, PADDED), tl.float32)
    for start in range(first, last, ROWS):
        rows = start + tl.arange(0, ROWS)
        real = rows < last
        z = tl.load(x + rows[:, None] * d + k[None, :], mask=real[:, None] & inside[None, :], other=0.0).to(tl.float32)
        z = tl.trans(tl.where(real[:, None], z - centre[None, :], 0.0))
        a = tl.load(assignment + rows[:, None] * PADDED + c[None, :], mask=real[:, None], other=0.0)
        total = tl.dot(z, a, total, input_precision="tf32x3")
        if SQUARES:
            square = tl.dot(z * z, a, square, input_precision="tf32x3")
    MOMENTS: tl.constexpr = 2 if SQUARES else 1
    where = partial + chunk * (MOMENTS * C * d) + c[None, :] * d + k[:, None]
    both = own[None, :] & inside[:, None]
    tl.store(where, total, mask=both)
    if SQUARES:
        tl.store(where + C * d, square, mask=both)


@triton.jit
def finish(
    partial, counted, firsts, out, width, C, blocks, SIZE: tl.constexpr, AT_ONCE: tl.constexpr, COUNTS: tl.constexpr
):
    """Add the parts of each bag in float64, in their order: a piece of the moments, and by the last program masses and score."""
    bag = tl.program_id(0)
    first, last = tl.load(firsts + bag), tl.load(firsts + bag + 1)
    own_sums = out + bag * (width + C + 1)
    if tl.program_id(1) < tl.num_programs(1) - 1:
        i = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
        total = tl.zeros((SIZE,), tl.float64)
        for part in range(first, last):
            total += tl.load(partial + part * width + i, mask=i < width, other=0.0).to(tl.float64)
        tl.store(own_sums + i, total, mask=i < width)
    else:
        c, counts = tl.arange(0, COUNTS), tl.zeros((COUNTS,), tl.float64)
        for start in range(first * blocks, last * blocks, AT_ONCE):
            part = start + tl.arange(0, AT_ONCE)
            both = (part < last * blocks)[:, None] & (c <= C)[None, :]
            counts += tl.sum(tl.load(counted + part[:, None] * (C + 1) + c[None, :], mask=both, other=0.0), 0)
        tl.store(own_sums + width + c, counts, mask=c <= C)
