"""`gml chat` without a terminal: every line a message."""

from __future__ import annotations

CHAT = ("--backend", "reference", "-n", "4", "--temp", "0", "--ignore-eos")


def test_every_line_gets_a_reply(gml, tiny):
    done = gml("chat", tiny, "--system", "S", *CHAT, stdin=b"hello\n\nthere")
    assert done.status == 0
    # one line of timings a reply, and the second reply reuses the first exchange
    first, second = done.err.splitlines()
    assert "generation 4 tokens" in first and "reused" not in first
    assert "reused" in second
    assert done.out.endswith("\n")


def test_clear_forgets_and_exit_ends(gml, tiny):
    done = gml("chat", tiny, *CHAT, stdin=b"hello\n/clear\nhello\n/exit\nnever\n")
    assert done.status == 0
    first, second = done.err.splitlines()
    # the same prompt again: all of it but the last token is in the session
    assert "prompt 25 tokens in" in first
    assert "prompt 25 tokens (24 reused)" in second
    half = len(done.out) // 2
    assert done.out[:half] == done.out[half:]


def test_a_template_of_ones_own(gml, tiny, tmp_path):
    template = tmp_path / "t.jinja"
    template.write_text("{{ messages[-1].content }}", encoding="utf-8")
    assert "prompt 3 tokens" in gml("chat", tiny, "--template", str(template), *CHAT, stdin=b"hi").err
    template.write_text("{% if %}", encoding="utf-8")
    done = gml("chat", tiny, "--template", str(template), *CHAT, stdin=b"hi")
    assert done.status == 1
    assert done.error.startswith("chat template, line 1: ")


def test_without_a_template_the_error_says_what_to_do(gml, untemplated):
    done = gml("chat", untemplated, *CHAT, stdin=b"hi")
    assert done.status == 2
    assert "--template FILE" in done.error


def test_no_shift_fails_when_the_context_is_full(gml, tiny):
    talk = b"hello there\n" * 8
    assert gml("chat", tiny, "--ctx", "100", *CHAT, stdin=talk).status == 0
    done = gml("chat", tiny, "--ctx", "100", "--no-shift", *CHAT, stdin=talk)
    assert done.status == 1
    assert "the context holds 100" in done.err.splitlines()[-1]
