"""The messages between `ftui.helper.client` and `ftui.engine.services.server`: lines of JSON on two pipes."""

from typing import Any

import msgspec

from ftui.errors import BUG, FtuiError, error_with

STOP = b"stop\n"
"""A line beside the requests: the answer in progress may end early (engine/services/stop_flag.py)."""


class Request(msgspec.Struct, frozen=True):
    """A call of one of the server's methods (engine/services/server.py lists them). Every `id` is used once."""

    id: int
    method: str
    params: dict[str, Any]


class Problem(msgspec.Struct, frozen=True):
    """An `FtuiError` on its way to another process."""

    message: str
    hint: str = ""
    exit_code: int = BUG
    name: str = ""  # of its class

    def error(self) -> FtuiError:
        return error_with(self.exit_code, self.message, self.hint, self.name)


class Response(msgspec.Struct, frozen=True):
    """The answer to the request of that id, or a problem; before it, any number of lines on the progress (`detail`)."""

    id: int
    answer: Any = None
    problem: Problem | None = None
    detail: str | None = None
