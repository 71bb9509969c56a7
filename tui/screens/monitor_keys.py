"""The keys of the live view, and what is asked before the run is ended."""

from textual.binding import Binding, BindingType

BINDINGS: list[BindingType] = [
    Binding(
        "space,h", "hold", "hold", key_display="space", tooltip="Stand still and keep the GPU; again: go on", id="hold"
    ),
    Binding("p", "order('park')", "park", tooltip="Save, free the GPU, leave; r goes on later", id="park"),
    Binding("s", "order('checkpoint')", "save", tooltip="Save a checkpoint now, and keep it for good", id="save"),
    Binding("x", "order('stop')", "stop", tooltip="Save, write final/ and end the run", id="stop"),
    Binding("c", "checkpoints", "checkpoints", tooltip="The checkpoints of this run", id="checkpoints"),
    Binding("r", "resume", "resume", tooltip="Go on with a run that does not live", id="resume"),
    Binding("e", "order('evaluate')", "evaluate", tooltip="Evaluate now, beside the plan", id="evaluate"),
    Binding(
        "f",
        "change('learning_rate_factor=0.5')",
        "lr",
        tooltip="The planned learning rate times a factor, from now on",
        id="lr",
    ),
    Binding("m", "change('max_steps=')", "change", tooltip="Change max_steps, save, eval or log steps", id="change"),
    Binding("l", "log_axis", "log y", tooltip="Linear or logarithmic loss axis", id="log-axis"),
    Binding("z", "zoom(0.5)", "zoom", tooltip="Half the steps, around the newest", id="zoom-in"),
    Binding("left_square_bracket", "smooth(-1)", "less smooth", show=False, tooltip="Smooth less", id="rougher"),
    Binding("right_square_bracket", "smooth(1)", "smoother", show=False, tooltip="Smooth more", id="smoother"),
    Binding("v", "pane", "log", tooltip="Events, or what the engine printed", id="pane"),
    Binding("Z", "zoom(2.0)", "zoom out", show=False, tooltip="Twice the steps", id="zoom-out"),
    Binding("left", "pan(-0.25)", "earlier", show=False, tooltip="A quarter back", id="earlier"),
    Binding("right", "pan(0.25)", "later", show=False, tooltip="A quarter on", id="later"),
    Binding("0", "all", "all steps", show=False, tooltip="The whole plan", id="all"),
    Binding("L", "log", "whole log", show=False, tooltip="All the engine printed, to scroll through", id="log"),
    Binding("w", "why", "why", show=False, tooltip="How it ended or stands, and its last lines", id="why"),
    Binding("X", "order('abort')", "abort", show=False, tooltip="End the run at once; saves nothing", id="abort"),
    Binding("escape,backspace", "back", "runs", show=False, tooltip="To the list of runs", id="runs"),
    Binding("q", "detach", "detach", tooltip="Leave ftui; the run goes on", id="back"),
]

LEGEND = {
    "loss chart": "dim dots: lowest to highest loss; bright line: the loss smoothed (debiased EMA)",
    "signs": "evaluation {evaluation}  best {best}  checkpoint {checkpoint}  epoch {epoch}  attempt {attempt}",
}
"""What its help tells of the chart."""

NEEDS_ENGINE = frozenset({"hold", "park", "save", "stop", "evaluate", "lr", "change"})
NEEDS_NO_ENGINE = frozenset({"resume"})

QUESTIONS = {
    "park": ("Park {}? It saves a checkpoint, frees the GPU and leaves. r goes on from there.", "park it"),
    "stop": ("Stop {}? It saves a checkpoint, writes final/ and ends. `ftui resume` can go on with it.", "stop it"),
    "abort": ("Abort {}? It ends at once; what came after the newest checkpoint is lost.", "abort it"),
}

SETTINGS_QUESTION = (
    "Change the run from its next step on: learning_rate_factor, max_steps, save_steps, eval_steps, logging_steps, "
    "each as key=value."
)
