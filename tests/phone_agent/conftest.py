from __future__ import annotations

from pathlib import Path

import pytest

from tests.phone_agent.phones import Phone, make_phones


@pytest.fixture
def phone(tmp_path: Path) -> Phone:
    return make_phones(tmp_path, 1)[0]
