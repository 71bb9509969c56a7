"""The training engine of ftui: one process that turns a run folder into a trained model."""

if __name__ != "ftui.engine":
    raise ImportError("the engine is the package 'ftui.engine'; import it under that name")
