"""What is at a target already: files of this run's pushes, which may go, and those of others, which never do."""

from collections import defaultdict
from collections.abc import Callable, Iterable

from ftui.errors import UsageError
from ftui.runs.records.push_records import PushBegan

from .content import Content

_LOADED = (".safetensors", ".bin", ".json", ".jinja", ".model", ".py", "vocab.txt", "merges.txt")
"""Endings of what transformers and PEFT look for by name in a folder: an `adapter_config.json` beside a whole model
would put an old adapter on it, a `model.safetensors` beside new shards would be taken instead of them."""
_WEIGHTS = ".safetensors"


def find_stale(
    content: Content, names: Iterable[str], hash_of: Callable[[str], str], before: list[PushBegan], place: str,
    *, overwrite: bool,
) -> dict[str, str]:  # fmt: skip
    """The files of this run at `place` that a loader would mix with those of `content`, with their hashes.

    A GGUF file is loaded by its name alone: it may stand beside anything.

    Args:
        names: of all files there, links too.
        hash_of: a hash of one of them; "" if it is no plain file.
        before: the pushes of this run to this place.
        overwrite: whether files of others may be replaced by those of the same names.

    Raises:
        UsageError: files of others are there.
    """
    ours: defaultdict[str, set[str]] = defaultdict(set)
    for push in before:
        for name, hashes in push.files.items():
            ours[name].update(hashes)
    for name in content.files:
        ours[name].update(content.hashes(name))
    present = {name: hash_of(name) if name in ours else "" for name in sorted(names)}
    foreign = [name for name, digest in present.items() if digest not in ours[name]]
    is_model = any(name.endswith(_WEIGHTS) for name in content.files)
    mixed = {name: digest for name, digest in present.items() if name not in content.files and _is_loaded(name)}
    if is_model and (others := [name for name in foreign if name in mixed]):
        raise UsageError(
            f"{place} has files of others that would be loaded with {content.what}: {_shorten(others)}.",
            hint="Choose another target. ftui deletes nothing that this run has not pushed.",
        )
    if before:  # it is the right place
        foreign = [name for name in foreign if name in content.files]
    if foreign and not overwrite:
        raise UsageError(
            f"{place} has files that {content.run.name} has not pushed: {_shorten(foreign)}.",
            hint="--overwrite (push.overwrite = true) replaces those of the same names and leaves the others.",
        )
    return mixed if is_model else {}


def _is_loaded(name: str) -> bool:
    return "/" not in name and name.endswith(_LOADED)


def _shorten(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
