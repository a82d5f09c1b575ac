"""The gateway's side of a model: which replica runs a prediction, and what becomes of it when one dies.

Read in this order:

- `service`: what the HTTP handlers and the control link talk to; one object per gateway.
- `standing`: what that object says of itself.
- `prediction`: one request and its life.
- `dispatch`: one per model: choose a replica, park, replay, the SOLO lane. Decisions only, no I/O.
- `admission`: may this be accepted now, and by whom.
- `availability`: what the supervisor says; is it worth waiting for a replica.
- `deadlines`: who is overdue, without a timer per request.
- `answers`: heads of answers, and errors that the gateway answers itself.
- `replica`: one incarnation of a worker as this gateway sees it.
- `channel`: frames on the socket to a worker, large bodies in the arena.
- `meters`: the model's values in the counter block.

Never imports torch, and knows of HTTP only what a `torchgate.wire.frames.ResultMeta` holds.
"""
