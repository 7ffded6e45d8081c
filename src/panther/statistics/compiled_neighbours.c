/* What lies side by side: sums over neighbouring places, and connected regions (`neighbours.py` says what they mean, and is what is right).

   Compiled into the same library as compiled_kernel.c, once for every instruction set and for float and double. Places come one after the
   other, on one thread: no result depends on how many there are. */

#include "compiled_types.h"

#define BLOCK 512 /* places whose products are added in type REAL */

/* Products of each place's posteriors q (places, count) with the sum of those ahead of it, and with its own: sums (count, 2 * count), and
   the mass (count). `ahead` (places, jumps) holds `places` where there is none; `scratch` is as large as two rows more than `sums`.
   Posteriors that are zero, as most are, are skipped. */
INLINE void touch(const REAL *restrict q, int64_t places, int64_t count, const int32_t *restrict ahead, int64_t jumps,
                  REAL *restrict scratch, double *restrict sums, double *restrict mass) {
    int64_t size = 2 * count * count;
    REAL *restrict part = scratch, *restrict factors = scratch + size;
    memset(sums, 0, size * sizeof(double));
    memset(mass, 0, count * sizeof(double));
    for (int64_t start = 0; start < places; start += BLOCK) {
        int64_t end = start + BLOCK < places ? start + BLOCK : places;
        memset(part, 0, size * sizeof(REAL));
        for (int64_t n = start; n < end; n++) {
            const REAL *restrict own = q + n * count;
            for (int64_t c = 0; c < count; c++) factors[c] = 0; /* so few that calls of memset and memcpy would cost more */
            for (int64_t c = 0; c < count; c++) factors[count + c] = own[c];
            for (int64_t j = 0; j < jumps; j++) {
                const REAL *restrict other = q + ahead[n * jumps + j] * count;
                if (ahead[n * jumps + j] < places)
                    for (int64_t c = 0; c < count; c++) factors[c] += other[c];
            }
            for (int64_t c = 0; c < count; c++) {
                REAL weight = own[c], *restrict row = part + c * 2 * count;
                if (weight == 0) continue;
                mass[c] += weight;
                for (int64_t e = 0; e < 2 * count; e++) row[e] += weight * factors[e];
            }
        }
        for (int64_t i = 0; i < size; i++) sums[i] += part[i];
    }
}

/* First place of a region, on paths that are halved as they are walked. */
static int32_t first_of(int32_t *parent, int32_t n) {
    while (parent[n] != n) n = parent[n] = parent[parent[n]];
    return n;
}

/* Likeliest prototype of each place, how many places each prototype has, and in how many connected regions they lie (count): every pair
   that joins two regions leaves one fewer. `label` and `parent` (places) are scratch. */
INLINE void count_regions(const REAL *restrict q, int64_t places, int64_t count, const int32_t *restrict ahead, int64_t jumps,
                          int32_t *restrict label, int32_t *restrict parent, int64_t *restrict likeliest, int64_t *restrict regions) {
    memset(likeliest, 0, count * sizeof(int64_t));
    for (int64_t n = 0; n < places; n++) {
        const REAL *own = q + n * count;
        int32_t best = 0;
        for (int32_t c = 1; c < count; c++)
            if (own[c] > own[best]) best = c;
        likeliest[label[n] = best]++;
        parent[n] = (int32_t)n;
    }
    memcpy(regions, likeliest, count * sizeof(int64_t));
    for (int64_t n = 0; n < places; n++) {
        int32_t own = first_of(parent, (int32_t)n);
        for (int64_t j = 0; j < jumps; j++) {
            int32_t other = ahead[n * jumps + j];
            if (other == places || label[other] != label[n]) continue;
            other = first_of(parent, other);
            if (own == other) continue;
            regions[label[n]]--;
            if (own < other)
                parent[other] = own;
            else
                own = parent[own] = other;
        }
    }
}

/* What compiled_neighbours.py calls. The usual numbers of prototypes and jumps are told to the compiler: twice as fast. */
void EXPORT(touch)(const REAL *q, int64_t places, int64_t count, const int32_t *ahead, int64_t jumps, REAL *scratch, double *sums,
                   double *mass) {
    if (count == 16 && jumps == 4)
        touch(q, places, 16, ahead, 4, scratch, sums, mass);
    else
        touch(q, places, count, ahead, jumps, scratch, sums, mass);
}

void EXPORT(regions)(const REAL *q, int64_t places, int64_t count, const int32_t *ahead, int64_t jumps, int32_t *label, int32_t *parent,
                     int64_t *likeliest, int64_t *regions) {
    if (count == 16 && jumps == 4)
        count_regions(q, places, 16, ahead, 4, label, parent, likeliest, regions);
    else
        count_regions(q, places, count, ahead, jumps, label, parent, likeliest, regions);
}
