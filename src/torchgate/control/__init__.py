"""Changing a running service. Room prepared: nothing here yet.

Will hold the transaction of a change, read from caller to callee: admin API on a Unix socket, change, validate, plan,
apply (provision, health gate, swap), persist, drain, history. Pure functions of documents, except apply.
"""
