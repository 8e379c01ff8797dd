"""The ISA table: which target is chosen, and what instructions the code for each has, this machine's or not."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from bench_panel import panel_data, panel_kernel

from gml.backends.cpu import jit
from gml.backends.cpu.jit import assembly, compile_kernels, host_features
from gml.backends.cpu.target import TARGETS, by_name, detect, runs_here
from gml.debug import knobs
from gml.errors import UnsupportedError, UsageError
from gml.kernel_ir import F16, F32, F64, I8, I32, I64, U8, Builder, Kernel, Node, Type

NAMES = [t.name for t in TARGETS]
X86 = [t.name for t in TARGETS if t.arch == "x86_64"]
ARM = [t.name for t in TARGETS if t.arch == "aarch64"]
VNNI = [name for name in X86 if "vnni" in name or "bf16" in name]


# -- choice ------------------------------------------------------------------------------------------------------------


def test_the_host_has_a_target_that_can_be_overridden() -> None:
    best = detect()
    assert runs_here(best, host_features())
    if best.arch == "x86_64":
        assert detect("x86-64").name == "x86-64"
        knobs.set(target="x86-64")
        try:
            assert detect().name == "x86-64"
            assert detect(best.name) == best
        finally:
            knobs.set(target=None)


def test_unknown_targets_are_listed() -> None:
    with pytest.raises(UsageError, match=r"unknown target 'sse9'; known: x86-64, avx2, .*neon-dotprod"):
        detect("sse9")


def test_targets_of_other_machines_are_refused() -> None:
    other = next(t for t in reversed(TARGETS) if not runs_here(t, host_features()))
    with pytest.raises(UsageError, match=f"cannot run target '{other.name}'; it can run "):
        detect(other.name)
    with pytest.raises(UsageError, match=f"cannot run target '{other.name}'"):
        compile_kernels([panel_kernel(1)], other)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_every_needed_feature_counts(target: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: {"x86_64": "AMD64", "aarch64": "arm64"}[target.arch])  # type: ignore[attr-defined]
    features = dict.fromkeys(target.needs, True)  # type: ignore[attr-defined]
    assert runs_here(target, features)  # type: ignore[arg-type]
    for name in set(features) - {"sse2", "neon"}:
        assert not runs_here(target, features | {name: False})  # type: ignore[arg-type]


def test_a_machine_without_a_target_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(UsageError, match=r"riscv64.*reference backend"):
        detect()


def test_an_old_llvm_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import llvmlite.binding as llvm

    monkeypatch.setattr(llvm, "llvm_version_info", (15, 0, 7))
    with pytest.raises(UnsupportedError, match="LLVM 15, gml needs 20"):
        jit._binding.__wrapped__()


# -- instructions ------------------------------------------------------------------------------------------------------


def streaming(name: str, source: Type, make: Callable[[Builder, Node], Node]) -> Kernel:
    """y[i] = make(x[i]) by vectors."""
    b = Builder(name)
    x, y = b.param("x"), b.param("y")
    b.param("sizes")

    def body(i: Node) -> None:
        made = make(b, b.load(x, i * source.n_bytes, source))
        b.store(y, i * made.type.n_bytes, made)

    b.loop(b.param("begin", I64), b.param("end", I64), body)
    return b.finish()


def signed_dot(b: Builder, x: Node) -> Node:
    return b.group_dot([b.cast(x & 31, I8) - 16], [x], 16)


KERNELS: dict[str, Callable[[], Kernel]] = {
    "panel": lambda: panel_kernel(3),
    "half": lambda: streaming("half", F16.vec(16), lambda b, x: b.cast(x, F32)),
    "to_half": lambda: streaming("to_half", F32.vec(16), lambda b, x: b.cast(x, F16)),
    "signed": lambda: streaming("signed", I8.vec(32), signed_dot),
    "lookup": lambda: streaming("lookup", U8.vec(32), lambda b, x: b.lookup(tuple(range(-8, 8)), x & 15, I8)),
    "minimum": lambda: streaming("minimum", F32.vec(8), lambda b, x: b.min(x, 1.0)),
    "fma": lambda: streaming("fma", F32.vec(16), lambda b, x: b.fma(x, x, 1.0)),
    "exp": lambda: streaming("exp", F32.vec(16), lambda b, x: b.math("exp", x)),
    "sin": lambda: streaming("sin", F32.vec(16), lambda b, x: b.math("sin", x)),
    "separate": lambda: streaming("separate", F32.vec(8), lambda b, x: x * x + 1.0),
    "round": lambda: streaming("round", F32.vec(8), lambda b, x: b.cast(b.round("floor", x), I32)),
    "wide": lambda: streaming("wide", F64.vec(4), lambda b, x: b.math("sqrt", x) * x),
    "prefetch": lambda: streaming("prefetch", F32, lambda b, x: x),
}


@cache
def text(kernel: str, target: str) -> str:
    return assembly([KERNELS[kernel]()], by_name(target))


def count(pattern: str, kernel: str, target: str) -> int:
    """How often an instruction stands in a kernel's assembly; a pattern for its name."""
    return len(re.findall(rf"^\s+{pattern}\s", text(kernel, target), re.MULTILINE))


