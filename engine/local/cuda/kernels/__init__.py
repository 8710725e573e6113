"""The kernels in Triton. Only `ttc.engine.local.cuda.triton_ops` imports them.

Every kernel computes what the method of the same purpose in `ttc.engine.local.cuda.torch_ops` does.
They are launched without contraction to fused multiply-adds, so that the same expression has the
same bits in every kernel and with every version of Triton.
"""
