"""Termux packages on the host: read an upstream repository, take what the phones need, serve it to them.

version     Debian's order of versions
index       what a repository offers: package stanzas and their relations
closure     everything some packages need
upstream    a repository somewhere else, read through its chain of sha256 sums
snapshot    our own repository: one closure, downloaded and verified
mirror      a web server for the time of a provision
"""
