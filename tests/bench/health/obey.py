"""Obeys what rules suggest, in real runs: the profile of a run that raised an alarm, with the one change it was told.

    python -m tests.bench.health.obey WORKSPACE [NAME ...]

From the top of the repository. Supervised runs are those of tests/bench/health/record.py, runs that learn from rewards
those of record_rollouts.py. What is kept of each (tests/fixtures/health/obeyed/NAME.json) is what these keep;
tests/ftui/runs/health/test_obeyed.py looks at them.
"""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ftui.runs.events import Step
from ftui.runs.journal import Tail
from ftui.runs.run_folder import Run
from tests.support import real
from tests.support.tiny import make_profile, write_rows

from . import record, record_rollouts
from .record import Sections, faulty, sound
from .record_rollouts import HACKED, HEALTHY, SAID, prompt_of, rewarded

TARGET = record.TARGET / "obeyed"
LENGTH = 0.01
"""A max_grad_norm that clips every gradient of the quickstart's model to a fortieth."""


class Obeyed(NamedTuple):
    """`rule` was told of the run `before` (a name of record.py, record_rollouts.py, or of `FIRST`), `words` are what
    was suggested, and `change` is the profile that obeys them."""

    rule: str
    before: str
    words: str
    change: Callable[[Path], Sections] | Sections


FIRST: dict[str, Callable[[Path], Sections]] = {"clipped": sound(max_grad_norm=LENGTH)}
"""Runs that raise an alarm which no recorded one does."""

OBEYED = {
    "divergence": Obeyed("divergence", "rate-x30-1", "a tenth of train.learning_rate", sound(learning_rate=0.012)),
    "memorisation": Obeyed(
        "memorisation", "duplicated-1", "Train fewer epochs",
        faulty(lambda rows: rows[:24] * 2, method="full", learning_rate=1e-3, max_steps=6),
    ),
    "groups-without-spread": Obeyed(
        "groups_without_spread", "hacked-out-of-reach", "prompts that the model answers right now and then",
        rewarded("format", pattern="kernel", seed=5),
    ),
    "answers-truncated": Obeyed(
        "answers_truncated", "healthy-words", "Raise max_completion_length",
        rewarded("words", "repetition", seed=9, learning_rate=3e-4, loss_type="grpo", max_completion_length=48),
    ),
    "answers-truncated-overlong": Obeyed(
        "answers_truncated", "hacked-length-1", "the reward 'overlong'",
        rewarded("long", "overlong", seed=6, learning_rate=2e-3, max_length=24, soft_punish_cache=4),
    ),
    "entropy-gone": Obeyed(
        "entropy_gone", "hacked-at-odds", "a tenth of train.learning_rate",
        rewarded("short", "words", weights=[1.0, 0.2], seed=8, learning_rate=2e-4),
    ),
    "kl-budget": Obeyed(
        "kl_budget", "hacked-far-away", "Raise grpo.beta",
        rewarded("vowels", seed=10, learning_rate=1e-2, beta=1.0, reference_column="said"),
    ),
}  # fmt: skip


def supervise(folder: Path, sections: Callable[[Path], Sections]) -> dict[str, Any]:
    """A supervised run, and what is kept of it."""
    run = real.open_run(folder / "run", sections(folder))
    record.train(run, folder.name)
    return record.recorded(run)


def reinforce(folder: Path, sections: Sections) -> dict[str, Any]:
    """A run that learns from rewards, and what is kept of it."""
    rows = write_rows(folder / "rows.jsonl", [{"prompt": prompt_of(n), "said": SAID} for n in range(40)])
    run = Run(folder / "run")
    base = record_rollouts.make_base(folder.parent / "base")
    record_rollouts.train(run, make_profile(base, rows, **sections))
    steps = [one for one in Tail(run.metrics).read() if isinstance(one, Step)]
    return {key: [record.rounded(step.extras.get(key)) for step in steps] for key in steps[0].extras}


def main(arguments: list[str]) -> None:
    """Train and keep each run of these names, all without any, that is not kept yet."""
    workspace, *names = arguments
    assert all(one.before in record.FAULTY | HACKED | HEALTHY | FIRST for one in OBEYED.values())
    every = FIRST | {name: one.change for name, one in OBEYED.items()}
    TARGET.mkdir(parents=True, exist_ok=True)
    for name in names or every:
        target, folder = TARGET / f"{name}.json", Path(workspace) / name
        if target.exists():
            continue
        shutil.rmtree(folder, ignore_errors=True)
        sections = every[name]
        kept = supervise(folder, sections) if callable(sections) else reinforce(folder, sections)
        if name in OBEYED:
            rule, before, words, _ = OBEYED[name]
            kept["obeyed"] = {"rule": rule, "before": before, "words": words}
        target.write_text(json.dumps(kept, separators=(",", ":")) + "\n")
        print(name, "recorded", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
