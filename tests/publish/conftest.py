"""No test of exported folders may make ``transformers`` warn."""

import warnings
from collections.abc import Iterator

import pytest
import transformers


@pytest.fixture(autouse=True)
def silence(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No warning by either way in which ``transformers`` warns."""
    transformers.logging.set_verbosity_warning()  # the project lowers it where it fine-tunes other encoders
    transformers.logging.enable_propagation()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield
    said = [record.getMessage() for record in caplog.get_records("call") if record.levelname in ("WARNING", "ERROR")]
    assert not said, said
