"""Datasets on this computer: from what people have to shards, and from here to the phones."""