#: (kernel, instruction, targets that have it): nobody else of the same architecture does
INSTRUCTIONS = [
    ("panel", "vpmaddubsw", ["avx2", "avx512"]),
    ("panel", r"(?:\{vex\}\s+)?vpdpbusd", VNNI),
    ("panel", "pmaddwd", ["x86-64"]),
    ("panel", "vpbroadcastd", [n for n in X86 if n != "x86-64"]),
    ("panel", "vcvtph2ps", [n for n in X86 if n != "x86-64"]),
    ("panel", r"vfmadd\w+ps", [n for n in X86 if n != "x86-64"]),
    ("panel", "usdot", ["neon-i8mm"]),
    ("panel", "sdot", ["neon-dotprod"]),
    ("panel", "smull2?", ["neon"]),
    ("panel", "fmla", ARM),
    ("panel", "fcvtl2?", ARM),
    ("half", "vcvtph2ps", [n for n in X86 if n != "x86-64"]),
    ("half", "fcvtl2?", ARM),
    ("to_half", "vcvtps2ph", [n for n in X86 if n != "x86-64"]),
    ("to_half", "fcvtn2?", ARM),
    ("signed", "vpsignb", [n for n in X86 if n != "x86-64"]),
    ("lookup", "vpshufb", [n for n in X86 if n != "x86-64"]),
    ("lookup", "tbl", ARM),
    ("minimum", "vminps", [n for n in X86 if n != "x86-64"]),
    ("minimum", "minps", ["x86-64"]),
    ("fma", r"vf(?:n?m(?:add|sub))\w+ps", [n for n in X86 if n != "x86-64"]),
    ("exp", r"vf(?:n?m(?:add|sub))\w+ps", [n for n in X86 if n != "x86-64"]),
    ("round", r"v(?:round|rndscale)ps", [n for n in X86 if n != "x86-64"]),
    ("wide", "vsqrtpd", [n for n in X86 if n != "x86-64"]),
]


@pytest.mark.parametrize(
    ("kernel", "instruction", "targets"), INSTRUCTIONS, ids=lambda v: v if isinstance(v, str) else ""
)
def test_instructions(kernel: str, instruction: str, targets: list[str]) -> None:
    family = X86 if targets[0] in X86 else ARM
    assert {n for n in family if count(instruction, kernel, n)} == set(targets)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_baseline_has_no_wide_registers(kernel: str) -> None:
    assert not re.search(r"%[yz]mm|\bv[a-z]+ps\b", text(kernel, "x86-64"))


@pytest.mark.parametrize("target", X86)
@pytest.mark.parametrize("kernel", KERNELS)
def test_nothing_needs_the_widest_registers(kernel: str, target: str) -> None:
    assert "%zmm" not in text(kernel, target)
    if not target.startswith("avx512"):
        assert not re.search(r"%k[1-7]|%ymm(?:1[6-9]|2\d|3[01])", text(kernel, target))


@pytest.mark.parametrize("target", NAMES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_no_calls_of_libraries(kernel: str, target: str) -> None:
    called = re.findall(r"^\s+(?:callq?|bl)\s+(\S+)", text(kernel, target), re.MULTILINE)
    # a fused multiply-add of f64 without the instruction
    allowed = {"fma@PLT", "fma"} if (kernel, target) == ("sin", "x86-64") else set()
    assert set(called) <= allowed


@pytest.mark.parametrize("target", NAMES)
def test_products_and_sums_are_not_contracted(target: str) -> None:
    assert count(r"vfn?m\w+|fml[as]|fn?m(?:add|sub)", "separate", target) == 0
    assert count(r"v?mulps|fmul", "separate", target) > 0


# -- the micro-kernel --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [t for t in TARGETS if runs_here(t, host_features())], ids=lambda t: t.name)
def test_micro_kernel(target: object) -> None:
    n, k, m = 64, 256, 12
    module = compile_kernels([panel_kernel(c) for c in (1, 3, 4)], target)  # type: ignore[arg-type]
    buffers, expected = panel_data(n, k, m)
    results = []
    for c in (1, 3, 4):
        buffers[4][:] = np.nan
        module.run(f"panel{c}", buffers, [k // 32, m, n], 0, n // 8)
        results.append(buffers[4].copy())
    assert np.abs(results[0] - expected).max() <= 1e-6 * np.abs(expected).max()
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


@pytest.mark.skipif(detect().name != "avx2", reason="counts the instructions of AVX2 code")
def test_micro_kernel_is_as_tight_as_it_can_be() -> None:
    """Per token and block: 8 products, 7 sums, one widening, and every operand straight from memory."""
    loop = max(re.findall(r"^\.LBB\S+:(?:.(?!\n\.LBB))*", text("panel", "avx2"), re.MULTILINE | re.DOTALL), key=len)
    assert len(re.findall("vpmaddubsw", loop)) == 3 * 8
    assert len(re.findall("vpaddw", loop)) == 3 * 7
    assert len(re.findall("vpmaddwd", loop)) == 3
    assert len(re.findall(r"v(?:p|)broadcasts?[ds]\s+\S*\(", loop)) == 3 * 10
    assert "%rsp" not in loop
    assert "vpinsr" not in loop and "vpunpck" not in loop
