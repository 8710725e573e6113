"""The embedded engine on CUDA: the same steps on a GPU, in Triton or PyTorch.

Nothing here is imported unless a model is loaded with `device="cuda"`, and Triton only by
`triton_ops` and the kernels below it.

| module | what it knows |
|---|---|
| `model` | the layers of a step; no kernel |
| `ops` | what a step is made of, as a protocol |
| `torch_ops` | it in PyTorch, on any device: the reference, and the path without Triton |
| `triton_ops` | it in Triton: which kernel runs on which tiles |
| `kernels` | the kernels |
| `work` | which rows attention reads together, out of the engine's plan |
| `step` | a step's tables, and how they come to the device in one piece |
| `graphs` | decode steps, captured once and replayed |
| `weights`, `pool` | what lies in the device's memory |
| `sampler` | what is drawn and read of logits |
| `place` | which device there is, and what it may compute with |
"""
