"""Files beneath a directory: found, described and sent, without the disk ever holding the loop.

Read in this order:

- `disk`: threads for everything that may wait for a disk; bounded.
- `beneath`: opening below a root that nothing leads out of.
- `lookup`: from a path to a file, its index, its compressed neighbours; runs in a disk thread.
- `representation`: what can be sent for a file: bytes or a descriptor, validators, field lines.
- `cache`: small files that were asked for, kept in memory.
- `wish`: what a request's fields ask for: conditions, ranges, codings.
- `conditions`: whether a request's conditions hold (RFC 9110 section 13).
- `ranges`: parts of a file (RFC 9110 section 14).
- `media_types`: what an ending means.
- `reply`: what a client gets: all, parts, 304, 412 or 416.
- `transfer`: a large file on its way to a client.
"""
