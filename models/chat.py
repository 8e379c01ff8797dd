"""Chat: messages through a model's own template to prompt ids, and a conversation over one session.

Arrives: messages (`{"role": ..., "content": ...}`) and the Jinja template of the model file; leaves: ids with exactly
one BOS. Templates are other people's programs: they run in Jinja's sandbox with bounded work (`models/template.py`).
What a message says is text: `<|im_end|>` in it ends no turn. Next: `tools/`, the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gml.errors import ContextFullError, UsageError
from gml.models.generate import Evaluates, Generation, Result
from gml.models.sampling import Sampler
from gml.models.template import ChatTemplate
from gml.models.tokenizer import Tokenizer
from gml.models.tokenizer.special import SpecialMatcher
from gml.models.tokenizer.vocabulary import TokenType

Message = Mapping[str, Any]

# Private-use characters: the first that no message contains becomes the guard.
GUARDS = [chr(code) for code in range(0xF8FF, 0xF7FF, -1)]


class ChatPrompt:
    """Turns messages into prompt ids.

    Raises `UsageError` without a template (`template` None and none in the file), `ChatTemplateError` for a bad one.
    """

    def __init__(self, tokenizer: Tokenizer, template: str | None) -> None:
        if not template:
            raise UsageError(
                "the model file has no chat template (tokenizer.chat_template); pass one with --template FILE, "
                "or use gml run for plain completion"
            )
        self.tokenizer = tokenizer
        vocabulary = tokenizer.vocabulary
        self.template = ChatTemplate(
            template, bos_token=_spelling(tokenizer, tokenizer.bos_id), eos_token=_spelling(tokenizer, tokenizer.eos_id)
        )
        special = vocabulary.special_ids(parse_special=True)
        self._special = SpecialMatcher(vocabulary, special)
        # user-defined tokens count in any text, so only the others are guarded; a guard needs two characters to part
        self._guarded = SpecialMatcher(
            vocabulary,
            [t for t in special if vocabulary.types[t] != TokenType.USER_DEFINED and len(vocabulary.tokens[t]) > 1],
        )

    def text(self, messages: Sequence[Message], **variables: Any) -> str:
        """The rendered template, for reading; `ids` does not go through this text alone."""
        return self.template.render(messages, **variables)

    def ids(self, messages: Sequence[Message], **variables: Any) -> np.ndarray:
        """Prompt ids (int32) of messages; variables as in `ChatTemplate.render`.

        A guard character is put into control tokens that messages spell, so that after rendering only the template's
        own are tokens; then it is taken out of the text.
        """
        guard = _unused_guard(messages)
        guarded = [{key: self._guard(value, guard) for key, value in message.items()} for message in messages]
        rendered = self.template.render(guarded, **variables)
        parts: list[np.ndarray] = []
        for fragment in self._special.partition(rendered):
            if isinstance(fragment, int):
                parts.append(np.array([fragment], dtype=np.int32))
            else:
                parts.append(self.tokenizer.encode(fragment.replace(guard, "")))
        return self._with_one_bos(np.concatenate(parts) if parts else np.empty(0, dtype=np.int32))

    def _guard(self, value: Any, guard: str) -> Any:
        if isinstance(value, Mapping):
            return {key: self._guard(item, guard) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._guard(item, guard) for item in value]
        if not isinstance(value, str):
            return value
        while found := {f for f in self._guarded.partition(value) if isinstance(f, int)}:
            for id in found:
                spelled = self.tokenizer.vocabulary.tokens[id]
                value = value.replace(spelled, spelled[0] + guard + spelled[1:])
        return value

    def _with_one_bos(self, ids: np.ndarray) -> np.ndarray:
        """Templates write a BOS or leave it to the tokenizer; both at once would make two."""
        bos = self.tokenizer.bos_id
        if bos is None:
            return ids
        n_bos = int(np.argmin(np.append(ids == bos, False)))
        wanted = min(n_bos, 1) or int(self.tokenizer.add_bos)
        return np.concatenate([np.full(wanted, bos, dtype=np.int32), ids[n_bos:]])


def _spelling(tokenizer: Tokenizer, id: int | None) -> str:
    return "" if id is None else tokenizer.vocabulary.tokens[id]


def _unused_guard(messages: Sequence[Message]) -> str:
    said = "".join(_strings(messages))
    for guard in GUARDS:
        if guard not in said:
            return guard
    raise UsageError("the messages use all of the private-use characters U+F800 to U+F8FF; leave at least one out")


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return [text for item in items for text in _strings(item)]


class Chat:
    """A conversation: messages so far, one session, and replies that stream.

    system    the first message, if any
    shift     forget the oldest exchanges when the context is full; otherwise `ContextFullError`
    n_reply   tokens of the context that a prompt leaves free for the reply, when `shift` forgets

        for piece in chat.reply("Hello"):
            print(piece.text, end="", flush=True)

    Ids that a prompt shares with the session are not evaluated again, so a turn costs its own tokens only.
    """

    def __init__(
        self,
        session: Evaluates,
        tokenizer: Tokenizer,
        template: str | None,
        *,
        system: str | None = None,
        shift: bool = True,
        n_reply: int = 256,
        **variables: Any,
    ) -> None:
        self.session, self.tokenizer, self.shift = session, tokenizer, shift
        self.prompt = ChatPrompt(tokenizer, template)
        self.messages: list[Message] = [{"role": "system", "content": system}] if system else []
        self.n_reply = min(n_reply, session.n_ctx // 2)
        self.variables = variables
        #: what the last reply gave
        self.result: Result | None = None

    def clear(self) -> None:
        """Forget the conversation, keep the system message."""
        self.messages = [m for m in self.messages[:1] if m["role"] == "system"]

    def reply(
        self,
        text: str,
        sampler: Sampler,
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        cancel: Callable[[], bool] | None = None,
    ) -> _Reply:
        """Say something; an iterator of `Piece`s. The exchange is remembered as far as it was iterated."""
        before = list(self.messages)
        self.messages.append({"role": "user", "content": text})
        try:
            generation = Generation(
                self.session,
                self.tokenizer,
                self._fitting_prompt(),
                sampler,
                max_tokens=max_tokens,
                stop=stop,
                shift=self.shift,
                cancel=cancel,
            )
        except Exception:
            self.messages = before
            raise
        self.result = generation.result
        answer: dict[str, Any] = {"role": "assistant", "content": ""}
        self.messages.append(answer)
        return _Reply(generation, answer)

    def _fitting_prompt(self) -> np.ndarray:
        """Prompt ids; with `shift`, the oldest exchanges are forgotten until there is room for a reply."""
        while True:
            ids = self.prompt.ids(self.messages, add_generation_prompt=True, **self.variables)
            n_head = int(self.messages[0]["role"] == "system")
            forgettable = len(self.messages) - n_head > 2
            room = self.session.n_ctx - (self.n_reply if self.shift and forgettable else 0)
            if len(ids) <= room:
                return ids
            if not (self.shift and forgettable):
                raise ContextFullError(
                    f"the conversation has {len(ids)} tokens, the context holds {self.session.n_ctx}; "
                    "raise the context size, shorten the message or clear the conversation"
                )
            del self.messages[n_head : n_head + 2]


class _Reply:
    """The pieces of a generation; the answer's message grows with them."""

    def __init__(self, generation: Generation, answer: dict[str, Any]) -> None:
        self._generation, self._answer = generation, answer
        self.result = generation.result

    def __iter__(self) -> _Reply:
        return self

    def __next__(self) -> Any:
        piece = next(self._generation)
        self._answer["content"] = self.result.text
        return piece
