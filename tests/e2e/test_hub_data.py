"""Data sets on the hub, played by a small server on the loopback: splits, subsets, one commit, a cache, refusals."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

COMMIT, OLDER = "0123456789abcdef0123456789abcdef01234567", "fedcba9876543210fedcba9876543210fedcba98"


def lines(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


CARD = b"""---
configs:
- config_name: short
  data_files:
  - {split: train, path: short/train.jsonl}
- config_name: long
  data_files:
  - {split: train, path: long/train.jsonl}
---
"""
FILES: dict[str, dict[str, bytes]] = {
    "us/rows": {
        "train.jsonl": lines(*({"question": f"why {i}?", "answer": "so"} for i in range(1200))),
        "test.jsonl": lines({"question": "who?", "answer": "me"}),
    },
    "us/coded": {"train.jsonl": lines({"text": "a"}), "coded.py": b"raise SystemExit('foreign code')"},
    "us/subsets": {
        "README.md": CARD,
        "short/train.jsonl": lines({"text": "a"}),
        "long/train.jsonl": lines({"text": "b"}, {"text": "c"}),
    },
    "us/splits": {"validation.jsonl": lines({"text": "a"}), "test.jsonl": lines({"text": "b"})},
}
ASK = """
import json, sys
from ftui.engine.data.files.hub_dataset import fetch_dataset
from ftui.engine.data.files.blocks import parse_block, read_blocks
from ftui.errors import FtuiError
answers = []
for name, subset, split, revision in json.loads(sys.argv[1]):
    try:
        rows = fetch_dataset(name, subset, split, revision)
        found = [row for block in read_blocks([rows]) for row in parse_block(block)]
        answer = {"split": rows.split, "commit": rows.commit, "first": found[0].value, "num_rows": len(found)}
        answers.append(answer | {"place": found[-1].error("bad").message})
    except FtuiError as error:
        answers.append({"message": error.message, "hint": error.hint, "code": error.exit_code})
