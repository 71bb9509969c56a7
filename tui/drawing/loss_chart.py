"""Stub until the real one is written."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ChartSettings:
    log: bool = False
    window: tuple[float, float] | None = None
    smoothing: int = 1


class Scale: ...


def chart(frame, curves, history, state, settings, scale, fine=None):
    return [[(" chart", "muted")]]


def zoomed(s, state, f):
    return s


def panned(s, state, f):
    return s


def smoother(s, f):
    return s
