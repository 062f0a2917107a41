"""Which layers the book knows, and how it is taught others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from edp.per_example.recorder import Book

Rule = Callable[..., Any]
"""`rule(book, layer, *inputs)` gives what the layer gives, and leaves notes: see `teach`."""
RuleType = TypeVar("RuleType", bound=Rule)

_rules: dict[type[nn.Module], tuple[Rule, str]] = {}


class UntaughtLayer(TypeError):
    """A layer that has trainable parameters and no rule: without a note, its gradient would not be clipped."""


def teach(kind: type[nn.Module], method: str = "forward") -> Callable[[RuleType], RuleType]:
    """Decorates the rule of a kind of layer: what its `method` does instead while the book is open.

    A rule runs the layer with its parameters detached, and taps the output: the book calls `note` with the output's
    gradient in the backward pass. What a rule notes is the gradient of each micro-batch.

    A layer whose gradients are small needs no formula: `teach(Scale)(edp.per_example.instantiated)` makes them by autograd.

    A rule holds for that very class, and for those that inherit the method from it. Layers below a taught one are its
    rule's to note.

    Examples:
        >>> class Scale(nn.Module):
        ...     def __init__(self, width):
        ...         super().__init__()
        ...         self.weight = nn.Parameter(torch.ones(width))
        ...
        ...     def forward(self, x_btd):
        ...         return x_btd * self.weight
        >>> @teach(Scale)
        ... def scale(book, layer, x_btd):
        ...     def note(g_btd):
        ...         gradient_bd = (g_btd * x_btd.detach()).sum(1)
        ...         book.note_gradient(layer.weight, book.by_micro_batch(gradient_bd))
        ...
        ...     return book.tap(x_btd * layer.weight.detach(), [layer.weight], note)
        >>> model = Scale(3)
        >>> book = keep_book(model)
        >>> with book.examples(torch.arange(2), micro_batches=2):  # two examples, a micro-batch each
        ...     loss = model(torch.ones(2, 5, 3)).sum()
        >>> loss.backward()
        >>> book.squares()  # the gradient of either is (5, 5, 5)
        tensor([[75.],
                [75.]])
    """

    def decorate(rule: RuleType) -> RuleType:
        _rules[kind] = (rule, method)
        return rule

    return decorate


def keep_book(model: nn.Module) -> Book:
    """Makes the trainable layers of `model` leave notes, and gives the book. What is frozen is left as it is.

    To be called before DDP wraps the model. While the book is closed the model is what it was.

    Raises:
        UntaughtLayer: naming the first layer that the book was not taught, or that shares a parameter.
    """
    book = Book(model)
    owner: dict[int, str] = {}
    _keep(book, model, "", owner)
    return book


def _keep(book: Book, layer: nn.Module, name: str, owner: dict[int, str]) -> None:
    """Goes down to the layers that the book knows; what is below one of them is that one's."""
    mine = [p for p in layer.parameters() if p.requires_grad]
    if not mine:
        return
    rule = _rule_of(layer)
    if rule is None:
        if any(p.requires_grad for p in layer.parameters(recurse=False)):
            known = ", ".join(sorted(kind.__name__ for kind in _rules))
            raise UntaughtLayer(
                f"{name or 'the model itself'} ({type(layer).__name__}) has trainable parameters, and the book was not "
                f"taught such a layer; allowed: {known}, or a rule of its own (edp.per_example.teach)"
            )
        for child, module in layer.named_children():
            _keep(book, module, f"{name}.{child}" if name else child, owner)
        return
    for parameter in mine:
        first = owner.setdefault(id(parameter), name)
        if first != name:
            raise UntaughtLayer(
                f"{name} shares a parameter with {first}: the norm of its gradient would be wrong; "
                "allowed: layers with parameters of their own"
            )
    function, method = rule
    if not isinstance(vars(layer).get(method), _Noting | NoneType):
        raise UntaughtLayer(f"{name} has a {method} of its own, which the book would replace; allowed: its class's")
    setattr(layer, method, _Noting(book, function, layer, getattr(type(layer), method)))


def _rule_of(layer: nn.Module) -> tuple[Rule, str] | None:
    """What was taught of the layer's class, or of one that it has the method from."""
    if is_parametrized(layer):
        return None  # its parameters are not the ones that the rule would note
    for kind in type(layer).__mro__:
        if kind in _rules:
            rule, method = _rules[kind]
            if getattr(kind, method) is getattr(type(layer), method):
                return rule, method
    return None


@dataclass(frozen=True)
class _Noting:
    """A layer's method while a book is kept."""

    book: Book
    rule: Rule
    layer: nn.Module
    plain: Callable[..., Any]

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if self.book.is_open and torch.is_grad_enabled():
            return self.rule(self.book, self.layer, *inputs, **named)
        return self.plain(self.layer, *inputs, **named)
