"""The hub, played by a small server on the loopback: resolved to a commit, progress, and an error for each refusal."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
HEADER = b'{"w": {"dtype": "U8", "shape": [300000], "data_offsets": [0, 300000]}}'
FILES = {
    "config.json": b'{"model_type": "llama"}', "pytorch_model.bin": b"pickle",
    "model.safetensors": len(HEADER).to_bytes(8, "little") + HEADER + b"w" * 300_000,
    "modeling_own.py": b"print('code')", "tokenizer.json": b"{}",
}  # fmt: skip
ASK = """
import json, sys
from pathlib import Path
from ftui.engine.models.files.hub import base_folder, tokenizer_folder
from ftui.errors import FtuiError
from ftui.profile.sections.model import ModelSection
details, (name, revision, what) = [], sys.argv[1:]
try:
    if what == "tokenizer":
        folder, commit = tokenizer_folder(name, details.append), None
    else:
        section = ModelSection(name_or_path=name, revision=revision or None, trust_remote_code=what == "code")
        folder, commit = base_folder(section, Path("unused"), details.append)
    print(json.dumps({"files": sorted(p.name for p in folder.iterdir()), "commit": commit, "details": details}))
except FtuiError as error:
    print(json.dumps({"message": error.message, "hint": error.hint, "code": error.exit_code}))
"""


class Hub(BaseHTTPRequestHandler):
    """Answers as the hub does for one good, one gated and no other repository."""

    def log_message(self, format: str, *arguments: object) -> None:
        return

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        path = self.path.split("?")[0].lstrip("/")
        if path.startswith("api/models/they/gated"):
            return self.refuse(403, "GatedRepo", "Access to model they/gated is restricted")
        if path.startswith("api/models/us/good"):
            return self.api(path)
        if path.startswith(f"us/good/resolve/{COMMIT}/"):
            return self.file(FILES[path.rpartition("/")[2]], body)
        return self.refuse(404, "RepoNotFound", "Repository not found")

    def api(self, path: str) -> None:
        revision = path.partition("/revision/")[2].split("/")[0] or path.partition("/tree/")[2].split("/")[0]
        if revision not in ("", "main", "v1", COMMIT):
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if "/tree/" in path:
            listing = [{"type": "file", "path": n, "size": len(b), "oid": "0" * 40} for n, b in FILES.items()]
            return self.send(json.dumps(listing).encode(), {"Content-Type": "application/json"})
        siblings = [{"rfilename": name} for name in FILES]
        facts = {"id": "us/good", "modelId": "us/good", "sha": COMMIT, "siblings": siblings, "tags": []}
        return self.send(json.dumps(facts).encode(), {"Content-Type": "application/json"})

    def file(self, content: bytes, body: bool) -> None:
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{len(content):040x}"', "Accept-Ranges": "bytes"}
        self.send(content, headers, body=body)

    def refuse(self, status: int, code: str, message: str) -> None:
        self.send(b"{}", {"X-Error-Code": code, "X-Error-Message": message}, status=status)

    def send(self, content: bytes, headers: dict[str, str], *, body: bool = True, status: int = 200) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            self.send_header(name, value)
        self.end_headers()
        if body and self.command != "HEAD":
            self.wfile.write(content)


@dataclass
class Asker:
    """Asks for a model in a fresh process with its own hub cache."""

    endpoint: str
    home: Path
    extra: dict[str, str] = field(default_factory=dict)

    def __call__(self, name: str, revision: str = "", what: str = "model", **extra: str) -> dict[str, object]:
        env = os.environ | {"HF_ENDPOINT": self.endpoint, "HF_HOME": str(self.home), "HF_HUB_OFFLINE": "0"} | extra
        command = [sys.executable, "-c", ASK, name, revision, what]
        result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stderr
        answer: dict[str, object] = json.loads(result.stdout)
        return answer


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Asker]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Asker(f"http://127.0.0.1:{server.server_port}", tmp_path)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("revision", ["", "v1"])
def test_a_model_is_fetched_at_its_commit_without_pickles(ask: Asker, revision: str) -> None:
    answer = ask("us/good", revision)
    assert answer["commit"] == COMMIT
    assert answer["files"] == ["config.json", "model.safetensors", "tokenizer.json"]
    details = answer["details"]
    assert isinstance(details, list)
    assert any(detail.startswith("downloading us/good: ") and "KiB" in detail for detail in details)


def test_code_is_fetched_only_where_it_is_trusted(ask: Asker) -> None:
    assert "modeling_own.py" in ask("us/good", COMMIT, "code")["files"]  # type: ignore[operator]


def test_a_tokenizer_is_fetched_without_weights(ask: Asker) -> None:
    assert ask("us/good", what="tokenizer")["files"] == ["config.json", "tokenizer.json"]


def test_offline_the_cache_is_as_good(ask: Asker) -> None:
    ask("us/good")
    for change in ({"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}):
        for revision in ("", COMMIT):  # a resumed run asks for the commit
            answer = ask("us/good", revision, **change)
            assert answer.get("commit") == COMMIT, answer


@pytest.mark.parametrize(
    ("name", "revision", "words", "hint"),
    [
        ("they/gated", "", "they/gated is gated", "HF_TOKEN"),
        ("us/nothing", "", "There is no model 'us/nothing'", "Check the spelling"),
        ("us/good", "v9", "us/good has no revision 'v9'", "model.revision"),
        ("not a name", "", "There is no model 'not a name'", "Check the spelling"),
    ],
)
def test_every_refusal_has_its_own_words(ask: Asker, name: str, revision: str, words: str, hint: str) -> None:
    answer = ask(name, revision)
    assert answer["code"] == 32
    assert words in str(answer["message"])
    assert hint in str(answer["hint"])


def test_offline_without_a_cache_says_what_to_do(ask: Asker) -> None:
    for change in ({"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}):
        answer = ask("us/good", **change)
        assert answer["code"] == 32
        assert "cannot be reached" in str(answer["message"])
        assert "local folder" in str(answer["hint"])
