"""Names that the training code gives to parts of a step (`torch.profiler.record_function`).

Without a profiler a mark costs 6 microseconds.
"""

from ftui.estimate.step.step_profile import Phase

STEPS = "ftui::steps"
DATA, FORWARD, BACKWARD, UPDATE = "ftui::data", "ftui::forward", "ftui::backward", "ftui::update"
PHASES: dict[str, Phase] = {DATA: "rest", FORWARD: "forward", BACKWARD: "backward", UPDATE: "update"}
