"""Foreign text reaches the terminal by one way only: this lint forbids the others to everything in tui/."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAFE = {"harmless", "shown"}
SAFE_SEQUENCES = {"attention_sequence"}  # tests/tui/render/test_terminal_call.py holds it to that
WIDGETS = {"Input"}  # shows what it is given as it is: see `_calls`
MARKED_UP = {
    "Button", "Checkbox", "Collapsible", "DataTable", "Footer", "Header", "Label", "ListItem", "Log", "Markdown",
    "OptionList", "Option", "Placeholder", "Pretty", "RadioButton", "RichLog", "Select", "SelectionList", "Static",
    "Switch", "Tab", "TabPane", "TabbedContent", "TextArea", "Toast", "Tree", "Text",
}  # fmt: skip
TITLES = {"border_title", "border_subtitle", "title", "sub_title", "tooltip", "placeholder", "label"}
RICH = {"rich.cells", "rich.console", "rich.segment", "rich.style"}


def faults(source: str) -> list[str]:
    """What in a module could show text that nobody made harmless, with its line."""
    return [f"{line}: {what}" for node in ast.walk(ast.parse(source)) for line, what in _of(node)]


def _of(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.ImportFrom(module=str(module)):
            if module.startswith("textual.widgets"):
                names = {alias.name for alias in node.names} - WIDGETS
                yield from ((node.lineno, f"the widget {name}") for name in sorted(names))
            if _is_rich(module) or module == "textual.markup":
                yield node.lineno, f"from {module}"
        case ast.Import():
            found = [
                a.name for a in node.names if _is_rich(a.name) or a.name.startswith(("textual.widgets", "textual.m"))
            ]
            yield from ((node.lineno, f"import {name}") for name in found)
        case ast.Assign(targets=targets):
            yield from _titles(targets)
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            yield from _titles([target])
        case ast.Call():
            yield from ((node.lineno, what) for what in _calls(node))


def _is_rich(module: str) -> bool:
    return module.partition(".")[0] == "rich" and module not in RICH


def _titles(targets: list[ast.expr]) -> Iterator[tuple[int, str]]:
    for target in targets:
        if isinstance(target, ast.Attribute) and target.attr in TITLES:
            yield target.lineno, f"sets {target.attr}"


def _calls(node: ast.Call) -> Iterator[str]:
    name = _name(node.func)
    if name in MARKED_UP or name in ("notify", "from_markup", "render_markup", "visualize"):
        yield f"calls {name}"
    if any(
        key.arg == "markup" and not (isinstance(key.value, ast.Constant) and not key.value.value)
        for key in node.keywords
    ):
        yield "markup"
    if name in ("Content", "Input", "print") and not all(map(_is_safe, node.args)):
        yield f"{name} of raw text"
    if name in ("Hit", "DiscoveryHit") and not all(_is_safe(key.value) for key in node.keywords if key.arg == "text"):
        yield f"{name} of raw text"
    if isinstance(node.func, ast.Attribute) and name in ("write", "writelines") and not all(map(_is_own, node.args)):
        yield "writes raw text"


def _name(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _is_safe(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) or (isinstance(value, ast.Call) and _name(value.func) in SAFE)


def _is_own(value: ast.expr) -> bool:
    """Our own text: a constant, made of constants only, or by what makes foreign text harmless itself."""
    if isinstance(value, ast.JoinedStr):
        return all(_is_own(part.value if isinstance(part, ast.FormattedValue) else part) for part in value.values)
    if isinstance(value, ast.Call):
        return _name(value.func) in SAFE_SEQUENCES
    return isinstance(value, ast.Constant) or (isinstance(value, ast.Name) and value.id.isupper())


MODULES = sorted((ROOT / "tui").rglob("*.py"))


def test_there_are_modules_to_look_at() -> None:
    assert len(MODULES) > 40


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_raw_text_reaches_the_terminal(path: Path) -> None:
    assert faults(path.read_text()) == []


def test_only_the_canvas_makes_segments_and_only_the_palette_contents() -> None:
    makers = {"Segment": {"canvas.py"}, "Content": {"palette.py"}, "Strip": {"canvas.py"}}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and (allowed := makers.get(_name(node.func))) is not None:
                assert path.name in allowed, f"{path.name}:{node.lineno}"


BAD = [
    "self.notify(name)",
    "self.app.notify('constant')",
    "from textual.widgets import Static",
    "from textual.widgets import Input, Label",
    "from textual.widgets.option_list import Option",
    "import textual.widgets",
    "import textual.markup",
    "from textual.markup import escape",
    "from rich.markup import escape",
    "from rich.text import Text",
    "from rich import print",
    "import rich.text",
    "yield widgets.Static('x')",
    "table = DataTable()",
    "self.border_title = run.name",
    "canvas.border_subtitle = f'{name}'",
    "self.title = 'x'",
    "self.sub_title: str = name",
    "self.title += name",
    "Text.from_markup(name)",
    "Content.from_markup(name)",
    "Canvas(markup=True)",
    "Canvas(markup=is_on)",
    "Content(name)",
    "Content(f'{name}')",
    "Input(self._text)",
    "Hit(1, Content(harmless(name)), act, text=name)",
    "print(line)",
    "print(f'{run.name} goes on')",
    "sys.stdout.write(name)",
    "self._driver.write(f'{ENTER}{name}')",
]  # fmt: skip


@pytest.mark.parametrize("code", BAD)
def test_the_lint_catches(code: str) -> None:
    assert faults(code) != []


GOOD = [
    "from textual.widgets import Input",
    "from textual.containers import Vertical",
    "Content(harmless(name))",
    "Input(shown(text), compact=True)",
    "Input()",
    "print(shown(line))",
    "super().__init__(id=id, markup=False)",
    "sys.stdout.write(f'{ENTER} ftui')",
    "title(frame, name)",
    "title = name",
]  # fmt: skip


@pytest.mark.parametrize("code", GOOD)
def test_the_lint_lets_through(code: str) -> None:
    assert faults(code) == []
