"""The steps of a bootstrap, in order. See `orchestrator.provision.engine`."""

from typing import Final

from orchestrator.bootstrap.steps.apps import AppsStep, OpenAppsStep, UnpackStep
from orchestrator.bootstrap.steps.files import FilesStep
from orchestrator.bootstrap.steps.packages import PackagesStep
from orchestrator.bootstrap.steps.restart import RestartStep
from orchestrator.bootstrap.steps.settings import PowerStep, SettingsStep
from orchestrator.bootstrap.steps.step import BootstrapStep

STEPS: Final[tuple[BootstrapStep, ...]] = (
    AppsStep(),
    SettingsStep(),
    PowerStep(),
    UnpackStep(),
    PackagesStep(),
    FilesStep(),
    OpenAppsStep(),
    RestartStep(),
)
