/* What the C files share: names of functions that say what they were compiled for, and numbers as they are stored. */

#pragma once
#include <stdint.h>
#include <string.h>

#define JOIN_(name, suffix) name##_##suffix
#define JOIN(name, suffix) JOIN_(name, suffix)
#define EXPORT(name) JOIN(name, SUFFIX)
#define INLINE static inline __attribute__((always_inline))

enum kind { FLOAT32, FLOAT16, BFLOAT16, FLOAT64 };

typedef float float_ __attribute__((aligned(1), may_alias));
typedef double double_ __attribute__((aligned(1), may_alias));
typedef uint16_t half_ __attribute__((aligned(1), may_alias));

INLINE float from_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

INLINE float from_half(uint16_t h) {
    float f = from_bits((uint32_t)(h & 0x7fff) << 13) * 0x1p112f; /* right also for subnormal numbers */
    uint32_t bits;
    memcpy(&bits, &f, 4);
    bits |= (h & 0x7fff) >= 0x7c00 ? 0x7f800000u : 0;
    return from_bits(bits | (uint32_t)(h & 0x8000) << 16);
}

INLINE REAL widened(const int kind, const char *x, int64_t j) {
    switch (kind) {
    case FLOAT16: return (REAL)from_half(((const half_ *)x)[j]);
    case BFLOAT16: return (REAL)from_bits((uint32_t)((const half_ *)x)[j] << 16);
    case FLOAT64: return (REAL)((const double_ *)x)[j];
    default: return (REAL)((const float_ *)x)[j];
    }
}
