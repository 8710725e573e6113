"""vLLM's build for CPUs, in this process, for `engine.py`: `peer_vllm.py FOLDER`.

It is set to what was found to be its fastest. Samples of one prompt come to it after the prompt
has been computed, since requests that come together would compute it each; blocks are of 32
tokens, the fewest that its kernels are made for, so that few tokens beyond a prompt's whole blocks
are computed again for each sample. Without bfloat16 in the processor it computes in float32:
oneDNN refuses bfloat16 there, and the product that stands in takes six times as long. It is
compiled, which takes some two minutes before it answers, and a third of the processor time out of a
step of 64 rows.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from peer_jobs import own_output, serve

CONTEXT, SEQUENCES, BLOCK = 2048, 64, 32
KV_GIB = "2"


def number_type() -> str:
    """The type of numbers that the processor multiplies fast."""
    words = Path("/proc/cpuinfo").read_text().split()
    return "bfloat16" if {"avx512_bf16", "amx_bf16"} & set(words) else "float32"


def main() -> None:
    """Loads the model and answers jobs."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", KV_GIB)
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    with own_output() as answers:
        import vllm

        model = vllm.LLM(
            model=sys.argv[1],
            dtype=number_type(),
            max_model_len=CONTEXT,
            max_num_seqs=SEQUENCES,
            block_size=BLOCK,
            enable_prefix_caching=True,
            skip_tokenizer_init=True,
        )

        def generate(prompts: list[list[int]], samples: int, tokens: int) -> list[list[list[int]]]:
            if samples > 1:
                outputs(prompts, 1, 1)
            return outputs(prompts, samples, tokens)

        def outputs(prompts: list[list[int]], samples: int, tokens: int) -> list[list[list[int]]]:
            sampling = vllm.SamplingParams(
                n=samples,
                temperature=1.0,
                max_tokens=tokens,
                min_tokens=tokens,
                ignore_eos=True,
                detokenize=False,
            )
            inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
            found = model.generate(inputs, sampling, use_tqdm=False)
            return [[list(one.token_ids) for one in result.outputs] for result in found]

        serve(generate, answers)


if __name__ == "__main__":
    main()
