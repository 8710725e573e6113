"""OpenVINO GenAI's continuous batching, for `engine.py`: `peer_openvino.py FOLDER`."""

from __future__ import annotations

import sys

from peer_jobs import own_output, serve

CACHE_GB, SEQUENCES, BATCHED_TOKENS = 2, 64, 2048


def main() -> None:
    """Loads the model and answers jobs."""
    with own_output() as answers:
        import numpy
        import openvino
        import openvino_genai

        scheduling = openvino_genai.SchedulerConfig()
        scheduling.cache_size, scheduling.enable_prefix_caching = CACHE_GB, True
        scheduling.max_num_seqs, scheduling.max_num_batched_tokens = SEQUENCES, BATCHED_TOKENS
        pipeline = openvino_genai.ContinuousBatchingPipeline(sys.argv[1], scheduling, "CPU")

        def generate(prompts: list[list[int]], samples: int, tokens: int) -> list[list[list[int]]]:
            sampling = openvino_genai.GenerationConfig()
            sampling.max_new_tokens = sampling.min_new_tokens = tokens
            sampling.ignore_eos, sampling.do_sample, sampling.temperature = True, True, 1.0
            sampling.num_return_sequences = samples
            inputs = [openvino.Tensor(numpy.array([prompt])) for prompt in prompts]
            found = pipeline.generate(inputs, [sampling] * len(prompts))
            return [list(map(list, result.m_generation_ids)) for result in found]

        serve(generate, answers)


if __name__ == "__main__":
    main()
