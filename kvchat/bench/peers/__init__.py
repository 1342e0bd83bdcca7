"""`kvchat bench peers`: kvchat's engine beside other engines, in one run on one machine.

What makes the figures comparable:

- every engine computes with the same number of threads, on prompts of the same lengths, and is asked for the same
  number of tokens, greedily; the prompts are random tokens, new in every round, so that no prefix cache answers;
- one engine computes at a time, and a round measures each of them before the next round begins; the first round warms
  caches and compiled kernels and is not counted; a figure is the median of the others;
- decoding is timed from the step on in which every sequence decodes, so no prefill is in it;
- llama.cpp is measured by its own tools and their own timings, which leave tokenizing and sampling out, with flash
  attention on or off, whichever is faster in the warming round; OpenVINO starts from the model that it saved itself;
  transformers computes in bfloat16 where the CPU has it.
"""
