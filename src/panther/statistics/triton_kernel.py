r"""The kernel on a GPU, in Triton: two launches read the features, a third adds up. :mod:`panther.statistics.gpu` makes them.

The first makes the assignment of a block of rows, looping over pieces of the features, and counts it. The second adds up
:math:`[z, z^2]^T A` in registers, each program for one piece of the features and one chunk of rows; the features are the long side of that
product, because the tensor cores work on 64 rows or more. The third adds the chunks of a bag in float64, always in the same order. There are
no atomics: the bytes of a bag depend neither on the run nor on the bags beside it.

A float32 number is three bfloat16 ones, which have its range, and a product of two such numbers is six products of the tensor cores; the
others would be beyond its last digit. An assignment, which needs fewer digits, is two of them. Tensor cores cut what they add instead of
rounding it, so only few of their sums go together before a rounded one.
"""

import triton
import triton.language as tl


@triton.jit
def split(x, parts, d, C, many, PADDED: tl.constexpr, SIZE: tl.constexpr):
    """Parameters (many, d, C) as three short numbers each, (3, many, PADDED, d), filled up with zeros."""
    c, one = tl.program_id(0), tl.program_id(1)
    TYPE: tl.constexpr = parts.dtype.element_ty
    there = tl.where(c < C, d, 0)
    for start in range(0, d, SIZE):
        k = start + tl.arange(0, SIZE)
        first, second, third = in_three(tl.load(x + (one * d + k) * C + c, mask=k < there, other=0.0), TYPE)
        where = parts + (one * PADDED + c) * d + k
        tl.store(where, first, mask=k < d)
        tl.store(where + many * PADDED * d, second, mask=k < d)
        tl.store(where + 2 * many * PADDED * d, third, mask=k < d)


@triton.jit
def in_two(x, TYPE: tl.constexpr):
    first = x.to(TYPE)
    return first, (x - first.to(tl.float32)).to(TYPE)


@triton.jit
def in_three(x, TYPE: tl.constexpr):
    first = x.to(TYPE)
    rest = x - first.to(tl.float32)
    second = rest.to(TYPE)
    return first, second, (rest - second.to(tl.float32)).to(TYPE)


@triton.jit
def times_parameters(z, parts, apart, inside, product):
    """Z times parameters in three parts that lie `apart`, the smallest products first; added to `product`."""
    TYPE: tl.constexpr = parts.dtype.element_ty
    z1, z2, z3 = in_three(z, TYPE)
    l1 = tl.load(parts, mask=inside, other=0.0)
    l2 = tl.load(parts + apart, mask=inside, other=0.0)
    l3 = tl.load(parts + 2 * apart, mask=inside, other=0.0)
    product = tl.dot(z3, l1, product)
    product = tl.dot(z1, l3, product)
    product = tl.dot(z2, l2, product)
    product = tl.dot(z2, l1, product)
    product = tl.dot(z1, l2, product)
    return tl.dot(z1, l1, product)


@triton.jit
def times_assignment(z, a1, a2):
    """Z times an assignment in two parts."""
    z1, z2, z3 = in_three(z, a1.dtype)
    product = tl.dot(z3, a1)
    product = tl.dot(z2, a1, product)
    product = tl.dot(z1, a2, product)
    return tl.dot(z1, a1, product)


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
    apart,
    d,
    C,
    many,
    inverse_temperature,
    ROWS: tl.constexpr,
    PIECE: tl.constexpr,
    EVEN: tl.constexpr,
    PADDED: tl.constexpr,
    QUADRATIC: tl.constexpr,
    COMMON: tl.constexpr,
    HARD: tl.constexpr,
    TEMPERED: tl.constexpr,
    NEGLIGIBLE: tl.constexpr,
):
    """Assignment (2, places, PADDED) in two parts that lie `apart`, scores, and both counted for each block of rows.

    A row of `chunks`: which of `many` parameters a chunk has, if not all have the same; its first row, the row after its last, and the place of its
    first row in the assignment.
    """
    chunk, block = tl.program_id(0), tl.program_id(1)
    own_parameters = tl.where(many > 1, tl.load(chunks + 4 * chunk), 0)
    first = tl.load(chunks + 4 * chunk + 1) + block * ROWS
    last = tl.load(chunks + 4 * chunk + 2)
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
        for start in range(0, d, PIECE):
            k = start + tl.arange(0, PIECE)
            inside = tl.full((PIECE,), True, tl.int1) if EVEN else k < d
            z = tl.load(x + rows[:, None] * d + k[None, :], mask=real[:, None] & inside[None, :], other=0.0).to(
                tl.float32
            )
            z = z - tl.load(origin + k, mask=inside, other=0.0)[None, :]
            where = (own_parameters * PADDED + c[None, :]) * d + k[:, None]
            nothing = tl.zeros((ROWS, PADDED), tl.float32)
            product = times_parameters(z, linear + where, many * PADDED * d, inside[:, None], nothing)
            if QUADRATIC:
                product = times_parameters(z * z, quadratic + where, many * PADDED * d, inside[:, None], product)
            logits = logits + product
            if COMMON:
                shared += tl.sum(z * z * tl.load(common + k, mask=inside, other=0.0)[None, :], 1)
        logits += tl.load(bias + own_parameters * C + c, mask=own, other=float("-inf"))[None, :]
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
        a1, a2 = in_two(a, assignment.dtype.element_ty)
        places = tl.load(chunks + 4 * chunk + 3) + block * ROWS + tl.arange(0, ROWS)
        where = assignment + places[:, None] * PADDED + c[None, :]
        tl.store(where, a1, mask=real[:, None])
        tl.store(where + apart, a2, mask=real[:, None])
        tl.store(scores + places, score, mask=real)
        # what is counted is what is added up: rounding it shifts no mean
        counts = a1.to(tl.float32) + a2.to(tl.float32)
        tl.store(own_count + c, tl.sum(counts, 0).to(tl.float64), mask=own)
        tl.store(own_count + C, tl.sum(score.to(tl.float64), 0))


