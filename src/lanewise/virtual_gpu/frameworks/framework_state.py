"""What the parts for frameworks share of a virtual GPU: its driver, and what each leaves for the others."""

from collections.abc import Callable
from typing import Any

from lanewise.virtual_gpu.devices import Device
from lanewise.virtual_gpu.driver.driver import Driver


class FrameworkState:
    """A virtual GPU as frameworks see it."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        #: Which of torch's tensors are on the device, if torch is there.
        self.torch: Any = None
        #: Returns the handle of the current stream: torch's, if torch is there.
        self.current_stream: Callable[[], int] = int
        #: What each autotuned kernel runs with: its name, and the configuration in words.
        self.autotuned: list[tuple[str, str]] = []

    @property
    def device(self) -> Device:
        """The GPU that the virtual one is."""
        return self.driver.device
