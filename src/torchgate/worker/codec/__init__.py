"""Request bytes -> arrays, arrays -> answer bytes. The only place that knows how tensors are written.

Reading order:

- `codec`: one `Codec` per model; chooses by protocol and media type.
- `decoded`, `wish`: what a request is once read; an output it asks for.
- `inflate`: compressed bodies.
- `plain`, `row_reader`, `answer`: plain JSON, in (one row of floats the short way) and out.
- `npy`: numpy's file format, in and out.
- `hooks`: the model's own ``decode`` and ``encode``.
- `oip_request`, `oip_message`, `oip_answer`: Open Inference Protocol v2, in and out, JSON and binary.
- `oip_plan`: a JSON part that was seen before leads straight to what it says.
- `bytes_tensor`: ``BYTES`` elements as binary data.
- `media`: media types and ``Accept``.
- `jsontext`, `elements`: the slow, patient reading that names what is wrong.
- `assembly`, `ports`: names, shapes, types and ranges held against the signature.

Nothing here imports torch unless a model has its own ``decode`` or ``encode``.
"""

from torchgate.worker.codec.codec import Codec
from torchgate.worker.codec.decoded import Decoded

__all__ = ["Codec", "Decoded"]