@triton.jit
def add(
    x,
    origin,
    assignment,
    chunks,
    partial,
    apart,
    d,
    C,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    EVEN: tl.constexpr,
    PADDED: tl.constexpr,
    SQUARES: tl.constexpr,
):
    """Sums of a chunk of rows, for one piece of the features."""
    chunk = tl.program_id(0)
    k = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    first, last = tl.load(chunks + 4 * chunk + 1), tl.load(chunks + 4 * chunk + 2)
    place = tl.load(chunks + 4 * chunk + 3) - first
    c = tl.arange(0, PADDED)
    own = c < C
    inside = tl.full((COLUMNS,), True, tl.int1) if EVEN else k < d
    centre = tl.load(origin + k, mask=inside, other=0.0)
    total = tl.zeros((COLUMNS, PADDED), tl.float32)
    square = tl.zeros((COLUMNS, PADDED), tl.float32)
    for start in range(first, last, ROWS):
        rows = start + tl.arange(0, ROWS)
        real = rows < last
        z = tl.load(x + rows[None, :] * d + k[:, None], mask=inside[:, None] & real[None, :], other=0.0).to(tl.float32)
        z = z - centre[:, None]  # (COLUMNS, ROWS); rows that are not there have no assignment
        where = assignment + (place + rows)[:, None] * PADDED + c[None, :]
        a1 = tl.load(where, mask=real[:, None], other=0.0)
        a2 = tl.load(where + apart, mask=real[:, None], other=0.0)
        total = total + times_assignment(z, a1, a2)
        if SQUARES:
            square = square + times_assignment(z * z, a1, a2)
    MOMENTS: tl.constexpr = 2 if SQUARES else 1
    where = partial + chunk.to(tl.int64) * (MOMENTS * C * d) + c[None, :] * d + k[:, None]
    both = own[None, :] & inside[:, None]
    tl.store(where, total, mask=both)
    if SQUARES:
        tl.store(where + C * d, square, mask=both)


@triton.jit
def finish(
    partial,
    counted,
    spans,
    out,
    width,
    C,
    blocks,
    step,
    SIZE: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCKS: tl.constexpr,
    COUNTS: tl.constexpr,
):
    """Add the parts of each bag in float64, in an order that is always the same: a piece of the moments, and by the last program masses and score.

    A row of `spans`: the first chunk of a bag, and how many it has; the next one is `step` farther.
    """
    bag = tl.program_id(0)
    first, many = tl.load(spans + 2 * bag), tl.load(spans + 2 * bag + 1)
    own_sums = out + bag * (width + C + 1)
    if tl.program_id(1) < tl.num_programs(1) - 1:
        i = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
        total = tl.zeros((SIZE,), tl.float64)
        for start in range(0, many, PARTS):
            part = start + tl.arange(0, PARTS)
            both = (part < many)[:, None] & (i < width)[None, :]
            found = tl.load(partial + (first + part * step)[:, None] * width + i[None, :], mask=both, other=0.0)
            total += tl.sum(found.to(tl.float64), 0)
        tl.store(own_sums + i, total, mask=i < width)
    else:
        c, counts = tl.arange(0, COUNTS), tl.zeros((COUNTS,), tl.float64)
        for start in range(0, many * blocks, BLOCKS):
            block = start + tl.arange(0, BLOCKS)
            both = (block < many * blocks)[:, None] & (c <= C)[None, :]
            row = (first + block // blocks * step) * blocks + block % blocks
            counts += tl.sum(tl.load(counted + row[:, None] * (C + 1) + c[None, :], mask=both, other=0.0), 0)
        tl.store(own_sums + width + c, counts, mask=c <= C)
