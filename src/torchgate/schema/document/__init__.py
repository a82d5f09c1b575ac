"""The configuration file ``torchgate.toml``: its format, and its way to `torchgate.schema.serve.ServeConfig`.

Imported by the command line only: processes get frozen structs, and never import pydantic.

Reading order:

- `loading`: entry: files -> service; listeners, pools and models.
- `fronts`: routes and hosts -> what a gateway gets.
- `upstreams`: pools and their endpoints.
- `levels`: what each listener, host and route says, its policies included.
- `inherit`: merging that downwards.
- `reading`: every table validated by itself; mistakes are collected.
- `sources`: files read, parsed and laid over each other; who set a value.
- `environment`: values from variables.
- `files`: files that a configuration names.
- `checks`: what other rooms judge.
- `objects`: the document: listeners, certificates, hosts, models, the service.
- `routes`, `pools`, `limits`, `layers`: tables of the others.
- `tables`: tables made from the service's structs.
- `secrets`: texts that may stand in a file of their own.
- `names`: kinds of values that say which requests are meant.
- `addresses`: kinds of values that say where to listen and whom to ask.
- `values`: kinds of values.
- `wrongs`: how these say what is wrong.
- `positions`: where each key stands in a file.
- `mistakes`: what is wrong, and where.
- `published`: the JSON Schema.
"""
