"""`ftui serve` asked over real connections: who is let in, who is not, and what the pages are."""

import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import NamedTuple

import html5lib
import pytest

from ftui.cli.main import main
from ftui.errors import UsageError
from ftui.reports.web_server import Handler, ReportServer
from ftui.runs.run_folder import runs_root
from tests.support.evil import evil_run
from tests.support.replayed import replay

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HOSTILE = '<script>document.title="owned"</script><img src="http://127.0.0.1:{port}/stolen" onerror="alert(1)">'


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


class Served:
    """A server, the addresses it told, and a browser that keeps cookies if it is told to."""

    def __init__(self) -> None:
        self.addresses: list[str] = []
        self.server = ReportServer(0, self.addresses.append)
        self.host = f"127.0.0.1:{self.server.server_port}"

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        connection = HTTPConnection("127.0.0.1", self.server.server_port, timeout=60)
        connection.putrequest(method, path, skip_host=True)
        for name, value in ({"Host": self.host} | headers).items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        response: HTTPResponse = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, text)

    def enter(self) -> str:
        """The cookie for the newest address."""
        answer = self.ask(self.addresses[-1].removeprefix(f"http://{self.host}"))
        assert (answer.status, answer.headers["location"]) == (303, "/")
        return answer.headers["set-cookie"].partition(";")[0]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    for name in ("wiki-style-finished", "exploded"):
        replay(name, runs_root())
    it = Served()
    thread = threading.Thread(target=lambda: it.server.serve_forever(poll_interval=0.02), daemon=True)
    thread.start()
    yield it
    it.server.shutdown()
    it.server.server_close()
    thread.join()


def test_the_address_works_once_and_gives_a_cookie_that_no_script_reads(served: Served) -> None:
    first = served.addresses[-1]
    path = first.removeprefix(f"http://{served.host}")
    answer = served.ask(path)
    assert {*answer.headers["set-cookie"].split("; ")[1:]} == {"HttpOnly", "SameSite=Strict", "Path=/"}
    assert served.ask(path).status == 403
    assert len(served.addresses) == 2 and served.addresses[-1] != first
    cookie = answer.headers["set-cookie"].partition(";")[0]
    assert served.ask("/", Cookie=cookie).status == 200
    assert served.ask("/", Cookie=served.enter()).status == 200, "one more browser"
    assert served.ask("/", Cookie=cookie).status == 200, "the first one is still known"


@pytest.mark.parametrize(
    "path", ["/", "/run/exploded", "/csv/exploded", "/compare?run=exploded", "/?token=", "/nothing"]
)
def test_whoever_has_no_cookie_sees_nothing(path: str, served: Served) -> None:
    for headers in ({}, {"Cookie": "ftui=guess"}, {"Cookie": "ftui=\xff"}, {"Cookie": "other=1; ;;=="}):
        answer = served.ask(path, **headers)
        assert answer.status == 403 and "wiki-style" not in answer.text and "set-cookie" not in answer.headers
    assert served.ask("/?token=wrong").status == 403
    assert len(served.addresses) == 1, "a wrong token uses up none"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8765"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "0.0.0.0:8765"},
        {"Host": "localhost@evil.example"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_other_hosts_and_other_sites_are_refused(headers: dict[str, str], served: Served) -> None:
    cookie = served.enter()
    answer = served.ask("/", Cookie=cookie, **headers)
    assert answer.status == 403 and "wiki-style" not in answer.text
    path = served.addresses[-1].removeprefix(f"http://{served.host}")
    assert served.ask(path, **headers).status == 403, "nor do they get a cookie"
    assert served.ask(path).status == 303


def test_the_other_end_of_a_tunnel_may_have_another_port(served: Served) -> None:
    cookie = served.enter()
    for host in ("localhost:9000", "127.0.0.1:9000", "LOCALHOST"):
        assert served.ask("/", Cookie=cookie, Host=host, Origin=f"http://{host}").status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/run/..%2f..%2fetc%2fpasswd", "/run/../../etc/passwd", "/csv/..", "/run/", "/run/exploded/journal.jsonl",
        "/run/%65xploded", "/run/exploded%00", "/compare?run=../exploded&run=exploded", "//run/exploded/..",
    ],
)  # fmt: skip
def test_names_lead_to_listed_runs_only(path: str, served: Served) -> None:
    (runs_root().parent / "secret").write_text("root:x:0:0")
    answer = served.ask(path, Cookie=served.enter())
    assert answer.status == 404 and "root:" not in answer.text


