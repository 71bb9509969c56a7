"""Rollouts on disk: `rollouts/NNNNNN.safetensors` (ids, log-probabilities, advantages) and `NNNNNN.jsonl` (texts).

The tensors come last, and name the hash of the texts: their own hash, which the journal has before a rollout is used,
stands for both files. A rollout that is there was written whole; a resume reads it and generates nothing again. Before
it is scored it is `NNNNNN.answers.safetensors` (and `.jsonl`), so that a crash while it is scored costs the scoring
alone; these go once the journal has the scored one.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ftui.errors import DataError
from ftui.rollouts.kept_rollouts import LONGEST_ROLLOUT
from ftui.rollouts.rollout_lines import AnswerLine, GroupLine, rollout_name
from ftui.system.files import make_private_folder, read_plain, replace_file

from ..rewards.reward_table import RewardTable
from .rollout import Rollout

FORM = 1
_OF_TOKENS = "tokens."


class _Facts(msgspec.Struct, frozen=True):
    """What the tensors' file says beside them."""

    form: int
    number: int
    step: int
    seed: int
    group_size: int
    texts: str
    names: list[str] = []
    figures: dict[str, float | None] = {}
    kl_coef: float | None = None
    scores: list[float] = []
    prompts_drawn: int | None = None
    num_left_out: int = 0


def write_rollout(folder: Path, number: int, rollout: Rollout) -> str:
    """Write a rollout, scored or not, to the disk; one of the same number is replaced. Returns its hash (SHA-256, hex).

    The same rollout gives the same bytes. `folder` is that of the rollouts of a run.

    Raises:
        OSError: the volume does not take it; nothing that could be taken for a rollout is left.
    """
    make_private_folder(folder, inside=folder.parent)
    data, texts = encode_rollout(number, rollout)
    path = _path(folder, number, is_scored=rollout.rewards is not None)
    replace_file(path.with_suffix(".jsonl"), texts, durable=True)
    replace_file(path, data, durable=True)
    return hashlib.sha256(data).hexdigest()


def encode_rollout(number: int, rollout: Rollout) -> tuple[bytes, bytes]:
    """The two files of a rollout, the tensors first."""
    texts = b"".join(msgspec.json.encode(line) + b"\n" for line in _lines(rollout))
    return _tensors_file(rollout, number, hashlib.sha256(texts).hexdigest()), texts


def decode_rollout(data: bytes, texts: bytes) -> Rollout:
    """The rollout in its two files.

    Raises:
        ValueError, SafetensorError, MsgspecError: they are no such files.
    """
    facts, tensors = _parse(data)
    if hashlib.sha256(texts).hexdigest() != facts.texts:
        raise ValueError(f"{rollout_name(facts.number)}.jsonl is not what was written with it")
    return _rollout(facts, tensors, [msgspec.json.decode(line, type=GroupLine) for line in texts.splitlines()])


def remove_answers(folder: Path, number: int) -> None:
    """Remove the files of a rollout from before it was scored: it is, and its record is on the disk."""
    answers = _path(folder, number, is_scored=False)
    answers.unlink(missing_ok=True)
    answers.with_suffix(".jsonl").unlink(missing_ok=True)


def read_rollout(folder: Path, number: int, expected_hash: str, *, is_scored: bool = True) -> Rollout:
    """Read a rollout back, as it was written. `is_scored`: or as it was before it was scored.

    Raises:
        DataError: it is missing, or is not what was written.
    """
    path = _path(folder, number, is_scored=is_scored)
    try:
        data = read_plain(path, LONGEST_ROLLOUT)
        if hashlib.sha256(data).hexdigest() != expected_hash:
            raise DataError(f"{path} is not the rollout that was written: its hash differs.", hint=_GO_BACK)
        return decode_rollout(data, read_plain(path.with_suffix(".jsonl"), LONGEST_ROLLOUT))
    except (OSError, SafetensorError, msgspec.MsgspecError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}.", hint=_GO_BACK) from error


_GO_BACK = "Resume from a checkpoint before it: ftui resume RUN --from STEP"


def _path(folder: Path, number: int, *, is_scored: bool) -> Path:
    return folder / f"{rollout_name(number)}{'' if is_scored else '.answers'}.safetensors"


def _lines(rollout: Rollout) -> list[GroupLine]:
    """The texts of a rollout, and what a reader without numpy shows of it."""
    return [_line(rollout, group) for group in range(len(rollout.prompts))]


