"""A TorchScript file of images as it is: tensors of 3 x 224 x 224 floats in, the number of the class out."""

import torch

import shoal
from shoal.gpu import Staging


class Script(shoal.Handler):
    """Parameters: `file`, the TorchScript; `threads` of torch on a CPU."""

    def initialize(self, context: shoal.Context) -> None:
        """Load the file on the device."""
        device = context.device
        torch.set_num_threads(context.parameters.get("threads", 1))
        self.device = torch.device(device)
        self.staging = Staging((3, 224, 224), device)
        self.model = torch.jit.load(context.parameters["file"], map_location=device)  # type: ignore[no-untyped-call]
        self.model.eval()

    def decode_batch(self, items: list[memoryview]) -> object:
        """Bring the tensors to the device."""
        return self.staging(items)

    def inference(self, batch: torch.Tensor) -> list[int]:
        """Run the network."""
        with torch.inference_mode():
            labels: list[int] = self.model(batch).argmax(1).tolist()
        return labels
