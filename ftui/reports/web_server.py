"""Reports as pages on this machine alone, for a browser at the other end of `ssh -L`.

It listens on the loopback address and answers only whoever has been told the address that it prints: the token in it
works once and becomes a cookie that scripts cannot read and other sites cannot send. Requests that name another host
(a name that was made to lead here) or come from another page are refused. It only reads.
"""

import hmac
import secrets
import socket
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from ftui import __version__
from ftui.errors import FtuiError, UsageError
from ftui.reports.html_page import make_page, policy
from ftui.reports.web_pages import page_at
from ftui.text import complaint

LOOPBACK = "127.0.0.1"
HOSTS = (LOOPBACK, "localhost")
COOKIE = "ftui"
LONGEST_WAIT = 30.0  # seconds for a request to arrive
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Keys:
    """The token of the next browser, and what the cookies of those that came hold."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell` is called with every new token."""
        self._tell = tell
        self._lock = threading.Lock()
        self._sessions: list[str] = []
        self._token = ""
        self.renew()

    def renew(self) -> None:
        """Another token takes the place of one that was used."""
        self._token = secrets.token_urlsafe(32)
        self._tell(self._token)

    def exchange(self, token: str) -> str | None:
        """What the cookie of a new browser holds; `None` for a wrong token, or one that was used."""
        with self._lock:  # of two that come at once, one is too late
            if not _is_same(token, self._token):
                return None
            session = secrets.token_urlsafe(32)
            self._sessions.append(session)
            self.renew()
        return session

    def is_known(self, session: str) -> bool:
        """Whether a cookie is one of ours."""
        return any([_is_same(session, known) for known in self._sessions])


def _is_same(told: str, known: str) -> bool:
    """In a time that tells nothing."""
    return hmac.compare_digest(told.encode(errors="replace"), known.encode())


class ReportServer(ThreadingHTTPServer):
    """Answers on a port of the loopback address; port 0 takes a free one.

    `tell` is called with each address that opens the pages in one more browser.

    Raises:
        UsageError: another program has the port.
    """

    daemon_threads = True
    address_family = socket.AF_INET

    def __init__(self, port: int, tell: Callable[[str], None]) -> None:
        try:
            super().__init__((LOOPBACK, port), Handler)
        except OSError as error:
            hint = "--port takes another one; 0 one that is free."
            raise UsageError(f"Port {port} cannot be listened on: {error.strerror}.", hint=hint) from error
        self.keys = Keys(lambda token: tell(f"http://{LOOPBACK}:{self.server_port}/?token={token}"))

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that went away is no error; anything else is said, and the next request is answered."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            print(complaint(f"A page could not be made: {type(error).__name__}: {error}"), file=sys.stderr)


class Handler(BaseHTTPRequestHandler):
    """One request: who asks is checked before what is asked."""

    server: ReportServer
    server_version = f"ftui/{__version__}"
    sys_version = ""
    timeout = LONGEST_WAIT

    def do_GET(self) -> None:
        """A page, or in exchange for a token the cookie."""
        address = urlsplit(self.path)
        query = parse_qs(address.query)
        if (refusal := self._refusal()) is not None:
            self._refuse(HTTPStatus.FORBIDDEN, refusal)
        elif token := query.get("token"):
            self._let_in(token[0])
        elif not self.server.keys.is_known(self._session()):
            self._refuse(HTTPStatus.FORBIDDEN, "Open the address that `ftui serve` has printed; it works once.")
        else:
            self._answer(address.path, query)

    do_HEAD = do_GET

    def _refusal(self) -> str | None:
        """Why nobody may ask so. The port of the address may be another one, at the other end of a tunnel."""
        host = self.headers.get("Host", "")
        if host.partition(":")[0].lower() not in HOSTS:
            return "This server answers to 127.0.0.1 and localhost only."
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{host}":
            return "Another site asked for this page."
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return "Another site asked for this page."
        return None

    def _let_in(self, token: str) -> None:
        session = self.server.keys.exchange(token)
        if session is None:
            self._refuse(HTTPStatus.FORBIDDEN, "That address was used already; `ftui serve` has printed a new one.")
            return
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Location", "/")
        self.send_header("Set-Cookie", f"{COOKIE}={session}; HttpOnly; SameSite=Strict; Path=/")
        self._end_headers(0, "text/plain")

    def _session(self) -> str:
        try:
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        except CookieError:
            return ""
        return cookie.value if cookie is not None else ""

    def _answer(self, path: str, query: dict[str, list[str]]) -> None:
        try:
            page = page_at(path, query)
        except FtuiError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, f"{error.message} {error.hint}")
            return
        except OSError as error:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"The runs cannot be read now: {error}")
            return
        if page is None:
            self._refuse(HTTPStatus.NOT_FOUND, "There is no such page, or the run is gone.")
            return
        self._send(HTTPStatus.OK, page.content.encode(), page.kind)

    def _refuse(self, status: HTTPStatus, words: str) -> None:
        page = make_page("message.html.jinja", status.phrase, [], links=(), message=words)
        self._send(status, page.encode(), "text/html")

    def _send(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self.send_response(status)
        self._end_headers(len(content), kind)
        if self.command != "HEAD":
            self.wfile.write(content)

    def _end_headers(self, length: int, kind: str) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", f"{policy(has_forms=True)}; frame-ancestors 'none'")
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a line for each request would hide the address, and hold its token."""


def tunnel_words(port: int) -> str:
    """The command for the machine with the browser."""
    return f"ssh -L {port}:{LOOPBACK}:{port} ... (and what you reach this machine with)"
