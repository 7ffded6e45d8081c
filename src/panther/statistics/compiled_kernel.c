/* Assign and accumulate in one pass over rows: the compiled kernel (docs/decisions/0011-compiled-kernel.md).

   This file is compiled once for every instruction set and for float and double; the flags say which (hatch_build.py). It knows vectors
   of VECTOR bytes and nothing else of the machine, save the conversion of half precision. `compiled.py` calls it; the torch kernel says
   what is right, also for numbers that are not finite.

   Rows are cut into units of UNIT rows, whose sums are of type REAL and merged in double, in the order of the rows; a unit is cut into
   blocks of rows that stay in the second-level cache between their logits and their sums. Threads take units by turns. No result depends
   on their number. */

#include <sched.h>

#include "compiled_assign.h"
#include "compiled_logits.h"
#include "compiled_sums.h"

/* Bytes that a thread needs as scratch. */
int64_t EXPORT(scratch)(const Parameters *p) {
    Memory m = memory_of(p, 0);
    return (int64_t)(intptr_t)m.listed + m.width * m.block;
}

static void write_distances(const Parameters *p, int64_t rows, const Memory *m) {
    for (int64_t r = 0; r < rows; r++) {
        vec sum = {0};
        for (int64_t t = 0; t < m->tiles; t++)
            for (int j = 0; j < COLUMNS; j += LANES) {
                vec x = load(m->z + t * m->apart + r * COLUMNS + j);
                sum += x * x;
            }
        REAL energy = 0;
        for (int i = 0; i < LANES; i++) energy += sum[i];
        for (int64_t c = 0; c < p->prototypes; c++) {
            REAL squared = energy + m->a[r * m->width + c];
            m->a[r * m->width + c] = squared < 0 ? 0 : squared; /* NaN stays */
        }
    }
}

/* Changes with the arguments of these functions and of those of the other C files; compiled.py knows the same number. */
int EXPORT(interface)(void) { return 10; }

/* Whether this processor has the instructions that this copy was compiled for. */
int EXPORT(usable)(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
#if defined(__AVX512F__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#elif defined(__AVX2__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#else
    return 1;
#endif
}

/* Rows from `start` to `end`, at most UNIT: their sums to `part` and `mass`. Returns the sum of their scores. */
static double walk_unit(const Parameters *p, const Slice *x, int64_t start, int64_t end, const Memory *m) {
    char odd[MOST_ROWS];
    double score = 0;
    memset(m->mass, 0, m->width * sizeof(double));
    memset(m->part, 0, part_size(p) * sizeof(REAL));
    for (; start < end; start += m->block) {
        int64_t rows = end - start < m->block ? end - start : m->block;
        logits(p, x, start, rows, m);
        if (p->mode == DISTANCES) {
            write_distances(p, rows, m);
        } else {
            score += assign(p, rows, m, odd, x->scores ? x->scores + start : 0);
            if (p->squares)
                add(1, p, m, rows, odd);
            else
                add(0, p, m, rows, odd);
        }
        if (x->assignment)
            for (int64_t r = 0; r < rows; r++)
                memcpy(x->assignment + (start + r) * p->prototypes, m->a + r * m->width, p->prototypes * sizeof(REAL));
    }
    return score;
}

/* Add the sums of a unit to those of the whole. */
static void merge(const Parameters *p, double score, const Memory *m, Sums *sums) {
    int64_t size = p->prototypes * COLUMNS, next = size * (1 + p->squares);
    for (int64_t which = 0; which <= p->squares; which++)
        for (int64_t c = 0; c < p->prototypes; c++) { /* sums were last touched a unit ago: one row after the other can be read ahead */
            const REAL *part = m->part + which * size + c * COLUMNS;
            double *sum = (which ? sums->square : sums->total) + c * p->dim;
            for (int64_t left = p->dim; left > 0; left -= COLUMNS, sum += COLUMNS, part += next) {
                if (left >= COLUMNS)
                    for (int j = 0; j < COLUMNS; j++) sum[j] += part[j];
                else
                    for (int j = 0; j < left; j++) sum[j] += part[j];
            }
        }
    for (int64_t c = 0; c < p->prototypes; c++) sums->mass[c] += m->mass[c];
    *sums->score += score;
}

/* Walk the units of a slice that no other thread has begun. The order of the rows is the order of the sums, so a thread waits for its
   turn before it adds its own; where another one has failed, the turn never comes. Without `sums` for distances. */
void EXPORT(walk)(const Parameters *p, Slice *x, char *scratch, Sums *sums) {
    Memory m = memory_of(p, scratch);
    int64_t start;
    while ((start = UNIT * __atomic_fetch_add(&x->begun, 1, __ATOMIC_RELAXED)) < x->rows) {
        int64_t end = start + UNIT < x->rows ? start + UNIT : x->rows, turn = x->first + start;
        double score = walk_unit(p, x, start, end, &m);
        if (p->mode == DISTANCES) continue;
        while (__atomic_load_n(&sums->merged, __ATOMIC_ACQUIRE) != turn) {
            if (__atomic_load_n(&sums->stopped, __ATOMIC_RELAXED)) return;
            sched_yield();
        }
        merge(p, score, &m, sums);
        __atomic_store_n(&sums->merged, x->first + end, __ATOMIC_RELEASE);
    }
}
