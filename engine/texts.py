"""Prompts, appended texts and cuts of a model whose tokens are known here and computed elsewhere.

They are those of the embedded engine: prompts come from the model's chat template, a user's text
never becomes a control token, and no token is made anew once it is there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ttc.engine.local.cutting import Cutter
from ttc.engine.local.files.gguf import read_gguf
from ttc.engine.local.path import path_tokens
from ttc.engine.local.text.prompt import ChatTemplate
from ttc.engine.local.text.tokenizer import TextTokens, clean_text
from ttc.errors import ContextOverflow, EngineError
from ttc.tool_calls import Form, form_of
from ttc.types import Branch, Problem

if TYPE_CHECKING:
    from ttc.engine.local.text.vocabulary import After

__all__ = ["Texts"]


class Texts:
    """What a model reads, as branches. May be used from any thread."""

    def __init__(
        self,
        tokens: TextTokens,
        template: ChatTemplate | None,
        *,
        name: str,
        context: int | None = None,
    ) -> None:
        """Texts of a model.

        Args:
            tokens: its vocabulary.
            template: its chat template, where it has one.
            name: what faults call it.
            context: the most tokens of prompt and output together; `None` where unknown.
        """
        self.tokens, self.name, self.context = tokens, name, context
        self._template = template
        self._cutter = Cutter(tokens)

    @property
    def call_form(self) -> Form:
        """How the model writes calls of tools."""
        return form_of(None if self._template is None else self._template.with_tools)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, name: str, context: int | None = None) -> Self:
        """Those of a GGUF file, or of a folder with a `tokenizer.json`.

        Raises:
            ModelFileError: they are missing, damaged or of a kind that is not supported.
        """
        where = Path(path)
        if where.is_dir():
            tokens = TextTokens.from_folder(where)
            template = ChatTemplate.from_folder(where, tokens)
        else:
            file = read_gguf(where)
            tokens = TextTokens.from_gguf(file)
            template = ChatTemplate.from_gguf(file, tokens)
        return cls(tokens, template, name=name, context=context)

    def root(self, problem: Problem, role: str) -> Branch:
        """The problem's prompt, as the embedded engine would have it.

        Raises:
            ContextOverflow: it does not fit.
            EngineError: there is no chat template, or it refuses the messages.
        """
        if problem.prompt is not None:
            text = clean_text(problem.prompt)
            token_ids = self.tokens.encode(text)
        elif self._template is None:
            raise EngineError(f"{self.name} has no chat template; give the problem as prompt=")
        else:
            text, token_ids = self._template.render(
                problem.messages,
                tools=problem.tools,
                continue_last=problem.continue_last,
                options=problem.template_options,
            )
        start = self.tokens.start_id
        if start is not None and token_ids[:1] != [start]:
            token_ids = [start, *token_ids]
        self.check_fit(len(token_ids))
        return Branch(role=role, text=text, token_ids=tuple(token_ids))

    def append(self, branch: Branch, text: str, *, as_token: bool = False) -> Branch:
        """A branch that goes on with `text`; see `ttc.ports.Engine`."""
        text = clean_text(text)
        if as_token and text in self.tokens.control:
            token_ids: tuple[int, ...] = (self.tokens.control[text],)
        else:
            before = (token for part in branch.lineage() for token in part.token_ids or ())
            after: After = "nothing" if self.tokens.trims_after(before) else "text"
            token_ids = tuple(self.tokens.encode(text, after="text" if as_token else after))
        if as_token and len(token_ids) != 1:
            raise EngineError(f"the vocabulary of {self.name} has no one token {text!r}")
        return Branch(parent=branch, role=branch.role, text=text, token_ids=token_ids)

    def cut(self, branch: Branch, num_tokens: int) -> Branch:
        """A branch's first tokens; see `ttc.ports.Engine`."""
        return self._cutter.cut(branch, num_tokens)

    def prompt_of(self, branch: Branch) -> list[int]:
        """The tokens that a call on a branch goes on from.

        Raises:
            ContextOverflow: they leave no room.
            EngineError: there is none.
        """
        prompt = path_tokens(branch)
        if not prompt:
            raise EngineError("the prompt is empty; give the model one token at least")
        self.check_fit(len(prompt))
        return prompt

    def check_fit(self, count: int) -> None:
        """Raises ContextOverflow where so many tokens leave no room for another one."""
        if self.context is not None and count >= self.context:
            raise ContextOverflow(
                f"a prompt of {count} tokens leaves no room in the {self.context} tokens of "
                f"context of {self.name}; shorten the prompt"
            )
