"""What a tracker gets, under the names that transformers' Trainer gives it."""

from ftui.runs.events import EvaluationDone, Step
from ftui.runs.records.signs_of_life import Telemetry
from ftui.runs.state import communication_share, own_seconds, slowest_rank

Values = dict[str, float]


def step_values(record: Step) -> Values:
    """The measured values of a step: loss in nats a token, memory in bytes. NaN where one was not finite."""
    values: dict[str, float | None] = {
        "train/loss": record.loss,
        "train/grad_norm": record.grad_norm,
        "train/learning_rate": record.learning_rate,
        "train/epoch": record.epoch,
        "train/num_tokens": record.num_tokens,
        "train/num_target_tokens": record.num_target_tokens,
        "train/tokens_per_second": record.tokens_per_second,
        "train/memory": record.memory,
    }
    if (ranks := record.ranks) is not None:
        slowest, _ = slowest_rank(ranks)
        values |= {
            "train/slowest_rank": slowest,
            "train/slowest_rank_seconds": own_seconds(ranks)[slowest],
            "train/communication_share": communication_share(ranks),
        }
    extras = {f"train/{name}": value for name, value in record.extras.items()}
    return _drop_unmeasured(extras | values, record.non_finite)


def evaluation_values(record: EvaluationDone) -> Values:
    """The loss in nats a token, the stage's other measures under TRL's names, and the duration in seconds.

    A loss that was not finite is NaN.
    """
    values: dict[str, float | None] = {"eval/loss": record.loss, "eval/runtime": record.seconds}
    extras = {f"eval/{name}": value for name, value in record.extras.items()}
    return _drop_unmeasured(extras | values, record.non_finite)


def hardware_values(record: Telemetry) -> Values:
    """Memory in bytes, utilization from 0 to 1, temperature in degrees Celsius, power in watts."""
    values: dict[str, float | None] = {
        "system/cpu_utilization": record.cpu_utilization,
        "system/memory_used": record.memory_used,
        "system/engine_memory": record.engine_memory,
    }
    for number, gpu in enumerate(record.gpus):
        values |= {
            f"system/gpu.{number}.memory_used": gpu.memory_used,
            f"system/gpu.{number}.utilization": gpu.utilization,
            f"system/gpu.{number}.temperature": gpu.temperature,
            f"system/gpu.{number}.power_watts": gpu.power_watts,
        }
    own = _drop_unmeasured(values, [])
    for other in record.others:
        own |= {
            name.replace("system/", f"system/node.{other.node}.", 1): value
            for name, value in hardware_values(other).items()
        }
    return own


def _drop_unmeasured(values: "dict[str, float | None]", non_finite: list[str]) -> Values:
    """The values that were measured; NaN for those that were not finite."""
    measured = {}
    for name, value in values.items():
        if value is not None:
            measured[name] = float(value)
        elif name.partition("/")[2] in non_finite:
            measured[name] = float("nan")
    return measured
