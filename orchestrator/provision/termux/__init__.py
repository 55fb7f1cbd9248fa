"""Termux packages on this computer: read an upstream repository, copy what phones need, serve it to them.

version     Debian version comparison
index       package index of a repository: stanzas, their relations, and packages with all their dependencies
upstream    a remote repository, verified through its chain of sha256 sums
snapshot    our own repository: one closure, downloaded and verified
mirror      HTTP server that runs during a provision
"""
