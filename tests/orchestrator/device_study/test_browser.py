"""The report in a real browser: nothing complains, the words and plots are there, and a picture can be taken."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from orchestrator.device_study.report.page import page
from tests.orchestrator.device_study.samples import study

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--v=0",
)
PNG = b"\x89PNG\r\n\x1a\n"
MISSING = "there is no chromium: scripts/setup.sh --bench, or apt-get install chromium"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason=MISSING)]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(page(study()), encoding="utf-8")
    return file


def browse(report: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    profile = report.parent / f"profile{len(list(report.parent.iterdir()))}"
    argv = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", *flags, report.as_uri()]
    return subprocess.run(argv, capture_output=True, text=True, timeout=180, check=True)


def test_the_browser_renders_without_errors(report: Path) -> None:
    shown = browse(report, "--dump-dom")
    assert "CONSOLE" not in shown.stderr, shown.stderr
    for printed in ("What one device can do: SM-G975F, p2", "Convolutions only", "Compared with the papers", "1867G"):
        assert printed in shown.stdout
    assert shown.stdout.count("<svg") >= 20
    assert "alert(" not in shown.stdout.replace("&lt;script&gt;alert(", "")


def test_console_messages_are_detected(report: Path, tmp_path: Path) -> None:
    """Else the test above could not fail."""
    broken = tmp_path / "broken.html"
    broken.write_text(report.read_text().replace("</body>", "<script>console.error('ouch')</script></body>"))
    assert "ouch" in browse(broken, "--dump-dom").stderr


@pytest.mark.parametrize("width", [500, 1200], ids=["narrow", "desk"])
def test_nothing_overflows_the_page(report: Path, tmp_path: Path, width: int) -> None:
    """Measured by the browser: a script, here only, says how wide the page became."""
    measured = tmp_path / "measured.html"
    script = "<script>document.title = 'wide ' + document.documentElement.scrollWidth</script></body>"
    measured.write_text(report.read_text().replace("</body>", script))
    shown = browse(measured, f"--window-size={width},900", "--dump-dom").stdout
    assert f"<title>wide {width}</title>" in shown


@pytest.mark.parametrize("width", [500, 1200], ids=["narrow", "desk"])
def test_screenshot(report: Path, tmp_path: Path, width: int) -> None:
    picture = tmp_path / "report.png"
    browse(report, f"--window-size={width},2400", f"--screenshot={picture}")
    assert picture.read_bytes().startswith(PNG)
    assert picture.stat().st_size > 50_000