def _line(rollout: Rollout, group: int) -> GroupLine:
    answers = range(group * rollout.group_size, (group + 1) * rollout.group_size)
    return GroupLine(
        row=int(rollout.rows[group]),
        prompt=rollout.prompts[group],
        answers=[_answer(rollout, number) for number in answers],
    )


def _answer(rollout: Rollout, number: int) -> AnswerLine:
    rewards, advantages = rollout.rewards, rollout.advantages
    return AnswerLine(
        completion=rollout.completions[number],
        num_tokens=len(rollout.completion_ids[number]),
        is_complete=bool(rollout.is_complete[number]),
        rewards={} if rewards is None else {
            name: _known(value) for name, value in zip(rewards.names, rewards.values[number], strict=True)
        },
        reward=None if rewards is None else _known(rewards.totals[number]),
        advantage=None if advantages is None else float(advantages[number]),
    )  # fmt: skip


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _tensors_file(rollout: Rollout, number: int, texts: str) -> bytes:
    tensors: dict[str, np.ndarray] = {
        "rows": np.asarray(rollout.rows, np.int64),
        "is_complete": np.asarray(rollout.is_complete, np.uint8),
        **_ragged("prompt", rollout.prompt_ids, np.int32),
        **_ragged("completion", rollout.completion_ids, np.int32),
        "log_probs": _flat(rollout.log_probs, np.float32),
    }
    names: list[str] = []
    if rollout.rewards is not None:
        names = rollout.rewards.names
        tensors |= {"rewards": np.ascontiguousarray(rollout.rewards.values), "weights": rollout.rewards.weights}
    if rollout.advantages is not None:
        tensors["advantages"] = np.asarray(rollout.advantages, np.float32)
    tensors |= {f"{_OF_TOKENS}{name}": _flat(of_each, np.float32) for name, of_each in rollout.tokens.items()}
    facts = _Facts(
        FORM, number, rollout.step, rollout.seed, rollout.group_size, texts, names, dict(rollout.figures),
        rollout.kl_coef, list(rollout.scores), rollout.prompts_drawn, rollout.num_left_out,
    )  # fmt: skip
    return bytes(save(tensors, metadata={"rollout": msgspec.json.encode(facts).decode()}))


def _flat(arrays: Sequence[np.ndarray], kind: Any) -> np.ndarray:
    return np.concatenate([np.zeros(0, kind), *arrays]).astype(kind)


def _ragged(name: str, arrays: Sequence[np.ndarray], kind: Any) -> dict[str, np.ndarray]:
    return {
        f"{name}_ids": _flat(arrays, kind),
        f"{name}_lengths": np.array([len(one) for one in arrays], np.int32),
    }


def _parse(data: bytes) -> tuple[_Facts, dict[str, np.ndarray]]:
    """The facts and the tensors of a file whose hash is right."""
    size = int.from_bytes(data[:8], "little")
    facts = msgspec.json.decode(json.loads(data[8 : 8 + size])["__metadata__"]["rollout"], type=_Facts)
    if facts.form != FORM:
        raise ValueError(f"it is of form {facts.form}, which this version of ftui does not know")
    return facts, load(data)


def _rollout(facts: _Facts, tensors: dict[str, np.ndarray], groups: Sequence[GroupLine]) -> Rollout:
    lengths = tensors["completion_lengths"]
    rewards = tensors.get("rewards")
    return Rollout(
        step=facts.step,
        seed=facts.seed,
        group_size=facts.group_size,
        rows=tensors["rows"],
        prompt_ids=_cut(tensors["prompt_ids"], tensors["prompt_lengths"]),
        completion_ids=_cut(tensors["completion_ids"], lengths),
        log_probs=_cut(tensors["log_probs"], lengths),
        is_complete=tensors["is_complete"].astype(bool),
        prompts=[group.prompt for group in groups],
        completions=[answer.completion for group in groups for answer in group.answers],
        rewards=None if rewards is None else RewardTable(facts.names, rewards, tensors["weights"]),
        advantages=tensors.get("advantages"),
        tokens={
            name.removeprefix(_OF_TOKENS): _cut(flat, lengths)
            for name, flat in sorted(tensors.items())
            if name.startswith(_OF_TOKENS)
        },
        figures=facts.figures,
        kl_coef=facts.kl_coef,
        scores=facts.scores,
        prompts_drawn=facts.prompts_drawn,
        num_left_out=facts.num_left_out,
    )


def _cut(flat: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
    return np.split(flat, np.cumsum(lengths)[:-1]) if len(lengths) else []
