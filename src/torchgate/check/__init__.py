"""Checks of models, sources, packages, hosts and configuration. Room prepared: nothing here yet.

Will hold runner, rule, finding, report, probe, and one file per rule under ``rules/``.
"""
