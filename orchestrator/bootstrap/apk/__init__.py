"""The APK files a person brings: read, verified and understood before any phone is touched."""

from orchestrator.bootstrap.apk.folder import Apk, Apks, read_apks

__all__ = ["Apk", "Apks", "read_apks"]
