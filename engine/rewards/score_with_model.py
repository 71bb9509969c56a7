"""A reward model as a reward: a model of its own, beside the one that is trained, says how good an answer is.

It reads a prompt with its answer as stage `rm` reads a row: through its own tokenizer and chat template, to the end of
the text, with the token that ends one. It is never trained.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ftui.errors import DataError, ModelError, RewardError
from ftui.profile.schema import Profile
from ftui.profile.sections.model import ModelSection
from ftui.profile.sections.rewards import REWARD_MODEL, RewardsSection

from ..data.files.raw_rows import Row
from ..data.tokens import encode
from ..models.adapter_files import ADAPTER, CONFIG, adapter_fingerprint
from ..models.files.blame import blame
from ..models.files.fingerprints import weights_fingerprint
from ..models.files.hub import TOKENIZER, WANTED, check_folder, model_folder
from ..models.load_model import check_kind, eos_token_ids, has_score_head, load_model, longest_context, read_config
from ..models.lora import SCORING, BaseReference, stored_adapter
from ..models.model_parts import autocast
from ..models.special_tokens import fit_embeddings
from ..models.tokenizer import load_tokenizer
from ..objectives.reward_losses import sequence_scores
from ..system.device import Hardware
from ..system.memory import no_memory, release_cached_memory, within_memory
from ..training.collate import collate
from .reward_specs import AnswersToScore
from .score_answers import Scorer

Report = Callable[[str], None]
KEY = "rewards.reward_model_name_or_path"


@dataclass(frozen=True)
class RewardModelFiles:
    """Where a reward model is: the folder of the model, and of the adapter that makes it one, if it has one.

    `commit`: of the hub, where it came from there.
    """

    model: Path
    commit: str | None = None
    adapter: Path | None = None

    @property
    def tokenizer(self) -> Path:
        """The folder with its tokenizer: an adapter brings its own where a run has saved it."""
        brings = self.adapter is not None and (self.adapter / "tokenizer.json").is_file()
        return self.adapter if brings and self.adapter is not None else self.model

    def fingerprint(self, cache: Path, tick: Callable[[], None]) -> str:
        """A hash of what its scores depend on."""
        model = self.commit or weights_fingerprint(self.model, cache, tick)
        return model if self.adapter is None else f"{model} {adapter_fingerprint(self.adapter)}"


def find_reward_model(section: RewardsSection, report: Report, *, weights: bool = True) -> RewardModelFiles | None:
    """The files of the profile's reward model, fetched if they are on the hub; `None` where it asks none.

    Without `weights` those of a model on the hub are not fetched.

    Raises:
        ModelError: there is none, it is damaged, or it is no reward model that can be used here.
    """
    name = section.reward_model_name_or_path
    if REWARD_MODEL not in section.reward_funcs or name is None:
        return None
    patterns = WANTED if weights else TOKENIZER
    local = Path(name)
    if not local.is_absolute():
        folder, commit = model_folder(name, section.reward_model_revision, report, patterns=patterns)
        files = RewardModelFiles(folder, commit)
    elif (local / CONFIG).is_file():
        files = _with_base(local, report, patterns)
    elif (local / "config.json").is_file():
        check_folder(local, name)
        files = RewardModelFiles(local)
    else:
        raise ModelError(
            f"{local} holds no model and no adapter.", hint=f"Check {KEY}: RUN/final of a run of stage rm."
        )
    config = read_config(files.model)
    if files.adapter is None and not has_score_head(config):
        raise ModelError(
            f"{name} is no reward model ({(config.architectures or ['nothing'])[0]!s}): it has no head for a score.",
            hint=f"{KEY} is the result of a run of stage rm, or a model for sequence classification with one label.",
        )
    check_kind(config, files.model, scores=True)
    return files


def _with_base(adapter: Path, report: Report, patterns: list[str]) -> RewardModelFiles:
    """An adapter with the model that it is for, as its config names it."""
    from peft import PeftConfig

    with blame(adapter / CONFIG, "used"):
        config: Any = PeftConfig.from_pretrained(str(adapter))
    if config.task_type != SCORING or not (adapter / ADAPTER).is_file():
        raise ModelError(
            f"The adapter in {adapter} makes no reward model of its base (task_type {config.task_type}).",
            hint=f"{KEY} is the result of a run of stage rm.",
        )
    base = str(config.base_model_name_or_path or "")
    if not base:
        raise ModelError(f"{adapter / CONFIG} does not say which model the adapter is for.")
    folder, commit = model_folder(base, config.revision, report, patterns=patterns)
    return RewardModelFiles(folder, commit, adapter)


class ModelScorer:
    """Scores answers with a reward model, the longest first, in batches that are halved where memory runs out."""

    def __init__(
        self,
        files: RewardModelFiles,
        hardware: Hardware,
        batch_size: int,
        report: Report,
        warn: Callable[[str], object],
        before_batch: Callable[[], None] = lambda: None,
    ) -> None:
        """Load it, onto the device. `before_batch` is called before each pass, and may leave by an exception.

        Raises:
            ModelError: it cannot be loaded, or its score is no linear layer of the last hidden state.
        """
        report("the reward model")
        tokenizer = load_tokenizer(files.tokenizer)
        section = ModelSection(name_or_path=str(files.model))
        model: Any = load_model(files.model, section, hardware.compute_dtype, hardware=hardware, scores=True)
        fit_embeddings(model, tokenizer, range(model.get_input_embeddings().weight.shape[0], len(tokenizer)))
        if files.adapter is not None:
            model = stored_adapter(model, files.adapter, BaseReference(str(files.model), files.commit))
        self.model = model.requires_grad_(False).eval().to(hardware.device)
        stops = encode.stop_texts(tokenizer, eos_token_ids(files.model))
        self._encoder = encode.Encoder(tokenizer, "sft", stops)
        self._longest, self._batch_size = longest_context(files.model), batch_size
        self._hardware, self._warn, self._before_batch = hardware, warn, before_batch

    def __call__(self, answers: AnswersToScore) -> list[float | None]:
        """The score of each answer; `None` where it is longer, with its prompt, than the model sees.

        Raises:
            RewardError: the model's chat template takes no such conversation, or it has none.
            GpuMemoryError, HostMemoryError: not even one fits.
        """
        ids = [
            self._read(number, *one)
            for number, one in enumerate(zip(answers.prompts, answers.completions, strict=True))
        ]
        fitting = [number for number, one in enumerate(ids) if self._longest is None or len(one) <= self._longest]
        if len(fitting) < len(ids):
            self._warn(
                f"{len(ids) - len(fitting)} of {len(ids)} answers are longer than the {self._longest} tokens that the "
                "reward model sees: they go without its score"
            )
        scores: list[float | None] = [None] * len(ids)
        left = sorted(fitting, key=lambda number: (-len(ids[number]), number))
        while left:
            self._before_batch()
            chosen = left[: self._batch_size]
            values, problem = within_memory(partial(self._score, [ids[number] for number in chosen]))
            if values is None:
                release_cached_memory(self._hardware.device)
                if len(chosen) == 1:
                    where = f"an answer in the reward model ({problem})"
                    raise no_memory(self._hardware.device, where, "Lower max_completion_length.")
                self._batch_size = len(chosen) // 2
                continue
            for number, value in zip(chosen, values, strict=True):
                scores[number] = value
            left = left[len(chosen) :]
        return scores

    def _read(self, number: int, prompt: Any, completion: Any) -> np.ndarray:
        """The tokens of a prompt with its answer: texts, or lists of messages."""
        if isinstance(prompt, str):
            form, value = "prompt_completion", {"prompt": prompt, "completion": completion}
        else:
            form, value = "messages", {"messages": [*prompt, *completion]}
        prepared = self._encoder.prepare(Row(Path("answer"), number + 1, value, "row"), form)
        if isinstance(prepared, DataError):
            raise RewardError(f"The reward model cannot read answers: {prepared.message}", hint=prepared.hint)
        [encoding] = self._encoder.tokenised([prepared.turns[-1].text])
        return np.array(encoding.ids, np.int32)

    def _score(self, ids: Sequence[np.ndarray]) -> list[float]:
        sequences = [encode.Sequence(one, np.zeros(len(one), bool)) for one in ids]
        pad_id = int(self._encoder.tokenizer.pad_token_id or 0)
        batch = collate([[one] for one in sequences], pad_id, scored=True).to(self._hardware.device)
        with torch.no_grad(), autocast(self._hardware, keeps_casts=True):
            values: list[float] = sequence_scores(self.model, batch).tolist()
        return values


def load_scorers(
    profile: Profile,
    hardware: Hardware,
    report: Report,
    warn: Callable[[str], object],
    before_batch: Callable[[], None],
) -> dict[str, Scorer]:
    """By name, the rewards of a profile that a model in this process gives; `before_batch`: see `ModelScorer`.

    Raises:
        ModelError: it cannot be had.
    """
    files = find_reward_model(profile.rewards, report)
    if files is None:
        return {}
    return {REWARD_MODEL: ModelScorer(files, hardware, profile.micro_batch, report, warn, before_batch)}
