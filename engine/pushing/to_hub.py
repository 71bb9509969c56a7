"""To a repository of the hub: in commits of a few GiB, none for what is there already, its hashes asked afterwards."""

import functools
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import (  # type: ignore[attr-defined]  # HTTPError
    HfHubHTTPError,
    HTTPError,  # of whichever httpx the hub library uses; no OSError
    RepositoryNotFoundError,
)
from huggingface_hub.hf_api import RepoFile

from ftui.errors import PushError, UsageError
from ftui.runs.records.push_records import PushBegan
from ftui.system.redact import redact
from ftui.units import size

from .content import Content
from .present_files import find_stale

PART_BYTES = 5 << 30
PART_FILES = 50
AGAIN = "What has arrived stays: push again to go on."
LOGIN = "Set HF_TOKEN to a token that may write (https://huggingface.co/settings/tokens), or `hf auth login`."
OWN_FILE = ".gitattributes"  # the hub makes it
Report = Callable[[str], object]


def check_account(name: str, *, must_answer: bool) -> None:
    """See that there is a token, and that its account may write to the owner of `name`.

    `must_answer`: else a hub that cannot be reached for now is no fault: it may be reached by the time of the push.

    Raises:
        UsageError: it may not.
        PushError: the hub does not answer.
    """
    if get_token() is None:
        raise UsageError(f"There is no token to push to hub:{name} with.", hint=LOGIN)
    try:
        with plain_errors(name):
            account = _account(HfApi().endpoint, get_token())
    except PushError:
        if must_answer:
            raise
        return
    owner = name.partition("/")[0]
    organizations = {entry.get("name"): entry.get("roleInOrg") for entry in account.get("orgs", [])}
    if owner != account.get("name") and owner not in organizations:
        raise UsageError(f"The token is of {account.get('name')}, who cannot write to {owner} on the hub.", hint=LOGIN)
    role = account.get("auth", {}).get("accessToken", {}).get("role")
    if role == "read" or organizations.get(owner) == "read":
        raise UsageError(f"The token may read from the hub, and not write to {owner}.", hint=LOGIN)


@functools.cache
def _account(endpoint: str, token: str | None) -> dict[str, Any]:
    """Asked once: the hub bears few such questions, and a form checks its profile again and again."""
    account: dict[str, Any] = HfApi(endpoint, token).whoami()
    return account


def open_repository(
    content: Content, name: str, before: list[PushBegan], *, private: bool, overwrite: bool
) -> dict[str, str]:
    """Make the repository, or see that files may be put into the one that is there; which have to go (`find_stale`).

    Raises:
        UsageError: it has files of others, or is public.
        PushError: the hub refuses, or does not answer.
    """
    with plain_errors(name):
        api = HfApi()
        try:
            info = api.model_info(name)
        except RepositoryNotFoundError:
            api.create_repo(name, private=private)  # what is there and was not seen is somebody else's
            return {}
        if private and info.private is False:
            raise UsageError(
                f"hub:{name} is public.", hint="--public (push.private = false) pushes there all the same."
            )
        remote = list_files(api, name)
    names = [path for path in remote if path != OWN_FILE]
    return find_stale(
        content, names, lambda path: remote_hash(remote[path]), before, f"hub:{name}", overwrite=overwrite
    )


def send(content: Content, name: str, stale: Collection[str], report: Report) -> tuple[str, str]:
    """Upload what is not there, and verify all; returns the address and the commit that has it.

    `stale` is deleted in the commit that makes the content whole.

    Raises:
        PushError: the hub refuses, does not answer, or has other bytes than were sent.
    """
    with plain_errors(name):
        api = HfApi()
        report(f"asking hub:{name} what is there")
        remote = list_files(api, name)
        missing = [path for path in content.names if not is_there(content, path, remote)]
        total, sent = sum(content.files[path].size for path in missing), 0
        parts = list(cut_parts(content, missing)) or ([[]] if stale else [])
        for number, part in enumerate(parts, start=1):
            report(f"uploading to hub:{name}: {size(sent)} of {size(total)}, part {number} of {len(parts)}")
            message = f"{content.run.name}: {content.what}" + (f" (part {number})" if len(parts) > 1 else "")
            operations: list[CommitOperationAdd | CommitOperationDelete] = [_addition(content, path) for path in part]
            if number == len(parts):
                operations += [CommitOperationDelete(path) for path in stale if path in remote]
            api.create_commit(name, operations, commit_message=message)
            sent += sum(content.files[path].size for path in part)
        report(f"verifying hub:{name}")
        commit = api.model_info(name).sha
        assert commit is not None, "a repository with files has a commit"
        remote = list_files(api, name, commit)
    if wrong := [path for path in content.names if not is_there(content, path, remote)]:
        raise PushError(
            f"hub:{name} has not what was sent as {', '.join(wrong[:3])}.", hint="Push again with --overwrite."
        )
    return f"{api.endpoint}/{name}", commit


