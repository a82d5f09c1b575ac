"""Dynamic dimensions keep to the bounds that were found when the model was loaded."""

from tests.codec_models import plain, refusal, tensor, told
from torchgate.schema.signature import Batching, Dimension, Signature
from torchgate.worker.codec import Codec


def model(**bounds) -> Codec:
    signature = Signature(
        name="m",
        platform="pytorch_eager",
        inputs=(tensor("x", "FP32", "batch", "length"),),
        outputs=(tensor("y", "FP32", "batch"),),
        dimensions=(Dimension(name="length", **bounds),),
        batching=Batching(merge=True, reason="", max_rows=8),
    )
    return Codec(signature, None, 8)


def test_lengths_outside_the_bounds_found_are_refused():
    bounded = model(minimum=2, maximum=4)
    assert plain(bounded, {"x": [1, 2]}).rows == 1
    assert "below 2" in told(refusal(lambda: plain(bounded, {"x": [1]})))
    assert "above 4" in told(refusal(lambda: plain(bounded, {"x": [1] * 5})))


def test_no_maximum_is_no_bound():
    assert plain(model(minimum=1, maximum=None), {"x": [1] * 500}).rows == 1


def test_lengths_keep_to_the_multiple_found():
    fours = model(minimum=4, multiple=4)
    assert plain(fours, {"x": [1] * 8}).rows == 1
    assert "no multiple of 4" in told(refusal(lambda: plain(fours, {"x": [1] * 6})))
