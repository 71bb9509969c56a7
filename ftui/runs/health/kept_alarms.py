"""The alarms that a run's state remembers: the newest few, and of each red rule the newest, whatever is told later."""

from collections.abc import Sequence

from ftui.runs.records.health_records import HealthAlarm
from ftui.runs.state import Alarm

ALARMS_KEPT = 8
"""More than there are red rules."""


def add_alarm(alarms: Sequence[Alarm], record: HealthAlarm) -> list[Alarm]:
    """Those to be remembered after one more, by time: engine and supervisor each write theirs."""
    alarm = Alarm(record.time, record.rule, record.level, record.step, record.evidence, record.suggestion)
    kept = sorted([*alarms, alarm], key=lambda one: (one.time, one.rule))
    if len(kept) > ALARMS_KEPT:
        last = {one.rule: one for one in kept}
        kept.remove(next(one for one in kept if one.level != "red" or one is not last[one.rule]))
    return kept