print(json.dumps(answers))
"""
Question = tuple[str, str | None, str | None, str | None]  # name, subset, split, revision


class Hub(BaseHTTPRequestHandler):
    """Answers as the hub does for the data sets above, a gated one, and no other."""

    def log_message(self, format: str, *arguments: object) -> None:
        return

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.answer(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, body: bytes = b"") -> None:
        path = self.path.split("?")[0].lstrip("/")
        if "they/gated" in path:
            return self.refuse(403, "GatedRepo", "Access to dataset they/gated is restricted")
        for name, files in FILES.items():
            if path.startswith(f"api/datasets/{name}"):
                return self.api(path.removeprefix(f"api/datasets/{name}").strip("/"), files, name, body)
            if path.startswith(f"datasets/{name}/resolve/"):
                revision, _, file = path.removeprefix(f"datasets/{name}/resolve/").partition("/")
                return self.file(revision, file, files)
        return self.refuse(404, "RepoNotFound", "Repository not found")

    def api(self, what: str, files: dict[str, bytes], name: str, body: bytes) -> None:
        kind, _, rest = what.partition("/")
        revision, _, inside = rest.partition("/")
        if revision not in ("", "main", "v1", COMMIT):
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if kind == "tree":
            inner = [n for n in files if n.startswith(inside)]
            return self.send_json([self.entry(n, files) for n in inner])
        if kind == "paths-info":
            wanted = json.loads(body)["paths"]
            folders = [
                {"type": "directory", "path": p, "oid": "0" * 40}
                for p in wanted
                if any(n.startswith(p + "/") for n in files)
            ]
            return self.send_json([self.entry(n, files) for n in wanted if n in files] + folders)
        siblings = [{"rfilename": n} for n in files]
        return self.send_json({"id": name, "sha": COMMIT, "siblings": siblings, "tags": [], "private": False})

    def entry(self, name: str, files: dict[str, bytes]) -> dict[str, object]:
        return {"type": "file", "path": name, "size": len(files[name]), "oid": "0" * 40}

    def file(self, revision: str, name: str, files: dict[str, bytes]) -> None:
        if revision not in ("main", "v1", COMMIT):
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if name not in files:
            return self.refuse(404, "EntryNotFound", "Entry not found")
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{len(files[name]):040x}"', "Accept-Ranges": "bytes"}
        self.send(files[name], headers)

    def refuse(self, status: int, code: str, message: str) -> None:
        self.send(b"{}", {"X-Error-Code": code, "X-Error-Message": message}, status=status)

    def send_json(self, value: object) -> None:
        self.send(json.dumps(value).encode(), {"Content-Type": "application/json"})

    def send(self, content: bytes, headers: dict[str, str], *, status: int = 200) -> None:
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def ask(
    questions: list[Question], endpoint: str, home: Path, *, script: str = ASK, **extra: str
) -> dict[Question, dict[str, Any]]:
    """All questions in one fresh process (it takes seconds to load), with a cache of its own."""
    env = os.environ | {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_OFFLINE": "0"} | extra
    command = [sys.executable, "-c", script, json.dumps(questions)]
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return dict(zip(questions, json.loads(result.stdout), strict=True))


FIRST = {"question": "why 0?", "answer": "so"}
FETCHED: dict[Question, dict[str, Any]] = {
    ("us/rows", None, None, None): {
        "split": "train", "commit": COMMIT, "first": FIRST, "num_rows": 1200,
        "place": "us/rows (train), row 1200: bad.",
    },
    ("us/rows", None, "test", "v1"): {
        "split": "test", "commit": COMMIT, "first": {"question": "who?", "answer": "me"}, "num_rows": 1,
        "place": "us/rows (test), row 1: bad.",
    },
    ("us/subsets", "long", None, COMMIT): {
        "split": "train", "commit": COMMIT, "first": {"text": "b"}, "num_rows": 2,
        "place": "us/subsets (train), row 2: bad.",
    },
}  # fmt: skip
REFUSED: dict[Question, tuple[str, str]] = {
    ("us/rows", None, "dev", None): ("us/rows has no split 'dev': there are train, test.", "Set split"),
    ("us/splits", None, None, None): ("us/splits has several splits: there are validation, test.", "Set split"),
    ("us/subsets", None, None, None): ("us/subsets has several subsets: ", "Set subset"),
    ("us/subsets", "middle", None, None): ("us/subsets has no subset 'middle': ", "Set subset"),
    ("us/rows", None, None, "v9"): ("us/rows has no revision 'v9'.", "Check revision"),
    ("they/gated", None, None, None): ("they/gated is gated", "HF_TOKEN"),
    ("us/nothing", None, None, None): ("There is no data set 'us/nothing'", "Check the spelling"),
    ("us/coded", None, None, None): ("us/coded cannot be read: Dataset scripts are no longer supported", ""),
}


def test_data_sets_come_from_one_commit_and_refusals_have_their_own_words(endpoint: str, home: Path) -> None:
    answers = ask([*FETCHED, *REFUSED], endpoint, home)
    for question, expected in FETCHED.items():
        assert answers[question] == expected
    for question, (words, hint) in REFUSED.items():
        assert answers[question].get("code") == 31, answers[question]
        assert answers[question]["message"].startswith(words)
        assert hint in answers[question]["hint"]
    choices = answers["us/subsets", None, None, None]["message"]
    assert "short" in choices and "long" in choices


@pytest.mark.parametrize("change", [{"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}])
def test_without_the_hub_the_cache_is_as_good(endpoint: str, home: Path, change: dict[str, str]) -> None:
    other: Question = ("us/rows", None, None, OLDER)
    absent: Question = ("us/nothing", None, None, None)
    answers = ask([*FETCHED, other, absent], endpoint, home, **change)
    for question, expected in FETCHED.items():
        assert answers[question] == expected
    assert answers[other]["message"].startswith(f"us/rows is in the local cache at {COMMIT[:12]}, not at {OLDER[:12]}")
    assert answers[absent]["message"].startswith("us/nothing is no file beside the profile, the hub cannot be reached")
    assert answers[other]["code"] == answers[absent]["code"] == 31


AWAY = """
from ftui.engine.data.files import hub_dataset
commit, asked = hub_dataset._find_commit, []
def late(name, revision):
    asked.append(name)
    return commit(name, revision) if len(asked) > 1 else None
hub_dataset._find_commit = late
"""


def test_a_hub_that_is_back_is_asked_again(endpoint: str, tmp_path: Path) -> None:
    """By a process that lives on, as the screens' helper does."""
    first, again = list(FETCHED)[:2]
    answers = ask([first, again], endpoint, tmp_path, script=AWAY + ASK)
    assert answers[first]["message"].startswith("us/rows is no file beside the profile, the hub cannot be reached")
    assert answers[again] == FETCHED[again]
