"""A micro-kernel by itself: Q4_0 in panels of 8 rows times int8 activations. Run it to see what the compiler reaches.

    python tests/backends/cpu/bench_panel.py [TARGET]

Prints GMAC/s on one thread for some numbers of tokens at once. `test_panel.py` checks the numbers.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from gml.backends.cpu.jit import Module, compile_kernels
from gml.backends.cpu.target import detect
from gml.kernel_ir import F16, F32, I8, I32, I64, U8, U16, Builder, Kernel, Node

ROWS, GROUP, BLOCK_BYTES = 8, 32, 144


def panel_kernel(n_tokens: int) -> Kernel:
    """Y[token, row] for panels begin to end, so many tokens at once.

    Buffers: W [panels, blocks, 144] (8 f16 scales, 128 bytes of 4-bit codes), X [tokens, blocks * 32] i8, D [tokens,
    blocks] f32 scales, S [tokens, blocks] i32 8 * sums, Y [tokens, rows] f32. Sizes: blocks, tokens, rows.
    """
    b = Builder(f"panel{n_tokens}")
    w, x, d, s, y, sizes = (b.param(name) for name in ("w", "x", "d", "s", "y", "sizes"))
    begin, end = b.param("begin", I64), b.param("end", I64)
    n_blocks, tokens, rows = (b.load(sizes, 8 * i, I64, constant=True) for i in range(3))

    def some_tokens(panel: Node, first: Node) -> None:
        base = b.offset(w, panel * n_blocks * BLOCK_BYTES)
        at = [(first + j) * n_blocks for j in range(n_tokens)]
        xs = [b.offset(x, a * GROUP) for a in at]
        ds, ss = ([b.offset(p, a * 4) for a in at] for p in (d, s))

        def block(k: Node, *sums: Node) -> list[Node]:
            here = b.offset(base, k * BLOCK_BYTES)
            scale = b.cast(b.bitcast(b.load(here, 0, U16.vec(ROWS)), F16.vec(ROWS)), F32)
            raw = [b.load(here, 16 + 32 * q, U8.vec(32)) for q in range(4)]
            high = [b.bitcast(b.shr(b.bitcast(v, U16.vec(16)), 4), U8.vec(32)) for v in raw]
            codes = [v & 15 for v in (*raw, *high)]
            made = []
            for j, total in enumerate(sums):
                words = [b.load(xs[j], k * GROUP + 4 * q, I32) for q in range(8)]
                dot = b.group_dot(codes, [b.bitcast(b.splat(v, ROWS), I8.vec(32)) for v in words], 15)
                dot = dot - b.splat(b.load(ss[j], k * 4, I32), ROWS)
                made.append(b.fma(b.cast(dot, F32), scale * b.splat(b.load(ds[j], k * 4, F32), ROWS), total))
            return made

        sums = b.loop(0, n_blocks, block, [b.const(0.0, F32.vec(ROWS))] * n_tokens)
        for j, total in enumerate(sums):
            b.store(y, ((first + j) * rows + panel * ROWS) * 4, total)

    b.loop(begin, end, lambda panel: b.loop(0, tokens, lambda t: some_tokens(panel, t), step=n_tokens) and None)
    return b.finish()


def panel_data(n: int, k: int, m: int, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """Buffers for n rows, k columns and m tokens, and what Y must be, in float64."""
    random = np.random.default_rng(seed)
    blocks = k // GROUP
    codes = random.integers(0, 16, (n, blocks, GROUP), dtype=np.uint8)
    scales = random.random((n, blocks)).astype(np.float16)
    packed = (codes[..., :16] | codes[..., 16:] << 4).reshape(n // 8, 8, blocks, 4, 4).transpose(0, 2, 3, 1, 4)
    heads = scales.reshape(n // 8, 8, blocks).transpose(0, 2, 1).copy().view(np.uint8)
    w = np.concatenate([heads, packed.reshape(n // 8, blocks, 128)], axis=2)
    x = random.integers(-127, 128, (m, k), dtype=np.int8)
    d = random.random((m, blocks)).astype(np.float32)
    s = 8 * x.reshape(m, blocks, GROUP).sum(axis=2, dtype=np.int32)
    scaled = (codes.astype(np.float64) - 8) * scales[..., None].astype(np.float64)
    expected = (x.reshape(m, blocks, GROUP) * d[..., None].astype(np.float64)).reshape(m, k) @ scaled.reshape(n, k).T
    return [np.ascontiguousarray(w), x, d, s, np.zeros((m, n), np.float32)], expected


def speed(module: Module, n_tokens: int, buffers: list[np.ndarray], n: int, k: int, m: int) -> float:
    """GMAC/s, the best of some runs."""
    best = 1e9
    for _ in range(5):
        start = time.perf_counter()
        module.run(f"panel{n_tokens}", buffers, [k // GROUP, m, n], 0, n // ROWS)
        best = min(best, time.perf_counter() - start)
    return n * k * m / best / 1e9


def main() -> None:
    target = detect(sys.argv[1] if len(sys.argv) > 1 else None)
    counts = (1, 2, 3, 4, 5, 6)
    module = compile_kernels([panel_kernel(c) for c in counts], target)
    n, k, m = 5632, 2048, 60
    buffers, _ = panel_data(n, k, m)
    for c in counts:
        print(f"{target.name}: {c} tokens at once: {speed(module, c, buffers, n, k, m):.1f} GMAC/s")


if __name__ == "__main__":
    main()
