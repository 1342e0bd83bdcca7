"""`kvchat bench kv-dtype`: what an int8 and an int4 KV cache save, and what they cost, over long contexts."""
