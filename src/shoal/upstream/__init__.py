"""The modules that handlers for TorchServe (`ts`) and Multi Model Server (`mms`) import, inside workers only."""
