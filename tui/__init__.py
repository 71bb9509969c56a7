"""The screens of ftui (Textual). They read run folders and write control requests; they never import torch."""

if __name__ != "ftui.tui":
    raise ImportError("the screens are the package 'ftui.tui'; import them under that name")
