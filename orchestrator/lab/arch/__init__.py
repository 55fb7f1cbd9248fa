"""Phones with a processor of another kind: where their programs come from, and what runs them here."""
