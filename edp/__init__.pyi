from .accounting.audit import audited_epsilon as audited_epsilon
from .accounting.calibrate import noise_multiplier_for_epsilon as noise_multiplier_for_epsilon
from .accounting.epsilon import (
    epsilon as epsilon,
)
from .accounting.epsilon import (
    epsilon_curve as epsilon_curve,
)
from .accounting.epsilon import (
    epsilon_paper as epsilon_paper,
)
from .accounting.epsilon import (
    epsilon_user as epsilon_user,
)
from .accounting.epsilon import (
    log10_epsilon_paper as log10_epsilon_paper,
)
from .accounting.selection import (
    composed_epsilon as composed_epsilon,
)
from .alpha import (
    gradient_layer_norms as gradient_layer_norms,
)
from .alpha import (
    private_alpha as private_alpha,
)
from .alpha import (
    public_alpha as public_alpha,
)
from .audit import Audit as Audit
from .audit import read_audit as read_audit
from .hook import EDPHook as EDPHook
from .hook import NonFiniteGradient as NonFiniteGradient
from .hook import one_bucket_ddp as one_bucket_ddp
from .ledger import (
    AlphaRelease as AlphaRelease,
)
from .ledger import (
    Ledger as Ledger,
)
from .ledger import (
    LedgerEntry as LedgerEntry,
)
from .ledger import (
    planned_ledger as planned_ledger,
)
from .mechanism import Mechanism as Mechanism
from .mechanism import mechanism_of as mechanism_of
from .noise.gaussian import shared_key as shared_key
from .per_example import (
    GradientRecorder as GradientRecorder,
)
from .per_example import (
    UnsupportedLayer as UnsupportedLayer,
)
from .per_example import (
    record_per_example as record_per_example,
)
from .per_example import (
    register_layer as register_layer,
)
from .sampling import (
    group_by_user as group_by_user,
)
from .sampling import (
    poisson_epoch as poisson_epoch,
)
from .sampling import (
    poisson_examples as poisson_examples,
)
from .sampling import (
    shuffled_epoch as shuffled_epoch,
)
from .sampling import (
    steps_per_epoch as steps_per_epoch,
)
from .spec import EDPSpec as EDPSpec
from .spec import UserError as UserError
from .steps import HookUsageError as HookUsageError

__version__: str
