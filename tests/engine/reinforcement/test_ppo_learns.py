"""PPO improves the score of a reward model near the model it began as; what it was measured to, in tests/bench."""

from pathlib import Path

import pytest

from tests.bench.health.record_rollouts import make_base
from tests.bench.ppo_learning import SEEDS, learn, make_reward_model

SHORT, LEAST_GAIN, MOST_NATS, LEAST_WANTED = 60, 0.25, 8.0, 0.08
"""Steps; standard deviations of the first scores; nats an answer, twice what it is steered to; of the words, how many
more are wanted ones. The bench came to 0.8 to 1.2, 3.3 to 4.3 and 0.30 to 0.39 in 120 steps; five seeds in these 60 to
0.5 to 1.0, 3.1 to 5.6 and 0.20 to 0.32."""


@pytest.mark.slow
def test_a_reward_models_score_rises_near_the_start(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """One seed and half of the bench's steps; with --trials all of it."""
    whole = bool(request.config.getoption("--trials"))
    base = make_base(tmp_path / "base")
    reward_model = make_reward_model(tmp_path, base, 120 if whole else 60)
    for seed in SEEDS if whole else SEEDS[:1]:
        found = learn(tmp_path, base, reward_model, seed, 120 if whole else SHORT)
        assert found.gain > LEAST_GAIN and 0 < found.kl < MOST_NATS, found
        assert found.last_wanted > found.first_wanted + LEAST_WANTED, found
