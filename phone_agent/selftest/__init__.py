"""Two self-tests of a phone: can it train (`worker`), and does it behave as we assume (`assumptions`)?"""
