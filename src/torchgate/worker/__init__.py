"""A worker: one replica of one model in its own process. The only long-lived code that imports torch.

Reading order, from the process's entry inwards:

- `__main__`: entry; main thread loads and computes, one more thread does all I/O.
- `start`: loads the model and puts together what serves it.
- `loop`: the I/O thread: control link, frame sockets, wake-up, drain.
- `gateway_link`: one gateway's frame socket.
- `serving`: decode, queue, run, encode, answer: what a frame becomes.
- `routes`, `answers`: what metadata says about a body; RESULT and STATUS frames.
- `request`: one prediction and its lifecycle.
- `batching`, `queue`, `latency`, `hold`: which requests run next, and when; sans-I/O.
- `compute`, `runner`: the thread of the model, and one batch on it: assemble, call, bisect.
- `untried`: when the model raises for a length it was never called with
- `codec_pool`, `codec`: request bytes to arrays and back, off the I/O thread where it could be slow.
- `metrics`, `log`, `failures`, `resident`: counters, log lines and which failures get one, memory.
- `orphan`: how it leaves when the supervisor was killed.

Loading a model:

- `loader`: a TARGET becomes a `LoadedModel` with its signature.
- `target`, `program`, `weights`, `example`, `nested`: find the model, its weights and an input.
- `probe`, `rows`, `lengths`, `shapes`, `warm`: call it to learn its contract and speed.
- `kept`: what the calls at load changed in a model that remembers is put back.
- `primitives`: the bound of oneDNN's cache.
- `call`, `dtypes`, `ranges`: one call of the model; element types; ranges that embeddings imply.
- `contract`: what was found, joined with what was declared.
- `sample`: the answer to the example, made by the codec.
- `diagnose`, `trace`: why a model refuses its input; shortened traces.
"""
