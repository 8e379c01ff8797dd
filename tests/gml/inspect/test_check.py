"""GML_CHECK: good programs pass, whatever goes wrong in a region is found, named and can be reproduced alone."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import gml
from gml.backends.cpu import CpuBackend
from gml.compiler.interpret import InterpretingBackend
from gml.compiler.lower_region import signature
from gml.compiler.plan import Invocation
from gml.compiler.program import PlannedProgram
from gml.inspect import check
from gml.inspect.check import Checker, CheckError
from gml.inspect.reproduce import write_reproducer
from gml.models import shapes
from gml.models.loader import Model
from gml.models.session import Session
from gml.ops.base import OpDef, SampleBuilder, registry

BACKENDS: dict[str, Callable[[], gml.Backend]] = {
    "cpu": lambda: CpuBackend(2),
    "exact": lambda: CpuBackend(2, exact=True),
    "file": lambda: CpuBackend(1, layout="file"),
    "unfused": lambda: CpuBackend(2, disabled=["fuse", "hoist"]),
    "interpreter": InterpretingBackend,
}

#: an op whose kernel triples where its reference doubles
BROKEN = """
from gml.ops.base import Inferred, OpDef
from gml.ops.lower import Elementwise

double = OpDef(
    "double",
    lambda attrs, x: Inferred(x.type, x.ne),
    lambda attrs, x: x * 2,
    [],
    elementwise=True,
    lower=Elementwise(lambda b, attrs, x: x * 3.0),
)
"""


@pytest.fixture(autouse=True)
def checking(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GML_CHECK", "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The module of the broken op, in a folder of its own."""
    folder = tmp_path / "user"
    folder.mkdir()
    (folder / "broken_op.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "broken_op", raising=False)
    import broken_op  # type: ignore[import-not-found]

    return broken_op


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A llama of two layers."""
    path = tmp_path_factory.mktemp("models") / "small.gguf"
    with pytest.MonkeyPatch.context() as patch:
        small = shapes.ModelShape(320, 128, 64, 2, 96, 4, 2)
        patch.setitem(shapes.SHAPES, "small", small)
        shapes.write_shape(path, "small", "Q8_0")
    return Model.load(path)


@pytest.mark.parametrize("name", BACKENDS)
def test_a_llama_passes_and_gives_the_same_logits(name: str, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for checked in ("1", "0"):
        monkeypatch.setenv("GML_CHECK", checked)
        session = Session(model, backend=BACKENDS[name](), n_ctx=16)
        found.append([session.evaluate([5, 300, 17, 9, 2], logits="all"), session.evaluate([7])])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not list(Path.cwd().glob("gml-check-*"))


@pytest.mark.parametrize("name", ["cpu", "interpreter"])
def test_a_broken_lowering_is_found_and_its_reproducer_shows_it(name: str, broken, tmp_path: Path) -> None:
    context = gml.Context()
    x = context.input("x", gml.F32, [64, gml.Dim("n_tokens", max=8)])
    w = context.constant(np.ones(64, np.float32))
    y = gml.silu(broken.double(gml.rms_norm(gml.transpose(gml.transpose(x)), eps=1e-5) * w))
    program = BACKENDS[name]().compile(gml.Graph(y.named("y"), name="net"))
    with pytest.raises(CheckError) as error:
        program(x=np.random.default_rng(1).normal(size=(3, 64)))
    message = str(error.value)
    assert "\n" not in message
    assert re.match(r"region r0 \(phase 0 of the step\), kernel k0_rms_norm_mul_double\S* of graph net: ", message)
    assert "op double, whose kernel differs from its reference: tensor 'y' F32[64, n_tokens] differs, NMSE " in message
    assert "largest difference at [" in message
    script = tmp_path / "gml-check-000" / "reproduce.py"
    assert f"`python {script}` shows it" in message
    assert sorted(p.name for p in script.parent.iterdir()) == ["kernel.ir", "region.npz", "reproduce.py"]

    # it runs alone, without the graph, from anywhere
    def reproduce() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(script)]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path.parent, check=False)

    done = reproduce()
    assert (done.returncode, done.stderr) == (1, "")
    assert "op double, whose kernel differs from its reference" in done.stdout
    path = tmp_path / "user" / "broken_op.py"
    path.write_text(BROKEN.replace("3.0", "2.0"))
    done = reproduce()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("kernel k0_rms_norm_mul_double") and "agrees" in done.stdout


def test_every_region_of_a_model_can_be_reproduced(model: Model, tmp_path: Path) -> None:
    """Regions built anew from a script have the kernel of the region that they are made from."""
    seen: set[str] = set()

    class Reproducing(Checker):
        def run(self, invocation: Invocation, values: dict, where: str) -> None:
            before = self._copy(invocation.region, values)
            super().run(invocation, values, where)
            if invocation.kernel in seen:
                return
            seen.add(invocation.kernel)
            nothing = np.zeros(1, np.uint8)
            path = write_reproducer(
                self.program, invocation, before.storage, values, nothing, nothing, "for a test", tmp_path
            )
            with pytest.raises(SystemExit) as done, pytest.MonkeyPatch.context() as patch:
                patch.setattr("gml.inspect.replay.CompiledGraph", remember)
                runpy.run_path(str(path))
            assert done.value.code == 0
            expected = self.program.compiled.signatures[invocation.kernel]
            assert rebuilt[-1] == signature(invocation.region, self.program.compiled.state.options) == expected

    rebuilt: list[str] = []

    def remember(state, regions, signatures):
        rebuilt.extend(signatures.values())
        from gml.compiler.plan import CompiledGraph

        return CompiledGraph(state, regions, signatures)

    session = Session(model, backend=CpuBackend(2), n_ctx=16)
    program = session.program
    assert isinstance(program, PlannedProgram)
    program._execute = Reproducing(program, tmp_path).step
    session.evaluate([5, 300, 17])
    assert len(seen) == len(program.compiled.regions) > 10


@pytest.mark.parametrize("op", [op for op in registry.values() if op.samples], ids=lambda op: op.name)
def test_every_op_passes(op: OpDef) -> None:
    """Tolerances are wide enough for what kernels do: no false alarm."""
    builder = SampleBuilder(3)
    program = CpuBackend(2, disabled=["fold"]).compile(gml.Graph(op.samples[0].make(builder)))
    program.run(**{dim.name: value for dim, value in builder.values.items()})
    assert np.isfinite(program.read(program.graph.outputs[0]).astype(np.float64)).any()


# -- what goes wrong behind the kernel IR ------------------------------------------------------------------------------


def spoilt(program: PlannedProgram, spoil: Callable[[Invocation], None]) -> PlannedProgram:
    """The program with something done to memory behind every region that runs."""
    run_alone = program.run_alone

    def run(invocation: Invocation, values: dict) -> None:
        run_alone(invocation, values)
        spoil(invocation)

    program.run_alone = run
    return program


def quantised_program() -> PlannedProgram:
    context = gml.Context()
    x = context.input("x", gml.F32, [64, 3])
    w = context.constant(np.linspace(-1, 1, 64 * 32).reshape(32, 64), type=gml.Q8_0, name="w")
    cache = context.state("cache", gml.F16, [32, 16])
    cells = context.constant(np.array([4, 9, 2], np.int32))
    y = gml.mul_mat(w, x).named("y")
    return CpuBackend(2).compile(gml.Graph([gml.set_rows(cache, y, cells), gml.argmax(y).named("best")]))


@pytest.mark.parametrize(
    ("kernel", "byte", "message"),
    [
        ("pack_panels", 100, "op pack_panels; the kernel is right when interpreted: tensor"),
        ("quantize_q8", 3, "op quantize_q8; the kernel is right when interpreted: tensor"),
        ("mul_mat_q8", 7, "op mul_mat_q8; the kernel is right when interpreted: tensor 'y' F32"),
        ("set_rows", 32 * 2 * 9 + 1, "op set_rows; the kernel is right when interpreted: tensor 'set_rows' F16"),
        # a row that was not to be written
        ("set_rows", 32 * 2 * 12 + 1, "largest difference at .0, 12, 0, 0.: found -?[0-9.e-]+, expected 0"),
        ("argmax", 4, "tensor 'best' I32.3. differs, NMSE 0.333 where 0 is allowed, .*found .*, expected"),
    ],
)
def test_a_wrong_byte_is_found(kernel: str, byte: int, message: str) -> None:
    program = quantised_program()

    def spoil(invocation: Invocation) -> None:
        if invocation.kernel.endswith(kernel):
            program.storage(invocation.region.out.root)[byte] ^= 0x48

    with pytest.raises(CheckError, match=message):
        spoilt(program, spoil)(x=np.random.default_rng(2).normal(size=(3, 64)))


def test_infinity_and_nan_must_be_where_they_belong() -> None:
    context = gml.Context()
    x = context.input("x", gml.F32, [8])
    program = CpuBackend(1).compile(gml.Graph(gml.log(x)))
    values = np.array([0, 1, -1, np.nan, np.inf, 2, 3, 4], np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(program(x=values), np.log(values))

    def spoil(invocation: Invocation) -> None:
        program.storage(invocation.region.out.root).view(np.float32)[1] = np.nan

    with pytest.raises(CheckError, match=r"NMSE inf .*at \[1, 0, 0, 0\]: found nan, expected 0"):
        spoilt(program, spoil)(x=values)


def test_differences_are_measured_against_the_values_and_what_they_were_made_of() -> None:
    ones = np.ones(100)

    def measure(found: np.ndarray, expected: np.ndarray, tolerance: float = 1e-9, scale: float = 1.0) -> bool:
        d = check._difference(found, expected, tolerance, scale, False)
        return d.error <= d.allowed

    assert measure(ones, ones) and measure(ones * (1 + 1e-6), ones) and not measure(ones * 1.001, ones)
    assert not measure(ones * 0, ones) and not measure(ones, ones * 0)
    # a sum that cancels out is as wrong as its terms
    assert measure(ones * 1e-7, ones * 0) and not measure(ones * 1e-7, ones * 0, scale=1e-3)
    spike = ones.copy()
    spike[50] = 1.01
    assert not measure(spike, ones)
    assert measure(np.zeros(0), np.zeros(0))
    assert not measure(np.arange(5), np.arange(5) // 4 * 4)


def test_functions_of_the_user_run_between_checked_regions() -> None:
    context = gml.Context()
    x = context.input("x", gml.F32, [8, 2])
    y = gml.relu(gml.map_custom(lambda a: a - 1, gml.sqr(x)))
    program = CpuBackend(2).compile(gml.Graph(y))
    np.testing.assert_array_equal(program(x=np.full((2, 8), 3.0)), np.full((2, 8), 8.0))


def test_reproducers_go_to_the_dump_of_their_compile(broken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GML_DUMP", str(tmp_path / "dumps"))
    x = gml.Context().input("x", gml.F32, [8])
    program = CpuBackend(1).compile(gml.Graph(broken.double(x), name="net"))
    for n in range(2):
        with pytest.raises(CheckError, match=f"gml-check-00{n}"):
            program(x=np.ones(8))
    assert (tmp_path / "dumps" / "000-net" / "gml-check-001" / "reproduce.py").is_file()
    assert (tmp_path / "dumps" / "000-net" / "regions.txt").is_file()