def test_every_page_is_whole_and_asks_for_nothing(served: Served) -> None:
    cookie = served.enter()
    pages = ["/", "/run/exploded", "/run/exploded?over=time", "/compare?run=exploded&run=wiki-style-finished"]
    for path in pages:
        answer = served.ask(path, Cookie=cookie)
        assert answer.status == 200, path
        assert answer.headers["x-frame-options"] == "DENY" and answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        tree = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(answer.text)
        assert [e.tag for e in tree.iter() if e.tag in ("script", "img", "link", "iframe", "object")] == []
        links = [e.get("href") for e in tree.iter("a")]
        assert links and all(link.startswith("/") and served.ask(link, Cookie=cookie).status == 200 for link in links)
        assert served.ask(path, "HEAD", Cookie=cookie).text == ""
    assert served.ask("/csv/exploded", Cookie=cookie).headers["content-type"].startswith("text/csv")
    for path, status in {"/compare?run=exploded": 400, "/run/exploded?over=moon": 400, "/": 200}.items():
        assert served.ask(path, Cookie=cookie).status == status


def test_nothing_can_be_changed(served: Served) -> None:
    cookie = served.enter()
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
        assert served.ask("/run/exploded", method, Cookie=cookie).status == 501


def test_pages_renew_themselves_while_a_run_is_running(served: Served) -> None:
    cookie = served.enter()
    assert 'http-equiv="refresh"' not in served.ask("/", Cookie=cookie).text
    replay("wiki-style-lora", runs_root(), living=True)
    for path in ("/", "/run/wiki-style-lora"):
        assert 'http-equiv="refresh" content="15"' in served.ask(path, Cookie=cookie).text
    assert 'http-equiv="refresh"' not in served.ask("/run/exploded", Cookie=cookie).text


def test_a_damaged_run_hides_no_other(served: Served) -> None:
    (runs_root() / "exploded" / "run.json").write_text("{")
    cookie = served.enter()
    text = served.ask("/", Cookie=cookie).text
    assert "exploded" in text and "wiki-style-finished" in text
    assert served.ask("/run/exploded", Cookie=cookie).status == 400


def test_it_listens_on_this_machine_alone_and_says_when_the_port_is_taken(served: Served) -> None:
    assert served.server.server_address[0] == "127.0.0.1"
    with pytest.raises(UsageError, match="cannot be listened on"):
        ReportServer(served.server.server_port, lambda address: None)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_a_browser_runs_no_script_and_asks_nobody(served: Served, tmp_path: Path) -> None:
    """A hostile run in headless Chromium: its page is asked for, and nothing that its texts would have asked for."""
    asked: list[str] = []

    class Noting(Handler):
        def do_GET(self) -> None:
            asked.append(self.path.partition("?")[0])
            super().do_GET()

    served.server.RequestHandlerClass = Noting
    run = evil_run(runs_root() / "evil", HOSTILE.replace("{port}", str(served.server.server_port)))
    assert CHROMIUM is not None
    assert main(["report", str(run.folder), "--out", str(tmp_path / "evil.html")]) == 0
    for address in (served.addresses[-1], (tmp_path / "evil.html").as_uri()):
        command = [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
            f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=2000", "--dump-dom", address,
        ]  # fmt: skip
        dom = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
        title = html5lib.parse(dom, namespaceHTMLElements=False).findtext(".//title")
        assert title in ("Runs", "evil")
        assert "document.title" not in dom or "&lt;script&gt;" in dom
    assert "/" in asked and {*asked} <= {"/", "/favicon.ico"}
