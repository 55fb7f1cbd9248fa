"""What is done to a phone, in this order. Each step is planned from what the phone says, and verified by it."""

from typing import Final

from orchestrator.bootstrap.steps.apps import Apps
from orchestrator.bootstrap.steps.files import Files
from orchestrator.bootstrap.steps.open_apps import Opened
from orchestrator.bootstrap.steps.packages import Packages
from orchestrator.bootstrap.steps.restart import Restart
from orchestrator.bootstrap.steps.settings import Power, Settings
from orchestrator.bootstrap.steps.step import Step
from orchestrator.bootstrap.steps.unpack import Unpack

STEPS: Final[tuple[Step, ...]] = (
    Apps(),
    Settings(),
    Power(),
    Unpack(),
    Packages(),
    Files(),
    Opened(),
    Restart(),
)
