"""Small mistakes that somebody may have made, one at a time, in the functions of a module."""

import ast
import copy
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Node = TypeVar("Node", bound=ast.AST)
_COMPARED: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_BECOMES = "  ->  "
_PAIRS = ["min max", "minimum maximum", "argmin argmax", "any all", "zeros ones", "floor ceil"]
_CALLED = dict(pair.split() for pair in _PAIRS)
_CALLED |= {other: one for one, other in _CALLED.items()}
_EITHER_WAY = {"min", "max", "minimum", "maximum", "hypot", "vdot", "gcd"}  # of two arguments
# What changes no result: arguments of these names, and calls that announce how long work takes.
_IDLE_ARGUMENTS = {"strict", "check_finite"}
_IDLE_CALLS = {"expect", "few_threads"}
# And the order of the arguments of these: `dot` is the inner product of a `Geometry`.
_IDLE_ORDER = {"dot", "swapaxes", "array_equal"}


@dataclass(frozen=True)
class Mutant:
    """The `number`-th mistake of a file. `lines` are those whose tests may notice it: those that it
    stands on, and for a constant those that use it in its file."""

    file: str
    number: int
    first: int
    lines: tuple[int, ...]
    within: str  # the qualified name and the line of the outermost function, or a constant
    told: str
    idle: bool  # no result can show it


def mutants(file: Path, root: Path) -> list[Mutant]:
    """All of them, in the order of the text."""
    text = file.read_text()
    name = file.relative_to(root).as_posix()
    uses = defaultdict(set)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            uses[node.id].add(node.lineno)
    return [
        Mutant(name, number, node.lineno, _lines(node, within, uses), within, told, idle)
        for number, (node, within, told, idle) in enumerate(_Walk(text).found)
        if len({*told.split(_BECOMES)}) == 2  # not `f(a, a)` with its arguments swapped
    ]


def _lines(node: ast.stmt | ast.expr, within: str, uses: dict[str, set[int]]) -> tuple[int, ...]:
    if within in uses:
        return tuple(sorted(uses[within]))
    return tuple(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def mutated(file: Path, mutant: Mutant) -> ast.Module:
    """The module with this one mistake in it."""
    return ast.fix_missing_locations(_Walk(file.read_text(), mutant.number).tree)


class _Walk(ast.NodeTransformer):
    """Finds every mistake, and makes the one that is `wanted`."""

    def __init__(self, text: str, wanted: int = -1) -> None:
        self.found: list[tuple[ast.stmt | ast.expr, str, str, bool]] = []
        self._wanted, self._within, self._classes, self._idle = wanted, "", "", False
        self.tree = ast.parse(text)
        for number, statement in enumerate(self.tree.body):
            if isinstance(statement, ast.FunctionDef | ast.ClassDef):
                self.visit(statement)
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                self._within = statement.targets[0].id
                self.tree.body[number] = self.generic_visit(statement)
                self._within = ""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outside, self._classes = self._classes, f"{self._classes}{node.name}."
        for member in node.body:
            if isinstance(member, ast.FunctionDef | ast.ClassDef):
                self.visit(member)
        self._classes = outside
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Its body: defaults, decorators and annotations are made when it is imported."""
        outermost = not self._within
        line = min([node.lineno, *(part.lineno for part in node.decorator_list)])
        self._within = self._within or f"{self._classes}{node.name}:{line}"
        node.body = [self.visit(statement) for statement in node.body]
        self._within = "" if outermost else self._within
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.value = node.value and self.visit(node.value)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return node  # states an invariant for readers

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node  # text

    def generic_visit(self, node: ast.AST) -> ast.AST:
        outside, self._idle = self._idle, self._idle or _is_idle(node)
        chosen = None
        if isinstance(node, ast.stmt | ast.expr):
            for other in _alternatives(node):
                if len(self.found) == self._wanted:
                    chosen = ast.copy_location(other, node)
                idle = self._idle or _changes_places(node, other)
                self.found.append((_place(node), self._within, _told(node, other), idle))
        # What an error says is text.
        result = node if isinstance(node, ast.Raise) else super().generic_visit(node)
        self._idle = outside
        return chosen or result


def _is_idle(node: ast.AST) -> bool:
    match node:
        case ast.keyword(arg=name):
            return name in _IDLE_ARGUMENTS
        case ast.Call(func=ast.Name(id=name)) | ast.Expr(ast.Call(func=ast.Name(id=name))):
            return name in _IDLE_CALLS
    return False


def _changes_places(node: ast.AST, other: ast.AST) -> bool:
    """Whether two arguments do that may."""
    match node, other:
        case ast.Call(func=func, args=[first, second]), ast.Call(args=[one, another]):
            free = ast.unparse(func).rpartition(".")[2] in _IDLE_ORDER
            return free and one is second and another is first
    return False


def _place(node: ast.stmt | ast.expr) -> ast.stmt | ast.expr:
    """Of a statement with a body only its head."""
    return node.test if isinstance(node, ast.If | ast.While) else node


def _told(node: ast.AST, other: ast.AST) -> str:
    if isinstance(node, ast.If | ast.While) and isinstance(other, ast.If | ast.While):
        node, other = node.test, other.test
    return f"{_line(node)}{_BECOMES}{_line(other)}"


def _line(node: ast.AST) -> str:
    return " ".join(ast.unparse(node).split())


def _alternatives(node: ast.stmt | ast.expr) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=[op]):
            yield from (_with(node, ops=[other()]) for other in _COMPARED[type(op)])
        case ast.BoolOp(op=op):
            yield _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.BinOp(left=left, op=op, right=right):
            if type(op) in _COMPUTED:
                yield _with(node, op=_COMPUTED[type(op)]())
            if isinstance(op, ast.Sub | ast.Div | ast.MatMult):
                yield _with(node, left=right, right=left)
        case ast.AugAssign(op=op):
            if type(op) in _COMPUTED:
                yield _with(node, op=_COMPUTED[type(op)]())
            yield ast.Pass()
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield ast.Constant(2.0 * value if value else 1.0)
        case ast.If(test=test) | ast.While(test=test) if not isinstance(test, ast.Constant):
            yield _with(node, test=ast.UnaryOp(ast.Not(), test))
        case ast.IfExp(body=body, orelse=orelse):
            yield _with(node, body=orelse, orelse=body)
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.Break() | ast.Continue():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()
        case ast.Return(value=ast.expr() as value):
            if not (isinstance(value, ast.Constant) and value.value is None):
                yield ast.Return(ast.Constant(None))
        case ast.Call(func=func, args=[first, second, *rest]):
            plain = not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred)
            if plain and ast.unparse(func).rpartition(".")[2] not in _EITHER_WAY:
                yield _with(node, args=[second, first, *rest])
            yield from _other_call(node, func)
        case ast.Call(func=func):
            yield from _other_call(node, func)


def _other_call(node: ast.Call, func: ast.expr) -> Iterator[ast.AST]:
    match func:
        case ast.Name(id=name) if name in _CALLED:
            yield _with(node, func=_with(func, id=_CALLED[name]))
        case ast.Attribute(attr=name) if name in _CALLED:
            yield _with(node, func=_with(func, attr=_CALLED[name]))


def _with(node: Node, **fields: object) -> Node:
    """A copy that shares its parts, but for these fields."""
    twin = copy.copy(node)
    for name, value in fields.items():
        setattr(twin, name, value)
    return twin
