"""Forecast of training speed on a rack: a roofline model of each operation and a cost model of each message."""
