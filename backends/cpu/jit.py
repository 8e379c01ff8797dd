"""From LLVM IR text to machine code in memory.

Arrives: kernels and a target; leaves: a `Module` whose functions have addresses. LLVM is imported when it is first
needed, and not at all where the object cache has everything but the loader. Next module: `cache.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from gml.backends.cpu.emit import emit_module
from gml.backends.cpu.legalise import legalise
from gml.backends.cpu.target import Target, detect, runs_here
from gml.errors import Error, UnsupportedError, UsageError
from gml.kernel_ir import Kernel

#: LLVM's effort: 2 is as fast as 3 on kernels that are vector code already, and compiles quicker
SPEED_LEVEL = 2

#: pointers without a type, and the pass manager, as they are today
OLDEST_LLVM = 20

KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


class CompileError(Error):
    """LLVM refused a module: a fault in a lowering or in the emitter, not in the user's model."""


@cache
def _binding() -> Any:
    """llvmlite's binding, initialised for this machine."""
    import llvmlite
    import llvmlite.binding as llvm

    if int(llvm.llvm_version_info[0]) < OLDEST_LLVM:
        raise UnsupportedError(
            f"llvmlite {llvmlite.__version__} has LLVM {llvm.llvm_version_info[0]}, gml needs {OLDEST_LLVM} or later;"
            " run `pip install -U 'llvmlite>=0.45'`, or use the reference backend"
        )
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@cache
def host_features() -> dict[str, bool]:
    """What LLVM finds on this machine, by feature name."""
    return dict(_binding().get_host_cpu_features())


def _machine(target: Target, foreign: bool) -> Any:
    llvm = _binding()
    if foreign:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        chosen = llvm.Target.from_triple(target.triple)
    else:
        chosen = llvm.Target.from_default_triple()
    return chosen.create_target_machine(
        cpu=target.cpu,
        features=target.features,
        opt=SPEED_LEVEL,
        reloc="pic",
        codemodel="jitdefault" if not foreign else "default",
    )


def _optimised(text: str, machine: Any, triple: str = "") -> Any:
    llvm = _binding()
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"LLVM refuses the module: {' '.join(str(error).split())[:500]}") from None
    module.triple = triple or llvm.get_process_triple()
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=SPEED_LEVEL)
    # kernels are vector code already: these two only cost compile time
    options.loop_vectorization = False
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def llvm_text(kernels: Sequence[Kernel], target: Target) -> str:
    """The LLVM IR of kernels, before optimisation."""
    return emit_module([legalise(k, target) for k in kernels], target)[0]


def assembly(kernels: Sequence[Kernel], target: Target) -> str:
    """Assembly text for any target of the table."""
    machine = _machine(target, foreign=True)
    return machine.emit_assembly(_optimised(llvm_text(kernels, target), machine, target.triple))


def cross_compile(kernels: Sequence[Kernel], target: Target) -> tuple[bytes, dict[str, int]]:
    """An object file for Linux on any target of the table, to be linked and run elsewhere, and scratch bytes."""
    text, scratch = emit_module([legalise(k, target) for k in kernels], target)
    machine = _machine(target, foreign=True)
    return machine.emit_object(_optimised(text, machine, target.triple)), scratch


def compile_object(kernels: Sequence[Kernel], target: Target, extra: str = "") -> tuple[bytes, dict[str, int]]:
    """An object file for this machine with all kernels (and `extra` LLVM IR), and their scratch bytes."""
    text, scratch = emit_module([legalise(k, target) for k in kernels], target)
    machine = _machine(target, foreign=False)
    return machine.emit_object(_optimised(text + extra, machine)), scratch


class Module:
    """Machine code in memory. Addresses are valid as long as the module lives."""

    def __init__(self, code: bytes, scratch: Mapping[str, int]) -> None:
        llvm = _binding()
        self.scratch = dict(scratch)
        machine = llvm.Target.from_default_triple().create_target_machine(codemodel="jitdefault", jit=True)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """The address of a function. Raises `CompileError` when the module has none of this name."""
        found = self._engine.get_function_address(name)
        if not found:
            raise CompileError(f"the compiled module has no function {name!r}")
        return found

    def n_scratch_bytes(self, name: str) -> int:
        """Private memory that a kernel needs."""
        return self.scratch[name]

    def run(self, name: str, buffers: Sequence[np.ndarray], sizes: Sequence[int], begin: int, end: int) -> int:
        """Call a kernel once on this thread; gives the failure number that it left, 0 for none."""
        addresses = np.array([b.ctypes.data for b in buffers], dtype=np.int64)
        numbers = np.array([*sizes, 0], dtype=np.int64)
        scratch = np.empty(self.scratch[name] + 64, dtype=np.uint8)
        aligned = scratch.ctypes.data + (-scratch.ctypes.data % 64)
        KERNEL(self.address(name))(addresses.ctypes.data, numbers.ctypes.data, aligned, begin, end)
        return int(numbers[-1])


def compile_kernels(kernels: Sequence[Kernel], target: Target | None = None) -> Module:
    """Kernels compiled for this machine, without the cache. Raises `UsageError` for a target that it cannot run."""
    target = target or detect()
    if not runs_here(target, host_features()):
        raise UsageError(f"this machine cannot run target {target.name!r}; `assembly` shows code for any")
    return Module(*compile_object(kernels, target))
