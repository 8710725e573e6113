"""Model files: GGUF and folders of safetensors, checked, and read piece by piece."""
