"""AArch64 code, run by qemu: the samples of the kernel IR and the micro-kernel, the same bits as everywhere.

All kernels of a target are linked into one program, which reads a stream of runs and writes the buffers back.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from bench_panel import panel_data, panel_kernel
from kernel_ir.samples import SAMPLES, assert_same
from test_emit import dot_data, dot_kernel

from gml.backends.cpu.jit import cross_compile
from gml.backends.cpu.target import TARGETS, Target
from gml.kernel_ir import I8, U8, Kernel
from gml.kernel_ir.interp import run as interpret

COMPILER, QEMU = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
pytestmark = pytest.mark.skipif(
    not (COMPILER and QEMU),
    reason="needs qemu-aarch64 and aarch64-linux-gnu-gcc (Debian: qemu-user, gcc-aarch64-linux-gnu)",
)
NEON = [t for t in TARGETS if t.arch == "aarch64"]

HARNESS = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
typedef void kernel(void **, int64_t *, void *, int64_t, int64_t);
#define K(i) kernel s##i;
KERNELS
#undef K
#define K(i) s##i,
static kernel *table[] = { KERNELS };

static void get(void *to, size_t n) { if (n && fread(to, 1, n, stdin) != n) exit(3); }

int main(void) {
    int64_t head[4], sizes[16], bytes[64];  /* kernel, end, sizes, buffers */
    void *args[64], *scratch = aligned_alloc(64, 1 << 20);
    while (fread(head, 8, 4, stdin) == 4) {
        get(sizes, 8 * head[2]);
        get(bytes, 8 * head[3]);
        for (int i = 0; i < head[3]; i++) get(args[i] = malloc(bytes[i] + 1), bytes[i]);
        table[head[0]](args, sizes, scratch, 0, head[1]);
        for (int i = 0; i < head[3]; i++) { fwrite(args[i], 1, bytes[i], stdout); free(args[i]); }
    }
    return 0;
}
"""

Run = tuple[int, list[np.ndarray], list[int]]


def execute(kernels: list[Kernel], runs: list[Run], target: Target, folder: Path) -> list[list[np.ndarray]]:
    """The buffers of each run (end, buffers, sizes) of the kernel of the same number, afterwards."""
    for i, kernel in enumerate(kernels):
        kernel.name = f"s{i}"
    code, scratch = cross_compile(kernels, target)
    assert max(scratch.values()) <= 1 << 20
    (folder / "kernels.o").write_bytes(code)
    names = " ".join(f"K({i})" for i in range(len(kernels)))
    (folder / "main.c").write_text(HARNESS.replace("KERNELS", names))
    program = folder / "program"
    command = [COMPILER, "-O1", "-static", "-o", program, folder / "main.c", folder / "kernels.o", "-lm"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    stream = b""
    for i, (end, buffers, sizes) in enumerate(runs):
        numbers = [i, end, len(sizes), len(buffers), *sizes, *(b.nbytes for b in buffers)]
        stream += struct.pack(f"<{len(numbers)}q", *numbers) + b"".join(b.tobytes() for b in buffers)
    done = subprocess.run([QEMU, "-cpu", "max", program], input=stream, check=True, capture_output=True, timeout=300)
    results, at = [], 0
    for _, buffers, _ in runs:
        results.append([])
        for buffer in buffers:
            results[-1].append(np.frombuffer(done.stdout, np.uint8, buffer.nbytes, at).copy())
            at += buffer.nbytes
    assert at == len(done.stdout)
    return results


@pytest.mark.parametrize("target", NEON, ids=lambda t: t.name)
def test_samples(target: Target, tmp_path: Path) -> None:
    native = [s for s in SAMPLES if s.native]
    runs: list[Run] = [(s.end, s.fresh(), list(s.sizes)) for s in native]
    for sample, buffers in zip(native, execute([s.build() for s in native], runs, target, tmp_path), strict=True):
        for index, expected in sample.expected.items():
            try:
                assert_same(buffers[index], expected, sample.ulp)
            except AssertionError as error:
                raise AssertionError(f"{sample.name}: {error}") from None


@pytest.mark.parametrize("target", NEON, ids=lambda t: t.name)
def test_integer_dots_are_exact_at_their_bounds(target: Target, tmp_path: Path) -> None:
    kernels = []
    for lanes, n_pairs in ((8, 3), (12, 1), (16, 9), (24, 2), (64, 9)):
        kernels += [dot_kernel(U8, lanes, n_pairs, w_max) for w_max in (1, 15, 127, 130, 255)]
        kernels += [dot_kernel(I8, lanes, n_pairs, w_max) for w_max in (8, 127, 128)]
    runs: list[Run] = []
    for kernel in kernels:
        n_bytes = 64 * kernel.meta["types"][1].n_bytes
        runs.append((64, [*dot_data(kernel), np.zeros(n_bytes, np.uint8)], []))
    for kernel, run, buffers in zip(kernels, runs, execute(kernels, runs, target, tmp_path), strict=True):
        expected = [b.view(np.uint8).copy() for b in run[1]]
        interpret(kernel, expected, [], 0, 64)
        np.testing.assert_array_equal(buffers[-1], expected[-1])


@pytest.mark.parametrize("target", NEON, ids=lambda t: t.name)
def test_micro_kernel(target: Target, tmp_path: Path) -> None:
    n, k, m = 32, 128, 6
    buffers, expected = panel_data(n, k, m)
    kernels = [panel_kernel(c) for c in (1, 3)]
    runs: list[Run] = [(n // 8, buffers, [k // 32, m, n])] * 2
    one, three = (r[4].view(np.float32).reshape(m, n) for r in execute(kernels, runs, target, tmp_path))
    assert np.abs(one - expected).max() <= 1e-6 * np.abs(expected).max()
    np.testing.assert_array_equal(one, three)
    # the very bits of the interpreter, and so of every other target
    meant = [np.ascontiguousarray(b).reshape(-1).view(np.uint8).copy() for b in buffers]
    interpret(panel_kernel(1), meant, [k // 32, m, n], 0, n // 8)
    np.testing.assert_array_equal(one.view(np.uint8).reshape(-1), meant[4])
