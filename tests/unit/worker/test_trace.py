"""Whose frame it is: messages name the user's own code."""

import pytest
import torch

from torchgate.worker import serving, trace


@pytest.mark.torch
def test_our_frames_are_not_taken_for_the_users_compiled_or_not(tmp_path):
    """Frames of compiled modules have a relative name, whatever the working directory."""
    assert trace.is_user_frame(str(tmp_path / "model.py"))
    for ours in (serving.__file__, trace.__file__, torch.nn.functional.__file__):
        assert not trace.is_user_frame(ours)
    assert not trace.is_user_frame("torchgate/worker/runner.py")
    assert trace.is_user_frame(str(tmp_path / "torchgate" / "model.py"))
