"""A step's profile as lines of at most 80 columns: what each kind of work took, and the least that it could take."""

from collections.abc import Mapping

from ftui import units
from ftui.estimate.estimate_text import wrapped
from ftui.estimate.step.step_profile import KINDS, PHASES, Kind, RolloutTime, StepProfile
from ftui.text import cut

TITLES: dict[Kind, str] = {
    "products": "matrix products", "attention": "attention", "norms": "norms, softmax, sums",
    "elementwise": "element-wise", "copies": "copies, casts", "dequantise": "dequantising", "optimizer": "optimizer",
    "collectives": "collectives", "data": "waiting for rows", "between": "Python between", "other": "other",
}  # fmt: skip
ON_GPU: dict[Kind, str] = {"between": "GPU idle"}
PHASE_TITLES = {
    "generating": "generating", "scoring": "scoring", "log_probs": "log-probabilities, values", "update": "update",
}  # fmt: skip
COLUMNS, MOST_OPERATIONS = 80, 10
QUIET = 0.9
"""Share of the time for which this process has a core, below which others disturb the measurement."""
HEADER = ("", "forward", "backward", "update", "ms", "share", "floor", "ratio", "gain")
WIDTHS = (20, 8, 9, 7, 8, 7, 7, 6, 7)


def profile_lines(name: str, step: StepProfile, floors: Mapping[Kind, float], operations: float | None) -> list[str]:
    """All of a step's profile.

    Args:
        floors: the least seconds of the kinds for which that is known; empty where the model is not known.
        operations: what a step needs of the model, `None` where that is not known.
    """
    return [
        *_head(name, step, operations),
        "",
        *(_rollout_table(step, step.rollout) if step.rollout else ()),
        *_table(step, floors),
        "",
        "The longest besides matrix products:",
        *_longest(step),
    ]


def _head(name: str, step: StepProfile, operations: float | None) -> list[str]:
    threads = f", {step.num_threads} thread{'s' * (step.num_threads != 1)}" if not step.is_gpu else ""
    facts = [
        f"{step.num_rows:,.0f} rows, {step.num_tokens:,.0f} tokens ({step.num_targets:,.0f} trained, "
        f"{step.num_computed:,.0f} computed), {step.padding:.0%} padding; micro-batches: {step.num_micro_batches:.0f}",
        f"{step.step_seconds:.3g} s, {units.count(step.num_tokens / step.step_seconds)} tokens/s; under the profiler, "
        f"as below, {step.profiled_seconds:.3g} s",
        f"this machine: products {_per_second(step.product_rate, 'FLOP')}, copies {_per_second(step.bandwidth, 'B')}",
    ]
    if operations is not None:
        reached = operations / step.step_seconds
        facts.append(f"what the model needs: {_per_second(reached, 'FLOP')}, {_used(step, reached)}")
    if step.cpu_share is not None and step.cpu_share < QUIET:
        facts.append(f"NOT QUIET: this process had a core for {step.cpu_share:.0%} of the time; trust shares, not ms")
    first = wrapped(f"{name}: a mean step of {step.num_steps} on {step.device}{threads}, {step.precision}", COLUMNS)
    return [*first, *(f"  {line}" for fact in facts for line in wrapped(fact, COLUMNS - 2))]


def _rollout_table(step: StepProfile, rollout: RolloutTime) -> list[str]:
    """A step with its part of a rollout: what the phases take, and their share."""
    parts = {name: seconds / rollout.num_steps for name, seconds in rollout.seconds.items()}
    parts["update"] = step.step_seconds
    total = sum(parts.values())
    speed = f"{units.count(rollout.num_tokens / rollout.seconds['generating'])} tokens/s"
    each = "a step" if rollout.num_steps == 1 else f"{rollout.num_steps} steps"
    return [
        f"With its part of a rollout ({rollout.num_answers:,} answers of {rollout.num_tokens:,} tokens, {each} on it):",
        *(_phase_line(name, seconds, total, speed if name == "generating" else "") for name, seconds in parts.items()),
        f"  {'all':<28}{total:>9.3g} s",
        "",
        "The update:",
    ]


def _phase_line(name: str, seconds: float, total: float, more: str) -> str:
    return f"  {PHASE_TITLES[name]:<28}{seconds:>9.3g} s{seconds / total:>7.1%}{more:>20}".rstrip()


def _used(step: StepProfile, reached: float) -> str:
    of_here = f"{reached / step.product_rate:.0%} of these products"
    return of_here if step.peak_rate is None else f"MFU {reached / step.peak_rate:.0%}, {of_here}"


def _per_second(rate: float, unit: str) -> str:
    prefix, divisor = ("T", 1e12) if rate >= 1e12 else ("G", 1e9)
    return f"{rate / divisor:,.3g} {prefix}{unit}/s"


def _table(step: StepProfile, floors: Mapping[Kind, float]) -> list[str]:
    titles = TITLES | ON_GPU if step.is_gpu else TITLES
    rows: list[tuple[str, ...]] = [HEADER]
    for kind in sorted(KINDS, key=lambda kind: -step.seconds(kind)):
        if step.seconds(kind):
            rows.append((titles[kind], *_cells(step, kind, floors.get(kind))))
    known = sum(floors.values()) if floors else None
    rows.append(("all", *_cells(step, None, known)))
    lines = ["".join([row[0].ljust(WIDTHS[0]), *map(str.rjust, row[1:], WIDTHS[1:])]).rstrip() for row in rows]
    shares = ", ".join(f"{phase} {step.seconds(None, phase) / step.profiled_seconds:.0%}" for phase in PHASES)
    return [*lines, f"{shares} (all else that a step does)"]


def _cells(step: StepProfile, kind: Kind | None, floor: float | None) -> tuple[str, ...]:
    """Three phases, the sum, its share of the step; the floor, the sum over it, and what could be gained at most."""
    own, total = step.seconds(kind), step.profiled_seconds
    phases = (_milliseconds(step.seconds(kind, phase), total) for phase in PHASES if phase != "rest")
    least: tuple[str, ...] = ()
    if floor is not None:
        ratio = f"{own / floor:.1f}" if floor else ""
        least = _milliseconds(floor, total), ratio, f"{max(0.0, own - floor) / total:.1%}"
    return *phases, _milliseconds(own, total), f"{own / total:.1%}", *least


def _milliseconds(seconds: float, total: float) -> str:
    """With a decimal where the whole step is short."""
    return f"{seconds * 1e3:.{1 if total < 1 else 0}f}" if seconds else "-"


def _longest(step: StepProfile) -> list[str]:
    """The operations that take longest, what each is, and how often it is called in a step."""
    others = sorted((op for op in step.operations if op.kind != "products"), key=lambda op: -op.seconds)
    lines = []
    for op in others[:MOST_OPERATIONS]:
        share, calls = op.seconds / step.profiled_seconds, f"{op.calls:,.0f} x"
        milliseconds = _milliseconds(op.seconds, step.profiled_seconds)
        title = (TITLES | ON_GPU if step.is_gpu else TITLES)[op.kind]
        name = cut(op.name or "nothing of torch", 38)
        lines.append(f"{milliseconds:>8} {share:>6.1%} {calls:>8}  {name:<38} {title}"[:COLUMNS].rstrip())
    return lines
