"""eDP-SGD and its privacy, for any PyTorch DDP loop: the mechanism, its gradient hook, its ledger, its accountants.

    spec = EDPSpec(C=1.0, z0=1.0)            # the mechanism
    hook = EDPHook(ddp, spec, ...)           # clips, noises and averages the gradients of each step
    epsilon(hook.ledger, delta=1e-5)         # what the executed steps guarantee

`examples/private_ddp.py` is a whole training loop. Must not import Ray, MLflow, transformers, or anything of the other
three packages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edp.lazy import lazy_exports

__all__ = [
    "AlphaRelease",
    "Book",
    "EDPHook",
    "EDPSpec",
    "Ledger",
    "LedgerEntry",
    "Mechanism",
    "NonFiniteGradient",
    "UntaughtLayer",
    "UserError",
    "audited_epsilon",
    "composed_epsilon",
    "epsilon",
    "epsilon_curve",
    "epsilon_paper",
    "epsilon_user",
    "gradient_layer_norms",
    "keep_book",
    "log10_epsilon_paper",
    "mechanism_of",
    "of_users",
    "one_bucket_ddp",
    "planned_ledger",
    "poisson_epoch",
    "poisson_examples",
    "private_alpha",
    "public_alpha",
    "random_stopping_epsilon",
    "shuffled_epoch",
    "steps_per_epoch",
    "teach",
    "z0_for_epsilon",
]

if TYPE_CHECKING:
    from edp.accounting.audit import audited_epsilon
    from edp.accounting.calibrate import z0_for_epsilon
    from edp.accounting.epsilon import epsilon, epsilon_curve, epsilon_paper, epsilon_user, log10_epsilon_paper
    from edp.accounting.planned import planned_ledger
    from edp.accounting.selection import composed_epsilon, random_stopping_epsilon
    from edp.hook import EDPHook, NonFiniteGradient, one_bucket_ddp
    from edp.ledger import AlphaRelease, Ledger, LedgerEntry
    from edp.mechanism import Mechanism, mechanism_of
    from edp.per_example import Book, UntaughtLayer, keep_book, teach
    from edp.sampling import of_users, poisson_epoch, poisson_examples, shuffled_epoch, steps_per_epoch
    from edp.scale_estimates import gradient_layer_norms, private_alpha, public_alpha
    from edp.spec import EDPSpec, UserError
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "edp.accounting.audit": ("audited_epsilon",),
            "edp.accounting.calibrate": ("z0_for_epsilon",),
            "edp.accounting.epsilon": (
                "epsilon",
                "epsilon_curve",
                "epsilon_paper",
                "epsilon_user",
                "log10_epsilon_paper",
            ),
            "edp.accounting.planned": ("planned_ledger",),
            "edp.accounting.selection": ("composed_epsilon", "random_stopping_epsilon"),
            "edp.per_example": ("Book", "UntaughtLayer", "keep_book", "teach"),
            "edp.hook": ("EDPHook", "NonFiniteGradient", "one_bucket_ddp"),
            "edp.ledger": ("AlphaRelease", "Ledger", "LedgerEntry"),
            "edp.mechanism": ("Mechanism", "mechanism_of"),
            "edp.sampling": ("of_users", "poisson_epoch", "poisson_examples", "shuffled_epoch", "steps_per_epoch"),
            "edp.scale_estimates": ("gradient_layer_norms", "private_alpha", "public_alpha"),
            "edp.spec": ("EDPSpec", "UserError"),
        },
    )
