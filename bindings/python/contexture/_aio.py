"""The host for asyncio: each call is made in a thread, and waits without holding the loop."""

from __future__ import annotations

import asyncio
import os
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._native import Decision, Host, Session, Turn

if TYPE_CHECKING:
    from ._native import Model


class AsyncSession:
    """A session whose calls are awaited. See ``Session``."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def id(self) -> str:
        """The session's id."""
        return self._session.id

    async def turn(self, messages_or_body: Any, **options: Any) -> Turn:
        """As ``Session.turn``."""
        return await asyncio.to_thread(self._session.turn, messages_or_body, **options)

    async def answer(self, message: Any, usage: Any = None) -> None:
        """As ``Session.answer``."""
        await asyncio.to_thread(self._session.answer, message, usage)

    async def usage(self, usage: Any = None, **figures: int) -> None:
        """As ``Session.usage``."""
        await asyncio.to_thread(self._session.usage, usage, **figures)

    async def preflight(self, tokens: int) -> Decision:
        """As ``Session.preflight``."""
        return await asyncio.to_thread(self._session.preflight, tokens)

    async def set_model(self, model: str, context_length: int, max_output_tokens: int = 0) -> None:
        """As ``Session.set_model``."""
        await asyncio.to_thread(self._session.set_model, model, context_length, max_output_tokens)

    async def tools(self) -> list[dict[str, Any]]:
        """As ``Session.tools``."""
        return await asyncio.to_thread(self._session.tools)

    async def call_tool(self, name: str, args: dict[str, Any] | str) -> str:
        """As ``Session.call_tool``."""
        return await asyncio.to_thread(self._session.call_tool, name, args)

    async def status(self) -> dict[str, Any]:
        """As ``Session.status``."""
        return await asyncio.to_thread(self._session.status)

    async def reset(self) -> None:
        """As ``Session.reset``."""
        await asyncio.to_thread(self._session.reset)

    async def close(self) -> None:
        """As ``Session.close``."""
        await asyncio.to_thread(self._session.close)

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncHost:
    """A host whose sessions are awaited. See ``Host``; ``await AsyncHost.open(...)`` makes one."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @classmethod
    async def open(
        cls,
        home: str | os.PathLike[str] | None = None,
        config: str | os.PathLike[str] | None = None,
        offline: bool = False,
        model: Model | None = None,
    ) -> AsyncHost:
        """Opens the host."""
        return cls(await asyncio.to_thread(Host, home, config, offline, model))

    async def engines(self) -> list[dict[str, Any]]:
        """As ``Host.engines``."""
        return await asyncio.to_thread(self._host.engines)

    async def tools(self, engine: str | None = None) -> list[dict[str, Any]]:
        """As ``Host.tools``."""
        return await asyncio.to_thread(self._host.tools, engine)

    async def session(self, id: str, model: str, context_length: int, **options: Any) -> AsyncSession:
        """As ``Host.session``."""
        return AsyncSession(await asyncio.to_thread(self._host.session, id, model, context_length, **options))
