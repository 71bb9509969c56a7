"""The hub's side of an upload on the loopback: accounts, repositories, git-lfs, commits; all in memory."""

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_" + "loopback" * 4


@dataclass
class Repository:
    private: bool
    files: dict[str, bytes] = field(default_factory=dict)
    num_commits: int = 0

    @property
    def sha(self) -> str:
        return f"{self.num_commits:040x}"


@dataclass
class LoopbackHub:
    """What the server has and has been asked. `on_request(number, done)` is called before and after each request acts.

    `refuse`: what a method and the beginning of a path are answered with. `damage`: names that are stored otherwise.
    """

    endpoint: str = ""
    role: str = "write"
    repositories: dict[str, Repository] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    uploads: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    refuse: dict[str, tuple[int, str]] = field(default_factory=dict)
    damage: set[str] = field(default_factory=set)
    on_request: Callable[[int, bool], None] = lambda number, done: None


@contextmanager
def loopback_hub() -> Iterator[LoopbackHub]:
    hub = LoopbackHub()

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield hub
    server.shutdown()
    thread.join()
    server.server_close()


def is_large(path: str) -> bool:
    return path.endswith((".safetensors", ".gguf", ".bin"))


class _Handler(BaseHTTPRequestHandler):
    hub: LoopbackHub

    def log_message(self, format: str, *arguments: object) -> None:
        return

    def do_GET(self) -> None:
        self.take()

    def do_POST(self) -> None:
        self.take()

    def do_PUT(self) -> None:
        self.take()

    def take(self) -> None:
        hub, path = self.hub, self.path.split("?")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)) if self.command != "GET" else b""
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b"".join(iter(self.chunk, b""))
        line = f"{self.command} {path}"
        hub.requests.append(line)
        number = len(hub.requests)
        hub.on_request(number, False)
        status, answer = next((refusal for start, refusal in hub.refuse.items() if line.startswith(start)), (0, ""))
        if status:
            return self.send(status, {"error": answer})
        if self.headers.get("Authorization") != f"Bearer {TOKEN}" and not path.startswith("/lfs/"):
            return self.send(401, {"error": "Invalid credentials"})
        answered = self.answer(path, body)
        hub.on_request(number, True)
        return self.send(*answered)

    def chunk(self) -> bytes:
        data = self.rfile.read(int(self.rfile.readline(), 16))
        self.rfile.readline()
        return data

    def answer(self, path: str, body: bytes) -> tuple[int, Any]:
        hub = self.hub
        match path.strip("/").split("/"):
            case ["api", "whoami-v2"]:
                return 200, {
                    "type": "user", "name": "me", "orgs": [{"name": "us", "roleInOrg": "write"}],
                    "auth": {"accessToken": {"role": hub.role}},
                }  # fmt: skip
            case ["api", "validate-yaml"]:
                return 200, {"errors": [], "warnings": []}
            case ["api", "repos", "create"]:
                wanted = json.loads(body)
                name = f"{wanted['organization']}/{wanted['name']}"
                hub.repositories.setdefault(name, Repository(wanted.get("visibility") == "private"))
                hub.repositories[name].files.setdefault(".gitattributes", b"*.safetensors filter=lfs\n")
                return 200, {"url": f"{hub.endpoint}/{name}", "name": name}
            case ["api", "models", owner, name, *rest]:
                return self.repository(hub.repositories.get(f"{owner}/{name}"), f"{owner}/{name}", rest, body)
            case [owner, name, "info", "lfs", "objects", "batch"]:
                objects = [self.lfs_action(wanted) for wanted in json.loads(body)["objects"]]
                return 200, {"transfer": "basic", "objects": objects}
            case ["lfs", digest]:
                hub.objects[digest] = body
                hub.uploads.append(digest)
                return 200, {}
        return 404, {"error": f"no such place: {path}"}

    def lfs_action(self, wanted: dict[str, Any]) -> dict[str, Any]:
        if wanted["oid"] in self.hub.objects:
            return wanted
        return wanted | {"actions": {"upload": {"href": f"{self.hub.endpoint}/lfs/{wanted['oid']}"}}}

    def repository(self, held: Repository | None, name: str, rest: list[str], body: bytes) -> tuple[int, Any]:
        if held is None:
            return 404, {"error": "Repository not found"}
        match rest:
            case [] | ["revision", _]:
                facts = {"id": name, "modelId": name, "sha": held.sha, "private": held.private, "tags": []}
                return 200, facts | {"siblings": [{"rfilename": path} for path in held.files]}
            case ["tree", _]:
                return 200, [_entry(path, data) for path, data in held.files.items()]
            case ["preupload", _]:
                files = [
                    {"path": file["path"], "uploadMode": "lfs" if is_large(file["path"]) else "regular",
                     "shouldIgnore": False}
                    for file in json.loads(body)["files"]
                ]  # fmt: skip
                return 200, {"files": files}
            case ["commit", _]:
                return self.commit(held, name, [json.loads(line) for line in body.splitlines()])
        return 404, {"error": "no such place"}

    def commit(self, held: Repository, name: str, lines: list[dict[str, Any]]) -> tuple[int, Any]:
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                data = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                data = self.hub.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                del held.files[value["path"]]
                continue
            else:
                continue
            held.files[value["path"]] = data[:-1] + b"?" if value["path"] in self.hub.damage else data
        held.num_commits += 1
        url = f"{self.hub.endpoint}/{name}/commit/{held.sha}"
        return 200, {"commitUrl": url, "commitOid": held.sha, "success": True}

    def send(self, status: int, answer: Any) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if status == 404 and self.path.startswith("/api/models/"):
            self.send_header("X-Error-Code", "RepoNotFound")
        if status >= 400:
            self.send_header("X-Error-Message", answer["error"])
        self.end_headers()
        self.wfile.write(content)


def _entry(path: str, data: bytes) -> dict[str, Any]:
    oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": oid}
    if is_large(path):
        entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return entry
