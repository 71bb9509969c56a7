"""The rewards of a run, as its profile has them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ftui.errors import RewardError
from ftui.profile.consent import read_allowed_code
from ftui.profile.sections.rewards import CODE_MARK, READY_OPTIONS, REWARD_MODEL, RewardsSection
from ftui.runs.run_folder import Run
from ftui.system.input_files import read_input

from .reward_specs import RewardSpec
from .score_answers import Rewards, Scorer, open_rewards

_ARGUMENTS = {"soft_punish_cache": "cache", "schema_file": "schema"}


@contextmanager
def open_run_rewards(
    run: Run,
    section: RewardsSection,
    warn: Callable[[str], object],
    scorers: Mapping[str, Scorer],
    while_waiting: Callable[[], None] = lambda: None,
    read_code: Callable[[str], str] | None = None,
) -> Iterator[Rewards]:
    """What scores the answers of a run, for as long as a block takes. `scorers`: see `load_scorers`; `while_waiting`:
    see `open_rewards`. `read_code`: see `reward_specs`; by default it asks whether the run may execute it.

    Raises:
        RewardError: a function cannot be loaded, or nobody has consented to its file.
    """
    specs = reward_specs(section, read_code or (lambda path: read_allowed_code(path, run.read_facts().run_id)))
    memory = 0 if section.memory_gib is None else int(section.memory_gib * (1 << 30))
    with open_rewards(
        specs, log=run.rewards_log, warn=warn, scorers=scorers, seconds=section.timeout_seconds, memory=memory,
        while_waiting=while_waiting,
    ) as rewards:  # fmt: skip
        yield rewards


def reward_specs(section: RewardsSection, read_code: Callable[[str], str]) -> list[RewardSpec]:
    """The rewards of a profile. `read_code` gives the text of a file that may run.

    Raises:
        RewardError: the schema cannot be read.
    """
    weights = section.reward_weights or (1.0,) * len(section.reward_funcs)
    codes = {path: read_code(path) for path in section.code_files}
    return [
        RewardSpec(
            name, function, weight, _options(section, function),
            codes[function.rpartition(CODE_MARK)[0] + ".py"] if CODE_MARK in function else None,
        )
        for name, function, weight in zip(section.names, section.reward_funcs, weights, strict=True)
    ]  # fmt: skip


def _options(section: RewardsSection, function: str) -> dict[str, Any]:
    """Arguments of a ready reward: those that are set."""
    keys = () if function == REWARD_MODEL else READY_OPTIONS.get(function, ())  # a model is loaded here
    given = {_ARGUMENTS.get(key, key): value for key in keys if (value := getattr(section, key)) is not None}
    if "schema" in given:
        try:
            given["schema"] = read_input(Path(given["schema"])).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise RewardError(f"{given['schema']} cannot be read: {error}.") from error
    return given
