"""Optimizers: which placements to measure next. They ask and are told; they never open a link.

The only importer of sklearn, and only once a surrogate is really trained.
"""
