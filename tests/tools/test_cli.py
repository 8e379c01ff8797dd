"""The command line as a whole: help, errors, exit statuses, interrupts, closed pipes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from gml.tools.cli import COMMANDS


def test_help_names_every_command(gml):
    done = gml("--help")
    assert done.status == 0
    assert all(f"  {name} " in done.out for name in COMMANDS)
    assert gml() == done


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(gml, name):
    done = gml(name, "--help")
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(f"Usage: gml {name} ")


def test_version(gml):
    from importlib.metadata import version

    assert gml("--version").out == f"gml {version('gml')}\n"


def test_help_imports_nothing_heavy():
    code = "import sys; from gml.tools.cli import main; main(['--help']); print(sorted(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = out.splitlines()[-1]
    assert "'click'" in loaded
    assert not [name for name in ("numpy", "rich", "jinja2", "llvmlite", "regex") if f"'{name}'" in loaded]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["rnu"], "no command 'rnu'; did you mean run?"),
        (["xyzzy"], "no command 'xyzzy'; commands: pull, run, "),
        (["run"], "Missing argument 'MODEL'"),
        (["run", "MODEL", "hi", "--top-p", "1.5"], "top_p must be a number from 0 to 1, found 1.5"),
        (["run", "MODEL", "hi", "--top-k", "many"], "'many' is not a valid integer"),
        (["run", "MODEL", "hi", "--backend", "gpu"], "no backend 'gpu'; installed: "),
        (["run", "MODEL", "hi", "--threads", "0"], "--threads must be from 1 to 1024, found 0"),
        (["run", "MODEL", "hi", "--logit-bias", "x"], "expected ID=BIAS"),
        (["run", "MODEL", "hi", "--ctx", "0"], "n_ctx must be from 1"),
        (["run", "MODEL", "hi", "--batch", "0"], "n_batch must be at least 1"),
        (["run", "MODEL", "hi", "--kv-type", "Q4_0"], "kv_type must be one of F32, F16"),
        (["run", "MODEL", "hi", "--seed", "-1"], "seed must be a whole number from 0"),
        (["run", "MODEL", "hi", "--stop", ""], "stop strings must be texts that are not empty"),
        (["run", "MODEL", "hi", "--nosuch"], "No such option"),
        (["tokenize", "MODEL", "hi", "--file", "x"], "not both"),
        (["dump", "MODEL", "--format", "png"], "'png' is not one of"),
        (["run", "no/such/model.gguf", "hi"], "no such file"),
    ],
)
def test_bad_use_is_one_line_and_status_2(gml, tiny, args, message):
    done = gml(*(tiny if arg == "MODEL" else arg for arg in args))
    assert done.status == 2
    assert message in done.error


def test_failures_are_one_line_and_status_1(gml, tiny, tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"this is no model file")
    done = gml("run", str(bad), "hi")
    assert done.status == 1
    assert "GGUF" in done.error
    done = gml("run", tiny, "x" * 300)
    assert done.status == 1
    assert "the prompt has 301 tokens, the context holds 256" in done.error
    done = gml("tokenize", tiny, "--file", str(tmp_path / "missing.txt"))
    assert done.status == 1
    assert "missing.txt" in done.error
    done = gml("chat", tiny, "--template", str(tmp_path / "missing.jinja"))
    assert done.status == 1
    assert "missing.jinja" in done.error


def test_a_traceback_only_with_gml_debug(gml, tiny, monkeypatch):
    assert "Traceback" not in gml("run", tiny, "x" * 300).err
    monkeypatch.setenv("GML_DEBUG", "1")
    done = gml("run", tiny, "x" * 300)
    assert "Traceback" in done.err
    assert done.err.splitlines()[-1].startswith("gml: error: the prompt has 301 tokens")
    assert done.status == 1


def test_errors_of_our_own_making_say_so(gml, tiny, monkeypatch):
    monkeypatch.setattr("gml.models.loader.Model.load", lambda *a, **k: 1 / 0)
    done = gml("run", tiny, "hi")
    assert done.status == 1
    assert "internal error, ZeroDivisionError" in done.error


def test_a_wrong_file_name_suggests_its_neighbour(gml, tiny):
    done = gml("inspect", tiny.replace("tiny", "tinny"))
    assert done.status == 2
    assert f"did you mean {tiny}?" in done.error


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_an_interrupt_is_clean(start, tiny):
    process = start("run", tiny, "hi", "-n", "-1", "--shift", "--ignore-eos", "--backend", "reference")
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == b"\n"


def test_a_closed_pipe_is_quiet(start, tiny):
    process = start("run", tiny, "hi", "-n", "-1", "--shift", "--ignore-eos", "--backend", "reference")
    assert process.stdout.read(1)
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 141
    assert err == b""


@pytest.mark.parametrize("args", [("--help",), ("inspect", "MODEL"), ("inspect", "--json", "MODEL"), ("dump", "MODEL")])
def test_a_pipe_that_nobody_reads_is_quiet(start, tiny, args):
    process = start(*(tiny if arg == "MODEL" else arg for arg in args))
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == 141
