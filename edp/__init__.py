"""eDP-SGD and its privacy, for any PyTorch DDP loop: the mechanism, its gradient hook, its ledger, its accountants.

    spec = EDPSpec(C=1.0, z0=1.0)            # the mechanism
    hook = EDPHook(ddp, spec, ...)           # clips, noises and averages the gradients of each step
    epsilon(hook.ledger, delta=1e-5)         # what the executed steps guarantee

`examples/private_ddp.py` is a whole training loop. To find the paper's algorithm, read `edp/hook.py` first.

Must not import Ray, MLflow, transformers, or the other three packages.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
