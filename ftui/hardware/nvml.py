"""NVIDIA's driver, asked through NVML: each question by itself, since containers and MIG hide some of the answers."""

from typing import Any

_NOT_AVAILABLE = 2**64 - 1  # what NVML puts in place of a number of bytes it does not know


class Driver:
    """NVIDIA's driver. `handles`: of the GPUs it shows; none without a driver that this container may use."""

    def __init__(self) -> None:
        self.handles: list[Any] = []
        self._nvml: Any = None
        self._events: Any = None
        self._xids: dict[str, int] = {}
        try:
            import pynvml
        except ImportError:
            return
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return
        self._nvml = pynvml
        count = self.ask("nvmlDeviceGetCount") or 0
        handles = (self.ask("nvmlDeviceGetHandleByIndex", index) for index in range(count))
        self.handles = [handle for handle in handles if handle is not None]

    def ask(self, question: str, *arguments: Any) -> Any:
        """NVML's answer; `None` for any of its errors (not supported, no permission, GPU lost) and without a driver."""
        function = getattr(self._nvml, question, None)  # an older binding has not all of them
        if function is None:
            return None
        try:
            return function(*arguments)
        except self._nvml.NVMLError:
            return None

    def memory(self, handle: Any) -> tuple[int | None, int | None]:
        """Bytes used, and bytes there are."""
        memory = self.ask("nvmlDeviceGetMemoryInfo", handle)
        return (None, None) if memory is None else (_bytes(memory.used), _bytes(memory.total))

    def throttle_reasons(self, handle: Any) -> int | None:
        """Why the clock is lower than it could be: bits, `None` where that is hidden. (NVML renamed the question.)"""
        for question in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            if (reasons := self.ask(question, handle)) is not None:
                return int(reasons)
        return None

    def newest_xid(self, handle: Any) -> int | None:
        """The newest XID error of a GPU since this was first asked; `None` where there is none, or it is hidden."""
        if self._nvml is None:
            return None
        if self._events is None:
            self._events = self.ask("nvmlEventSetCreate")
            for one in self.handles if self._events is not None else ():
                self.ask("nvmlDeviceRegisterEvents", one, self._nvml.nvmlEventTypeXidCriticalError, self._events)
        while self._events is not None and (event := self.ask("nvmlEventSetWait_v2", self._events, 0)) is not None:
            self._xids[str(self.ask("nvmlDeviceGetUUID", event.device))] = int(event.eventData)
        return self._xids.get(str(self.ask("nvmlDeviceGetUUID", handle)))

    def close(self) -> None:
        """Let go of the driver."""
        self.ask("nvmlShutdown")


def _bytes(value: int) -> int | None:
    return None if value == _NOT_AVAILABLE else int(value)
