"""The CPU backend: kernel IR to vector code through LLVM, run by worker threads.

Reading order: `target.py`, `legalise.py`, `text.py`, `dot.py`, `order.py`, `emit.py`, `jit.py`, `cache.py`,
`driver.py`, `cores.py`, `runtime.py`, `hoisted.py`, `executable.py`.
"""

from gml.backends.cpu.executable import CancelledError, CpuBackend, CpuProgram

__all__ = ["CancelledError", "CpuBackend", "CpuProgram"]
