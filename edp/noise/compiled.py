"""`gaussian.c`, compiled at first use if there is a C compiler; the package installs and runs without one.

The library is kept in the user's cache, under a digest of source, compiler, flags and processor. It is used only if
it reproduces a block of ChaCha8 that is computed here, literally.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from platformdirs import user_cache_path

_log = logging.getLogger(__name__)
_SOURCE = Path(__file__).with_name("gaussian.c")
_FLAGS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
_SECONDS = 60
GROUP = 256
"""Numbers that the kernel draws at once; a tensor starts at the beginning of a group."""

Kernel = Callable[[int, int, bytes, int, float, float], None]
"""`kernel(address of n float32, n, 32 bytes of key, first group, clip_factor, std)`.

It replaces x by `clip_factor·x + N(0, std²)`.
"""


@functools.cache
def kernel() -> Kernel | None:
    """Return the compiled generator, or None if it cannot be built; log the reason once a process."""
    try:
        library = ctypes.CDLL(str(_compiled()))
        if (words := _words(library)) != chacha8_block(bytes(range(32)), 16):
            raise OSError(f"it does not compute ChaCha8: {words[:8].hex()}")
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: the user has no home
        _log.info("noise is drawn by PyTorch's slower generator: no compiled one (%s)", error)
        return None
    function = library.edp_gaussian
    function.restype = None
    function.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_char_p,
        ctypes.c_uint64,
        ctypes.c_float,
        ctypes.c_float,
    ]
    return function


def chacha8_block(key: bytes, counter: int, nonce: int = 0) -> bytes:
    """Return a block of 64 bytes of ChaCha8 (Bernstein 2008), computed literally to check the kernel."""
    start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key)]
    start += [counter & 0xFFFFFFFF, counter >> 32, nonce, 0]
    x = list(start)

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for i, j, k, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[i] = (x[i] + x[j]) & 0xFFFFFFFF
            mixed = x[k] ^ x[i]
            x[k] = (mixed << turn | mixed >> (32 - turn)) & 0xFFFFFFFF

    for _ in range(4):
        for column in range(4):
            quarter(column, column + 4, column + 8, column + 12)
        for column in range(4):
            quarter(column, (column + 1) % 4 + 4, (column + 2) % 4 + 8, (column + 3) % 4 + 12)
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(x, start, strict=True)))


def _words(library: ctypes.CDLL) -> bytes:
    """Return the first block of group 1 and nonce 0, as the library computes it."""
    out = (ctypes.c_uint32 * GROUP)()
    library.edp_words.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint32]
    library.edp_words(out, bytes(range(32)), 1, 0)
    return bytes(out)[:64]


def _compiled() -> Path:
    """Return the library's file; compile it first if it is not in the cache."""
    name = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), "")
    compiler = shutil.which(name)
    if compiler is None:
        raise OSError("no C compiler")
    made_of = [_SOURCE.read_text(), compiler, " ".join(_FLAGS), platform.machine(), _processor()]
    digest = hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:16]
    folder = user_cache_path("edp-sweeps") / "compiled"
    library = folder / f"gaussian-{digest}.so"
    if not library.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            made = Path(scratch) / "gaussian.so"
            command = [compiler, *_FLAGS, str(_SOURCE), "-o", str(made), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
            if done.returncode:
                raise OSError((done.stderr.strip().splitlines() or ["the compiler failed"])[0])
            made.rename(library)  # atomic: several workers may compile it at once
    return library


def _processor() -> str:
    """Return the processor's features, which `-march=native` depends on: machines may share a cache."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())
