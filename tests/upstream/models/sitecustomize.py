"""Lets a torchvision whose C++ operators cannot load be imported: its two missing schemas are declared before it is."""

import importlib.abc
import sys


class Schemas(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            self.library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                self.library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            torch.torchvision_schemas = self.library  # or it would be collected, and the schemas with it


sys.meta_path.insert(0, Schemas())
