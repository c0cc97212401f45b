"""The host for asyncio: each call runs in a thread and does not block the loop.

Cancelling a call ends its wait. The operation is asked to stop, and the session is free once it has stopped.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from ._native import Decision, Host, Interrupt, Session, Turn

if TYPE_CHECKING:
    from ._native import Message, Model

_P = ParamSpec("_P")
_T = TypeVar("_T")


async def _in_thread(call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    interrupt = Interrupt()
    try:
        return await asyncio.to_thread(lambda: interrupt.run(call, *args, **kwargs))
    except asyncio.CancelledError:
        interrupt.set()
        raise


class AsyncSession:
    """A session whose calls are awaited. See ``Session``."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def id(self) -> str:
        """The session's id."""
        return self._session.id

    async def engine(self) -> str:
        """As ``Session.engine``. It waits for a call in progress."""
        return await _in_thread(getattr, self._session, "engine")

    async def turn(
        self,
        messages_or_body: Sequence[Any] | Message | str | bytes,
        *,
        compact: Literal["auto", "force", "never"] = "auto",
        fixed_tokens: int | None = None,
        keep_from: int | None = None,
        focus: str | None = None,
        memory: str | None = None,
    ) -> Turn:
        """As ``Session.turn``."""
        return await _in_thread(
            self._session.turn,
            messages_or_body,
            compact=compact,
            fixed_tokens=fixed_tokens,
            keep_from=keep_from,
            focus=focus,
            memory=memory,
        )

    async def answer(self, message: Any, usage: Any = None) -> None:
        """As ``Session.answer``."""
        await _in_thread(self._session.answer, message, usage)

    async def usage(self, usage: Any = None, **figures: int) -> None:
        """As ``Session.usage``."""
        await _in_thread(self._session.usage, usage, **figures)

    async def preflight(self, tokens: int) -> Decision:
        """As ``Session.preflight``."""
        return await _in_thread(self._session.preflight, tokens)

    async def set_model(self, model: str, context_length: int, max_output_tokens: int = 0) -> None:
        """As ``Session.set_model``."""
        await _in_thread(self._session.set_model, model, context_length, max_output_tokens)

    async def tools(self) -> list[dict[str, Any]]:
        """As ``Session.tools``."""
        return await _in_thread(self._session.tools)

    async def call_tool(self, name: str, args: Message | str) -> str:
        """As ``Session.call_tool``."""
        return await _in_thread(self._session.call_tool, name, args)

    async def pin(self, words: str) -> None:
        """As ``Session.pin``."""
        await _in_thread(self._session.pin, words)

    async def unpin(self, words: str) -> None:
        """As ``Session.unpin``."""
        await _in_thread(self._session.unpin, words)

    async def status(self) -> dict[str, Any]:
        """As ``Session.status``."""
        return await _in_thread(self._session.status)

    async def reset(self) -> None:
        """As ``Session.reset``."""
        await _in_thread(self._session.reset)

    async def close(self) -> None:
        """As ``Session.close``."""
        await _in_thread(self._session.close)

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Async{repr(self._session)[1:]}"


class _Opening(Awaitable[AsyncSession], AbstractAsyncContextManager[AsyncSession, None]):
    """A session that is being opened. ``await`` it, or use ``async with``, which closes it at the end."""

    def __init__(self, open: Callable[[], Session]) -> None:
        self._open = open
        self._session: AsyncSession | None = None

    def __await__(self) -> Generator[Any, None, AsyncSession]:
        return self._opened().__await__()

    async def _opened(self) -> AsyncSession:
        return AsyncSession(await _in_thread(self._open))

    async def __aenter__(self) -> AsyncSession:
        self._session = await self
        return self._session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()


class AsyncHost:
    """A host whose sessions are awaited. See ``Host``.

    The constructor opens it synchronously, which takes some milliseconds. ``await AsyncHost.open(...)`` opens it in a
    thread. Like a ``Host`` it holds nothing open, so ``async with`` is optional. Its sessions are closed separately.
    """

    def __init__(
        self,
        home: str | os.PathLike[str] | None = None,
        config: str | os.PathLike[str] | None = None,
        offline: bool = False,
        model: Model | None = None,
    ) -> None:
        self._host = Host(home, config, offline, model)

    @classmethod
    async def open(
        cls,
        home: str | os.PathLike[str] | None = None,
        config: str | os.PathLike[str] | None = None,
        offline: bool = False,
        model: Model | None = None,
    ) -> AsyncHost:
        """Opens the host without blocking the loop."""
        return await _in_thread(cls, home, config, offline, model)

    async def engines(self) -> list[dict[str, Any]]:
        """As ``Host.engines``."""
        return await _in_thread(self._host.engines)

    async def tools(self, engine: str | None = None) -> list[dict[str, Any]]:
        """As ``Host.tools``."""
        return await _in_thread(self._host.tools, engine)

    def session(
        self,
        id: str,
        model: str,
        context_length: int,
        max_output_tokens: int = 0,
        engine: str | None = None,
        wait_s: float = 2.0,
        format: Literal["openai", "responses", "anthropic", "gemini"] = "openai",
        summaries: Literal["own", "folded"] = "own",
        note: bool = True,
        unrelated: Literal["new_root", "refuse"] = "new_root",
    ) -> _Opening:
        """As ``Host.session``: ``session = await host.session(...)``, or ``async with host.session(...) as session:``."""

        def open() -> Session:
            return self._host.session(
                id, model, context_length, max_output_tokens, engine, wait_s, format, summaries, note, unrelated
            )

        return _Opening(open)

    async def __aenter__(self) -> AsyncHost:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
