"""vLLM's build for CPUs, in this process, for `engine.py`: `peer_vllm.py FOLDER`."""

from __future__ import annotations

import os
import sys

from peer_jobs import own_output, serve

CONTEXT, SEQUENCES = 2048, 64


def main() -> None:
    """Loads the model and answers jobs."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault(
        "VLLM_CPU_NUM_OF_RESERVED_CPU", "0"
    )  # by default one core computes nothing
    with own_output() as answers:
        import vllm

        model = vllm.LLM(
            model=sys.argv[1],
            dtype="bfloat16",
            max_model_len=CONTEXT,
            max_num_seqs=SEQUENCES,
            enable_prefix_caching=True,
            skip_tokenizer_init=True,
        )

        def generate(prompts: list[list[int]], samples: int, tokens: int) -> list[list[list[int]]]:
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
