/* Parameters as others have them, factors (dim, prototypes) and nothing filled up, become those of the kernel. */

#include <math.h>

#include "compiled_types.h"

/* Where the next numbers go; NULL: they are only counted. */
typedef struct {
    REAL *memory;
    int64_t used;
} Room;

static REAL *taken(Room *room, int64_t count) {
    int64_t before = room->used;
    room->used += count;
    return room->memory ? room->memory + before : 0;
}

static const REAL *filled_up(const REAL *x, int64_t count, int64_t whole, REAL with, Room *room) {
    if (!x || count == whole) return x; /* as it is */
    REAL *out = taken(room, whole);
    if (!out) return x;
    memcpy(out, x, count * sizeof(REAL));
    for (int64_t j = count; j < whole; j++) out[j] = with;
    return out;
}

static const REAL *in_panels(const REAL *x, int64_t dim, int64_t prototypes, Room *room) {
    int64_t wide = tiles_of(dim) * COLUMNS, width = panels_of(prototypes) * LANES;
    if (!x || (dim == wide && prototypes == LANES)) return x;
    REAL *out = taken(room, width * wide);
    if (!out) return x;
    memset(out, 0, width * wide * sizeof(REAL));
    for (int64_t first = 0; first < prototypes; first += LANES, out += wide * LANES) {
        int64_t count = prototypes - first < LANES ? prototypes - first : LANES;
        for (int64_t j = 0; j < dim; j++)
            for (int64_t c = 0; c < count; c++) out[j * LANES + c] = x[j * prototypes + first + c];
    }
    return out - width * wide;
}

/* Returns how many numbers of memory it takes; with memory, the parameters point into it from now on, as far as something changes. */
int64_t EXPORT(pack)(Parameters *p, REAL *memory) {
    int64_t wide = tiles_of(p->dim) * COLUMNS, width = panels_of(p->prototypes) * LANES;
    Room room = {memory, 0};
    Parameters own = *p;
    own.linear = in_panels(p->linear, p->dim, p->prototypes, &room);
    own.quadratic = in_panels(p->quadratic, p->dim, p->prototypes, &room);
    own.bias = filled_up(p->bias, p->prototypes, width, -(REAL)INFINITY, &room);
    own.origin = filled_up(p->origin, p->dim, wide, 0, &room);
    own.common = filled_up(p->common, p->dim, wide, 0, &room);
    if (memory) *p = own;
    return room.used;
}
