"""A host for context engines, which keep long conversations inside a language model's window.

>>> import contexture, tempfile
>>> host = contexture.Host(home=tempfile.mkdtemp(), offline=True)
>>> with host.session("work", model="gpt-4o", context_length=128_000) as session:
...     messages = [{"role": "user", "content": "Hello"}]
...     turn = session.turn(messages)
...     # ... send turn.messages to the model, and then:
...     session.answer({"role": "assistant", "content": "Hello!"}, {"prompt_tokens": 9, "completion_tokens": 2})
>>> turn.messages[0] is messages[0]  # nothing to do yet: the very objects
True
"""

from pathlib import Path

from ._aio import AsyncHost, AsyncSession
from ._native import (
    ArgumentError,
    Changed,
    ContextureError,
    Decision,
    EngineFailed,
    FormatError,
    Host,
    Kept,
    Services,
    Session,
    SessionDiffers,
    SessionInUse,
    Summary,
    ToolError,
    Turn,
    __version__,
    check_engine,
    count_tokens,
    look_for_engine_host_in,
    register_engine,
    replay,
    safe_cut,
)

__all__ = [
    "ArgumentError",
    "AsyncHost",
    "AsyncSession",
    "Changed",
    "ContextureError",
    "Decision",
    "EngineFailed",
    "FormatError",
    "Host",
    "Kept",
    "Services",
    "Session",
    "SessionDiffers",
    "SessionInUse",
    "Summary",
    "ToolError",
    "Turn",
    "__version__",
    "check_engine",
    "count_tokens",
    "register_engine",
    "replay",
    "safe_cut",
]

# A wheel brings the program along.
look_for_engine_host_in(Path(__file__).parent)
