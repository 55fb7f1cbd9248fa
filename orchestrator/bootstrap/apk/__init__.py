"""The APK files given with --apks: verified and parsed before any phone is changed."""

from orchestrator.bootstrap.apk.folder import Apk, Apks, read_apks

__all__ = ["Apk", "Apks", "read_apks"]
