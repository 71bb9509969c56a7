"""A red alarm stays in sight however many amber ones follow it."""

from hypothesis import given
from hypothesis import strategies as st

from ftui.runs.health.health_rules import AMBER, RED, level_of
from ftui.runs.health.kept_alarms import ALARMS_KEPT, add_alarm
from ftui.runs.records.health_records import HealthAlarm
from ftui.runs.state import Alarm


@given(st.lists(st.sampled_from([*RED, *AMBER]), max_size=40))
def test_the_newest_of_each_red_rule_is_kept(rules: list[str]) -> None:
    alarms: list[Alarm] = []
    for second, rule in enumerate(rules):
        told = HealthAlarm(rule=rule, level=level_of(rule), step=second, evidence="", suggestion="", time=float(second))
        alarms = add_alarm(alarms, told)
    newest = {rule: second for second, rule in enumerate(rules)}
    red = {alarm.rule: alarm.step for alarm in alarms if alarm.level == "red"}
    assert red == {rule: step for rule, step in newest.items() if rule in RED}
    assert len(alarms) <= ALARMS_KEPT and [alarm.step for alarm in alarms] == sorted(alarm.step for alarm in alarms)
    assert not rules or alarms[-1].rule == rules[-1]
