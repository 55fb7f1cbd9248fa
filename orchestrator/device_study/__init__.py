"""Device study: measures single devices and compares them with published figures."""
