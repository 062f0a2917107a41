"""The layers that the recorder supports, and how to register others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.utils.parametrize import is_parametrized

from edp.per_example.recorder import GradientRecorder

Rule = Callable[..., Any]
"""`rule(recorder, layer, *inputs)` returns the layer's output, and records its gradients: see `register_layer`."""
RuleType = TypeVar("RuleType", bound=Rule)

_rules: dict[type[nn.Module], tuple[Rule, str]] = {}


class UnsupportedLayer(TypeError):
    """A layer that the clip cannot be applied to: it has trainable parameters and no rule, or it mixes examples."""


def register_layer(kind: type[nn.Module], method: str = "forward") -> Callable[[RuleType], RuleType]:
    """Register the decorated function as the rule of a class of layers.

    While the recorder records, the rule runs in place of the layer's `method`. It runs the layer with its parameters
    detached, and hooks the output: the recorder calls `record` with the output's gradient in the backward pass, and
    `record` records the gradient of each micro-batch.

    A layer whose gradients are small needs no formula: `register_layer(Scale)(edp.per_example.autograd_rule)`.

    A rule holds for that very class, and for those that inherit the method from it. It also records the layers below
    a registered one.

    Examples:
        >>> class Scale(nn.Module):
        ...     def __init__(self, width):
        ...         super().__init__()
        ...         self.weight = nn.Parameter(torch.ones(width))
        ...
        ...     def forward(self, x_btd):
        ...         return x_btd * self.weight
        >>> @register_layer(Scale)
        ... def scale(recorder, layer, x_btd):
        ...     def record(g_btd):
        ...         gradient_bd = (g_btd * x_btd.detach()).sum(1)
        ...         recorder.record_gradient(layer.weight, recorder.by_micro_batch(gradient_bd))
        ...
        ...     return recorder.hook(x_btd * layer.weight.detach(), [layer.weight], record)
        >>> model = Scale(3)
        >>> recorder = record_per_example(model)
        >>> with recorder.examples(torch.arange(2), micro_batches=2):  # two examples, a micro-batch each
        ...     loss = model(torch.ones(2, 5, 3)).sum()
        >>> loss.backward()
        >>> recorder.squared_norms()  # the gradient of either is (5, 5, 5)
        tensor([[75.],
                [75.]])
    """

    def decorate(rule: RuleType) -> RuleType:
        _rules[kind] = (rule, method)
        return rule

    return decorate


def record_per_example(model: nn.Module) -> GradientRecorder:
    """Make the trainable layers of `model` leave records, and return the recorder. Frozen layers stay as they are.

    Call it before DDP wraps the model. Outside of `GradientRecorder.examples` the model runs as before.

    Raises:
        UnsupportedLayer: naming the first layer that has no rule, that shares a parameter, or that mixes examples.
    """
    refuse_mixing_layers(model)
    owners = list(_owners(model, ""))
    _refuse_shared_parameters(owners)
    recorder = GradientRecorder(model)
    for name, layer in owners:
        _attach(recorder, layer, name)
    return recorder


def refuse_mixing_layers(model: nn.Module) -> None:
    """Raise if a layer of PyTorch's computes with the whole batch, or keeps statistics of it.

    With batch norm every gradient depends on every example of the batch, which no clip of single gradients bounds.
    Running statistics are released with the model, without noise. A frozen layer is refused, too: both depend on its
    mode, which a call of `train` changes.

    Raises:
        UnsupportedLayer: naming the first such layer.
    """
    for name, layer in model.named_modules():
        if isinstance(layer, _BatchNorm) or (isinstance(layer, _NormBase) and layer.track_running_stats):
            what = "mixes the examples of a batch" if isinstance(layer, _BatchNorm) else "keeps running statistics"
            raise UnsupportedLayer(
                f"{name or 'the model itself'} ({type(layer).__name__}) {what}, which no clip bounds; allowed: "
                "nn.GroupNorm, nn.LayerNorm, nn.InstanceNorm without running statistics, and constants in the place "
                "of a frozen batch norm"
            )


def _owners(layer: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """Yield registered layers at and below `layer`, outermost first, and others with trainable parameters of their own.

    What is below a registered layer is left out: its rule records that too.
    """
    if not any(p.requires_grad for p in layer.parameters()):
        return
    registered = _rule_of(layer) is not None
    if registered or any(p.requires_grad for p in layer.parameters(recurse=False)):
        yield name, layer
    if not registered:
        for child, module in layer.named_children():
            yield from _owners(module, f"{name}.{child}" if name else child)


def _refuse_shared_parameters(owners: Sequence[tuple[str, nn.Module]]) -> None:
    """Raise if two layers train one tensor, such as an embedding that is tied to the scores of a language model.

    Each layer records the norm of its own part of the gradient. The norm of their sum also has their inner product.

    Raises:
        UnsupportedLayer: naming the tensor in both layers.
    """
    first: dict[int, tuple[str, str]] = {}
    for name, layer in owners:
        for inner, parameter in layer.named_parameters(recurse=_rule_of(layer) is not None):
            full = f"{name}.{inner}" if name else inner
            owner, known = first.setdefault(id(parameter), (name, full))
            if parameter.requires_grad and owner != name:
                raise UnsupportedLayer(
                    f"{full} is the same tensor as {known}: "
                    "the norm of its gradient would be wrong; allowed: freeze it, or layers with tensors of their own"
                )


def _attach(recorder: GradientRecorder, layer: nn.Module, name: str) -> None:
    """Replace the method of a registered layer."""
    rule = _rule_of(layer)
    if rule is None:
        known = ", ".join(sorted(kind.__name__ for kind in _rules))
        raise UnsupportedLayer(
            f"{name or 'the model itself'} ({type(layer).__name__}) has trainable parameters, and no rule records "
            f"their gradients; allowed: {known}, or a rule of its own (edp.register_layer)"
        )
    function, method = rule
    if not isinstance(vars(layer).get(method), _RecordedMethod | NoneType):
        raise UnsupportedLayer(
            f"{name} has a {method} of its own, which the recorder would replace; allowed: its class's"
        )
    setattr(layer, method, _RecordedMethod(recorder, function, layer, getattr(type(layer), method)))


def _rule_of(layer: nn.Module) -> tuple[Rule, str] | None:
    """Return the rule of the layer's class, or of the class that it inherits the method from."""
    if is_parametrized(layer):
        return None  # its parameters are not the ones that the rule would record
    for kind in type(layer).__mro__:
        if kind in _rules:
            rule, method = _rules[kind]
            if getattr(kind, method) is getattr(type(layer), method):
                return rule, method
    return None


@dataclass(frozen=True)
class _RecordedMethod:
    """A layer's method, which runs the rule while the recorder records."""

    recorder: GradientRecorder
    rule: Rule
    layer: nn.Module
    plain: Callable[..., Any]

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if self.recorder.is_recording and torch.is_grad_enabled():
            return self.rule(self.recorder, self.layer, *inputs, **named)
        return self.plain(self.layer, *inputs, **named)
