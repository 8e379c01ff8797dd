"""Stages as text: every one is there, says what it should, and is the same every time."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import gml
from gml.backends.cpu import CpuBackend, CpuProgram
from gml.compiler.interpret import InterpretingBackend
from gml.errors import Error, UnsupportedError, UsageError
from gml.inspect import STAGES
from gml.inspect.files import new_folder, write


def small_graph(name: str = "small") -> gml.Graph:
    """A quantised product with its norm, and a state that is written."""
    context = gml.Context()
    x = context.input("x", gml.F32, [64, gml.Dim("n_tokens", max=8)])
    cells = context.input("cells", gml.I32, [x.ne[1]])
    w = context.constant(np.linspace(-1, 1, 64 * 32).reshape(32, 64), type=gml.Q8_0, name="w")
    cache = context.state("cache", gml.F16, [32, 16])
    y = gml.mul_mat(w, gml.rms_norm(x, eps=1e-5)).named("y")
    return gml.Graph([gml.relu(y + 1.0), gml.set_rows(cache, y, cells)], name=name)


@pytest.fixture(scope="module")
def program() -> CpuProgram:
    return CpuBackend(2).compile(small_graph())


def test_every_stage_shows_what_it_is_for(program: CpuProgram) -> None:
    found = {stage: program.dump(stage) for stage in STAGES}
    assert found["graph"] == program.graph.text()
    assert re.search(r"^  %\d+:y = mul_mat_q8\(%\d+, %\d+, type=Q8_0, k=64, n=32\) F32", found["ops"], re.M)
    assert "r0 setup k0_pack_panels reads %2:w\n  > " in found["fused"]
    region = r"rms_norm_quantize_q8 reads %\d+:x\n    %\d+ = rms_norm\(.*\n  > %\d+ = quantize_q8"
    assert re.search(region, found["fused"])
    assert re.search(r"^step 0\n  r1 k\d_rms_norm_quantize_q8: n_tokens chunks -> ", found["phases"], re.M)
    assert re.search(r"^activation buffer: \d+ bytes, \d+ alive at once$", found["memory"], re.M)
    assert found["kernel"].count("kernel k") == found["llvm"].count("define void @k") == len(program.compiled.kernels)
    for name in program.compiled.kernels:
        assert f"{name}:" in found["asm"]
    for text in found.values():
        assert text.endswith("\n") and " at 0x" not in text


def test_the_same_graph_gives_the_same_text() -> None:
    first, second = (gml.compile(small_graph(), CpuBackend(threads)) for threads in (1, 2))
    for stage in STAGES:
        assert first.dump(stage) == second.dump(stage)


def test_json_of_stages(program: CpuProgram) -> None:
    fused = json.loads(program.dump("fused", kind="json"))
    assert fused[0]["kernel"] == "k0_pack_panels" and fused[0]["part"] == "setup"
    assert [n["op"] for n in fused[1]["nodes"]] == ["rms_norm", "quantize_q8"]
    assert fused[1]["nodes"][0]["ne"] == [64, "n_tokens", 1, 1]
    phases = json.loads(program.dump("phases", kind="json"))
    assert [p["part"] for p in phases].count("step") == len(program.compiled.step)
    memory = json.loads(program.dump("memory", kind="json"))
    assert memory["peak_bytes"] == program.compiled.plan.peak_bytes
    assert max(r["offset"] + r["bytes"] for r in memory["results"]) <= memory["peak_bytes"]
    assert json.loads(program.dump("graph", kind="json"))["name"] == "small"
    assert program.dump("graph", kind="dot").startswith("digraph")


def test_only_shows_one_kernel_or_tensor(program: CpuProgram) -> None:
    kernel = next(name for name in program.compiled.kernels if "rms_norm" in name)
    number = kernel.split("_")[0]
    for only in (kernel, number, "*rms_norm*"):
        shown = program.dump("kernel", only)
        assert shown.startswith(f"kernel {kernel}(") and shown.count("kernel ") == 1
        assert program.dump("llvm", only).count("define void @k") == 1
        assert program.dump("fused", only).count(" reads ") == 1
    assert program.dump("fused", "cache").count(" reads ") == 1
    assert program.dump("graph", "w") == "%2:w = constant Q8_0[64, 32]\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("assembly",), "stage: expected one of graph, ops, .*found 'assembly'"),
        (("kernel", "k99"), "no kernel is called 'k99'; there are"),
        (("graph", "nothing"), "no tensor of the graph is called 'nothing'"),
        (("fused", "k99"), "no kernel or tensor of stage fused is called 'k99'"),
        (("memory", "w", "json"), "no tensor of stage memory is called 'w'"),
        (("ops", "nothing"), "no tensor of stage ops is called 'nothing'"),
        (("kernel", None, "json"), "format of stage kernel: expected one of text; found 'json'"),
        (("graph", "w", "json"), "shown whole"),
    ],
)
def test_what_does_not_exist_is_said(program: CpuProgram, arguments: tuple, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        program.dump(*arguments)


def test_other_backends_have_the_stages_that_they_have() -> None:
    reference = gml.compile(small_graph(), "reference")
    assert reference.dump() == small_graph().text()
    with pytest.raises(UnsupportedError, match="no stage 'fused': its backend runs the graph as it is"):
        reference.dump("fused")
    interpreted = gml.compile(small_graph(), InterpretingBackend())
    assert "kernel k0_pack_panels" in interpreted.dump("kernel")
    with pytest.raises(UnsupportedError, match="no stage 'llvm': its backend interprets"):
        interpreted.dump("llvm")


# -- GML_DUMP, GML_DEBUG -----------------------------------------------------------------------------------------------


def test_dumps_of_a_process_are_numbered_and_can_be_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GML_DUMP", str(tmp_path / "new" / "dumps"))
    for name in ("one", "two words/..", "one"):
        gml.compile(small_graph(name), CpuBackend(2))
    folders = sorted((tmp_path / "new" / "dumps").iterdir())
    assert [f.name for f in folders] == ["000-one", "001-two-words", "002-one"]
    files = [{p.relative_to(f).as_posix(): p.read_text() for p in f.rglob("*") if p.is_file()} for f in folders]
    passes = ["prune", "canonicalise", "expand", "fold", "refine", "merge", "prune"]
    expected = {"00-graph.txt", "regions.txt", "phases.txt", "memory.txt"}
    expected |= {f"{i:02d}-{name}.txt" for i, name in enumerate(passes, 1)}
    kernels = CpuBackend(2).compile(small_graph()).compiled.kernels
    expected |= {f"kernels/{name}{suffix}" for name in kernels for suffix in (".ir", ".ll", ".s")}
    assert files[0].keys() == expected
    assert files[0] == files[2]
    assert "mul_mat(" in files[0]["03-expand.txt"] and "mul_mat_q8(" in files[0]["05-refine.txt"]


def test_every_level_prints_more(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    marks = {
        1: "gml: compiled small in ",
        2: "-- graph of small --",
        3: "-- memory of small --",
        4: "-- kernel k0_pack_panels of small --",
        5: "-- after merge of small --",
        6: "-- llvm k0_pack_panels of small --",
        7: "-- asm k0_pack_panels of small --",
    }
    for level in range(8):
        monkeypatch.setenv("GML_DEBUG", str(level))
        program = CpuBackend(2).compile(small_graph())
        program(x=np.ones((3, 64)), cells=np.arange(3))
        printed = capsys.readouterr()
        assert printed.out == ""
        for least, mark in marks.items():
            assert (mark in printed.err) == (level >= least), (level, mark)
        assert bool(re.search(r"^gml: step 0 of small n_tokens=3: [\d.]+ ms$", printed.err, re.M)) == (level >= 1)


def test_nothing_is_imported_when_nothing_is_looked_at() -> None:
    code = (
        "import sys, numpy as np, gml\n"
        "x = gml.Context().input('x', gml.F32, [8])\n"
        "assert gml.compile(gml.relu(x), 'cpu')(x=np.ones(8)).sum() == 8\n"
        "assert not [m for m in sys.modules if m.startswith('gml.inspect')]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_folders_are_nobody_elses(tmp_path: Path) -> None:
    found: list[Path] = []
    start = threading.Barrier(4)

    def make() -> None:
        start.wait()
        for _ in range(20):
            found.append(new_folder(tmp_path, "", "same"))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == len({p.name.split("-")[0] for p in found}) == 80
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_what_the_system_refuses_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Error, match=r"cannot make a folder for dumps in .*file"):
        new_folder(tmp_path / "file" / "below", "")
    with pytest.raises(Error, match=r"cannot write .*below.txt"):
        write(tmp_path / "file" / "below.txt", "text")