def list_files(api: HfApi, name: str, revision: str | None = None) -> dict[str, RepoFile]:
    """The files of a repository by path."""
    tree = api.list_repo_tree(name, recursive=True, revision=revision)
    return {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}


def is_there(content: Content, path: str, remote: dict[str, RepoFile]) -> bool:
    """Whether the hub has these very bytes under this name, by the hash that it keeps of them."""
    entry, found = content.files.get(path), remote.get(path)
    if entry is None or found is None or found.size != entry.size:
        return False
    return remote_hash(found) == (entry.sha256 if found.lfs is not None else content.git_hash(path))


def remote_hash(entry: RepoFile) -> str:
    """The hash by which the hub keeps a file: of a large one its SHA-256, else git's name of it."""
    return str(entry.blob_id if entry.lfs is None else entry.lfs.sha256)


def cut_parts(content: Content, names: list[str]) -> Iterator[list[str]]:
    """The files in groups, each a commit: a kill costs one of them."""
    part: list[str] = []
    for name in names:
        is_full = sum(content.files[one].size for one in [*part, name]) > PART_BYTES or len(part) == PART_FILES
        if part and is_full:
            yield part
            part = []
        part.append(name)
    if part:
        yield part


def _addition(content: Content, path: str) -> CommitOperationAdd:
    source = content.source(path)
    return CommitOperationAdd(path, source if isinstance(source, bytes) else os.fspath(source))


@contextmanager
def plain_errors(name: str) -> Iterator[None]:
    """What the hub's library raises, in words.

    Raises:
        UsageError: the token is wrong, or may not.
        PushError: anything else.
    """
    try:
        yield
    except (HTTPError, ConnectionError, TimeoutError, RuntimeError) as error:
        cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error  # of a thread of its
        if isinstance(cause, HfHubHTTPError):
            raise _refusal(name, cause) from error
        if isinstance(cause, RuntimeError):  # of the native part of the library (hf_xet), which knows no other
            raise PushError(f"The hub's library has failed: {redact(str(cause))}.", hint=AGAIN) from error
        if not isinstance(cause, HTTPError | ConnectionError | TimeoutError):
            raise
        raise PushError(
            f"The hub cannot be reached ({type(cause).__name__}).",
            hint=f"Check the connection (and HF_HUB_OFFLINE). {AGAIN}",
        ) from error


def _refusal(name: str, error: HfHubHTTPError) -> PushError | UsageError:
    status = error.response.status_code
    said = redact(error.server_message or "").strip()
    words = f" It says: {said}" if said else ""
    if status == 401:
        return UsageError(f"The hub does not take the token.{words}", hint=LOGIN)
    if status in (402, 413, 507) or any(word in said.lower() for word in ("quota", "storage limit", "storage space")):
        return PushError(f"The hub has no room for {name}.{words}", hint=f"Make room there. {AGAIN}")
    if status in (403, 404):
        return UsageError(f"The token may not write to hub:{name}.{words}", hint=LOGIN)
    if status == 409:
        return PushError(f"hub:{name} is taken or being changed.{words}", hint="Use another name, or push again.")
    if status == 429:
        return PushError(f"The hub gets too many requests.{words}", hint=f"Wait some minutes. {AGAIN}")
    return PushError(f"The hub refuses the push to {name} (HTTP {status}).{words}", hint=AGAIN)
