"""How many multiply-adds of floats one core can do in a second: a loop in C that does nothing else, compiled for this processor."""

import ctypes
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

VECTORS, ROUNDS = 12, 200_000  # enough vectors to hide how long one multiply-add takes
SOURCE = """
#ifdef __AVX512F__
typedef float vec __attribute__((vector_size(64)));
#else
typedef float vec __attribute__((vector_size(32)));
#endif
int lanes(void) { return sizeof(vec) / sizeof(float); }
void loop(long rounds, float factor) {
    DECLARE
    for (long i = 0; i < rounds; i++) {
        BODY
    }
}
"""


def multiply_adds() -> float | None:
    """Per second, of one core, at its best; None without a C compiler, or on another processor than x86."""
    compiler = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
    if compiler is None:
        return None
    declare = "".join(f"vec v{i} = {{0}}; v{i} += factor + {i};" for i in range(VECTORS))
    # the empty instruction: each round's numbers count as used
    body = "".join(f'v{i} = v{i} * factor + factor; __asm__ volatile("" : "+x"(v{i}));' for i in range(VECTORS))
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "peak.c"), Path(folder, "peak.so")
        source.write_text(SOURCE.replace("DECLARE", declare).replace("BODY", body))
        flags = ["-O2", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC"]
        command = [compiler, *flags, str(source), "-o", str(library)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            return None
        functions = ctypes.CDLL(str(library))
    seconds = []
    for _ in range(100):
        start = time.perf_counter()
        functions.loop(ctypes.c_long(ROUNDS), ctypes.c_float(0.5))
        seconds.append(time.perf_counter() - start)
    return VECTORS * functions.lanes() * ROUNDS / min(seconds)
