"""The two small models that `make setup` puts under the state root, by what they are good for."""

import os

_MODELS = os.path.join(os.environ["MOONPOOL_STATE"], "models")


def _path(name):
    path = os.path.join(_MODELS, name)
    if not os.path.isfile(path):
        raise SystemExit(f"{path} is missing: run make setup")
    return path


def plain_attention():
    """SmolLM2 135M: 30 layers, plain attention, 3 KV heads of 64."""
    return _path("SmolLM2-135M-Instruct.Q4_1.gguf")


def sliding_window():
    """Gemma 3 270M: 3 full and 15 sliding-window layers (512 tokens)."""
    return _path("gemma-3-270m-q4_k_m.gguf")
