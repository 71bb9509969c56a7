"""Values that follow from others: `"2 * adapter.r"`, an expression over dotted keys and numbers, and nothing else."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.USub: operator.neg, ast.UAdd: operator.pos,
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max, "round": round, "sqrt": math.sqrt}
LONGEST = 200  # characters; no sensible rule is longer, and none is nested deeply
USUAL = f"Write + - * / // %, {', '.join(FUNCTIONS)}, numbers and keys: 2 * adapter.r."


def evaluate(expression: str, values: Mapping[str, Any]) -> int | float:
    """What the expression comes to; `values` has the numbers of the dotted keys it may name.

    Whole where it comes out so: `16.0` is 16.

    Raises:
        ValueError: it is no such expression, names a key that is not there or is no number, or has no result.
    """
    if len(expression) > LONGEST:
        raise ValueError(f"is longer than {LONGEST} characters")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{expression!r} is no expression") from error
    try:
        result = _value(tree.body, values)
    except (ArithmeticError, TypeError) as error:
        raise ValueError(f"{expression!r} has no result: {error}") from error
    if not math.isfinite(result):
        raise ValueError(f"{expression!r} has no finite result")
    return int(result) if result == int(result) else result


def _value(node: ast.AST, values: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(left, values), _value(right, values))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(operand, values))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
            return FUNCTIONS[name](*(_value(one, values) for one in arguments))
        case ast.Attribute() | ast.Name():
            return _number(ast.unparse(node), values)
    raise ValueError(f"{ast.unparse(node)!r} cannot stand in it")


def _number(key: str, values: Mapping[str, Any]) -> Any:
    if key not in values:
        raise ValueError(f"names {key}, which is no key")
    value = values[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"names {key}, which is {value!r} and no number")
    return value
