"""Model packages. Room prepared: nothing here yet.

Will hold building, verifying and reading of packages: builder, export, compile, verify, archive, store, trust.
Used by the command line, control and workers; never by gateways.
"""
