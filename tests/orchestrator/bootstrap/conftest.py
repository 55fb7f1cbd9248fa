"""A separate adb server with simulated phones."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.provision.resources import package_list
from tests.labs import eventually
from tests.orchestrator.bootstrap.android import Android
from tests.orchestrator.bootstrap.apks import PACKAGES, write_folder
from tests.orchestrator.fleet.servers import free_port
from tests.orchestrator.provision.repository import Deb, write_repository

NewPhone = Callable[..., Android]


@dataclass(frozen=True)
class Bench:
    """adb, APKs and a package repository."""

    root: Path
    environment: dict[str, str]
    apks: Path
    upstream: str

    def adb(self, *arguments: str) -> str:
        command = ["adb", *arguments]
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        ).stdout

    def plug_in(self, phone: Android) -> None:
        """Returns when adb lists the phone, authorized or not."""
        connecting = threading.Thread(target=self.adb, args=("connect", phone.adbd.name), daemon=True)
        connecting.start()
        eventually(lambda: phone.adbd.name in self.adb("devices"))
        if phone.accepts:
            connecting.join()


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    if shutil.which("adb") is None:
        pytest.skip("adb is not installed (make setup installs it)")
    root = tmp_path_factory.mktemp("bench")
    (root / "home").mkdir()
    names = (*package_list().phones, *package_list().builder, "bash")
    bench = Bench(
        root,
        {
            "HOME": str(root / "home"),
            "ANDROID_ADB_SERVER_PORT": str(free_port()),
            "ADB_VENDOR_KEYS": "",
            "CLUSTERCTL_CACHE": str(root / "cache"),
        },
        write_folder(root / "apks"),
        write_repository(root / "upstream", [Deb(name) for name in names]),
    )
    quiet = subprocess.DEVNULL  # the server would keep pipes open
    environment = {**os.environ, **bench.environment}
    subprocess.run(["adb", "start-server"], env=environment, stdin=quiet, stdout=quiet, stderr=quiet, check=True)
    yield bench
    bench.adb("kill-server")


@pytest.fixture
def on_bench(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The bench with a state directory for this test."""
    for name, value in bench.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CLUSTERCTL_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("CLUSTERCTL_INVENTORY", raising=False)
    return bench


@pytest.fixture
def new_phone(on_bench: Bench, tmp_path: Path) -> Iterator[NewPhone]:
    """A factory of plugged-in phones, which are removed afterwards."""
    with ExitStack() as stack:

        def make(**traits: object) -> Android:
            known = {package: on_bench.apks / f"{name}.apk" for name, package in PACKAGES.items()}
            number = len(list(tmp_path.glob("phone-*")))
            phone = Android(tmp_path / f"phone-{number}", known_apks=known, **traits)  # type: ignore[arg-type]
            stack.callback(on_bench.adb, "disconnect", phone.adbd.name)
            stack.callback(phone.close)
            on_bench.plug_in(phone)
            return phone

        yield make
