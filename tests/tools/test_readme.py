"""What the README shows is true: its example runs, its knobs and commands are those there are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gml.debug import KNOBS
from gml.tools.cli import COMMANDS, cli

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_example_defines_runs_and_dumps_a_network(tmp_path):
    (source,) = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    assert len(source.splitlines()) <= 25
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    first, second, *dump = done.stdout.splitlines()
    assert first == "(3, 10) [1. 1. 1.]"
    assert second == "(3, 128)"
    assert dump[0].startswith("graph mlp: ")
    assert any("mul_mat(" in line and "w1" in line for line in dump)


def test_every_command_and_knob_is_there():
    assert set(re.findall(r"^\| `gml (\w+)", README, re.MULTILINE)) == set(COMMANDS)
    rows = dict(re.findall(r"^\| `(GML_\w+)` \| (.*) \|$", README, re.MULTILINE))
    assert rows == {knob.variable: knob.meaning for knob in KNOBS.values()}


@pytest.mark.parametrize("line", re.findall(r"^    (gml (?:run|tokenize) .*)$", README, re.MULTILINE))
def test_options_of_the_examples_exist(line):
    import shlex

    import click

    args = shlex.split(line.split("<")[0])[1:]
    context = click.Context(cli, info_name="gml")
    command = cli.get_command(context, args[0])
    assert command is not None
    command.make_context(args[0], args[1:], parent=context)
