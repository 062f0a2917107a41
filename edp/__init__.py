"""eDP-SGD and its privacy, for any PyTorch DDP loop: the mechanism, its gradient hook, its ledger, its accountants.

    spec = EDPSpec(C=1.0, z0=1.0)            # the mechanism
    hook = EDPHook(ddp, spec, ...)           # clips, noises and averages the gradients of each step
    epsilon(hook.ledger, delta=1e-5)         # what the executed steps guarantee

`examples/private_ddp.py` is a whole training loop. To find the paper's algorithm, read `edp/hook.py` first.

Must not import Ray, MLflow, transformers, or the other three packages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edp.lazy import lazy_exports

__all__ = [
    "AlphaRelease",
    "Audit",
    "EDPHook",
    "EDPSpec",
    "GradientRecorder",
    "HookUsageError",
    "Ledger",
    "LedgerEntry",
    "Mechanism",
    "NonFiniteGradient",
    "UnsupportedLayer",
    "UserError",
    "audited_epsilon",
    "composed_epsilon",
    "epsilon",
    "epsilon_curve",
    "epsilon_paper",
    "epsilon_user",
    "gradient_layer_norms",
    "group_by_user",
    "log10_epsilon_paper",
    "mechanism_of",
    "noise_multiplier_for_epsilon",
    "one_bucket_ddp",
    "planned_ledger",
    "poisson_epoch",
    "poisson_examples",
    "private_alpha",
    "public_alpha",
    "random_stopping_epsilon",
    "read_audit",
    "record_per_example",
    "register_layer",
    "shared_key",
    "shuffled_epoch",
    "steps_per_epoch",
]

if TYPE_CHECKING:
    from edp.accounting.audit import audited_epsilon
    from edp.accounting.calibrate import noise_multiplier_for_epsilon
    from edp.accounting.epsilon import epsilon, epsilon_curve, epsilon_paper, epsilon_user, log10_epsilon_paper
    from edp.accounting.selection import composed_epsilon, random_stopping_epsilon
    from edp.alpha import gradient_layer_norms, private_alpha, public_alpha
    from edp.audit import Audit, read_audit
    from edp.hook import EDPHook, NonFiniteGradient, one_bucket_ddp
    from edp.ledger import AlphaRelease, Ledger, LedgerEntry, planned_ledger
    from edp.mechanism import Mechanism, mechanism_of
    from edp.noise.gaussian import shared_key
    from edp.per_example import GradientRecorder, UnsupportedLayer, record_per_example, register_layer
    from edp.sampling import group_by_user, poisson_epoch, poisson_examples, shuffled_epoch, steps_per_epoch
    from edp.spec import EDPSpec, UserError
    from edp.steps import HookUsageError
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "edp.accounting.audit": ("audited_epsilon",),
            "edp.accounting.calibrate": ("noise_multiplier_for_epsilon",),
            "edp.accounting.epsilon": (
                "epsilon",
                "epsilon_curve",
                "epsilon_paper",
                "epsilon_user",
                "log10_epsilon_paper",
            ),
            "edp.accounting.selection": ("composed_epsilon", "random_stopping_epsilon"),
            "edp.per_example": ("GradientRecorder", "UnsupportedLayer", "record_per_example", "register_layer"),
            "edp.hook": ("EDPHook", "NonFiniteGradient", "one_bucket_ddp"),
            "edp.noise.gaussian": ("shared_key",),
            "edp.ledger": ("AlphaRelease", "Ledger", "LedgerEntry", "planned_ledger"),
            "edp.mechanism": ("Mechanism", "mechanism_of"),
            "edp.sampling": ("group_by_user", "poisson_epoch", "poisson_examples", "shuffled_epoch", "steps_per_epoch"),
            "edp.audit": ("Audit", "read_audit"),
            "edp.alpha": ("gradient_layer_norms", "private_alpha", "public_alpha"),
            "edp.spec": ("EDPSpec", "UserError"),
            "edp.steps": ("HookUsageError",),
        },
    )
