"""Records how vLLM schedules requests, and what it stores and evicts meanwhile.

usage: PYTHON record.py MODEL_DIR pressure|siblings|slices testdata/NAME.jsonl

PYTHON and MODEL_DIR are what "make test-engine" has installed: a virtual
environment with vLLM 0.32.0 for CPUs, and a tiny model. The engine runs within
this process, so that requests come before a step and not at a time.

The first line has the setting and the requests, then there is a line a step, and
the last line has the counters and what each request found in the cache. A step's
line: the requests that it computes, as [id, tokens]; those that were preempted
for it; once it is decided the blocks in use and how many requests run and wait,
and the blocks that were stored and removed, which are numbered as they first
come; who got a token. A step that differs from the one before in nothing has no
line."""

import json
import os
import random
import sys

os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1",
    VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS="1", VLLM_HOST_IP="127.0.0.1", VLLM_LOGGING_LEVEL="WARNING",
)

from vllm import EngineArgs, SamplingParams
from vllm.distributed.kv_events import BlockRemoved
from vllm.inputs import TokensPrompt
from vllm.v1.attention.backend import MultipleOf
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
from vllm.v1.engine.llm_engine import LLMEngine

# Blocks of 16 tokens have a kernel ("vec16"); the backend offers only those of 32.
CPUAttentionBackend.get_supported_kernel_block_sizes = staticmethod(lambda kv_cache_spec=None: [MultipleOf(16)])

BLOCK_TOKENS = 16

# Requests of a stream share their prompt's beginning, of "shared" tokens; where it is all of the prompt,
# the answer too. cancel: the step before which the client goes away.
SIBLINGS = [
    dict(id=20, step=0, stream=8, shared=0, prompt=30, output=330),  # something is always decoding
    *(dict(id=i, step=1, stream=1, shared=600, prompt=630, output=20) for i in (1, 2, 3, 4)),
    dict(id=5, step=1, stream=2, shared=0, prompt=40, output=30),
    dict(id=6, step=1, stream=3, shared=0, prompt=40, output=30),
    dict(id=7, step=40, stream=4, shared=96, prompt=96, output=40),
    dict(id=8, step=43, stream=4, shared=96, prompt=96, output=40),
    dict(id=9, step=90, stream=4, shared=96, prompt=96, output=40),
    *(dict(id=i, step=140, stream=5, shared=480, prompt=480 + 16 * (i - 9), output=24) for i in (10, 11, 12)),
    dict(id=13, step=141, stream=5, shared=480, prompt=500, output=8, cancel=146),
    dict(id=14, step=200, stream=6, shared=0, prompt=700, output=40),
    dict(id=15, step=210, stream=5, shared=480, prompt=620, output=40),
    dict(id=16, step=212, stream=7, shared=0, prompt=300, output=8),
    dict(id=17, step=260, stream=4, shared=96, prompt=130, output=8),
    dict(id=18, step=280, stream=1, shared=600, prompt=700, output=40),
    dict(id=19, step=281, stream=5, shared=480, prompt=500, output=40),
]
SETTINGS = {
    # More than the cache has room for.
    "pressure": dict(blocks=48, max_running=6, step_tokens=160, long_prefill=0, requests=[
        dict(id=1, step=0, stream=1, shared=64, prompt=100, output=120),
        dict(id=2, step=1, stream=2, shared=64, prompt=150, output=90),
        dict(id=3, step=2, stream=3, shared=64, prompt=200, output=60),
        dict(id=4, step=6, stream=1, shared=64, prompt=90, output=100),
        dict(id=5, step=6, stream=2, shared=64, prompt=130, output=40),
        dict(id=6, step=9, stream=4, shared=16, prompt=40, output=150),
        dict(id=7, step=30, stream=5, shared=96, prompt=300, output=50),
        dict(id=8, step=31, stream=3, shared=64, prompt=75, output=64, cancel=90),
        dict(id=9, step=60, stream=6, shared=240, prompt=420, output=30),
        dict(id=10, step=61, stream=4, shared=16, prompt=33, output=200),
        dict(id=11, step=100, stream=5, shared=96, prompt=111, output=33),
        dict(id=12, step=200, stream=6, shared=240, prompt=250, output=150),
        dict(id=13, step=201, stream=7, shared=0, prompt=310, output=120),
        dict(id=14, step=202, stream=8, shared=0, prompt=64, output=160),
    ]),
    # Prompts that begin with the same new text and come at once; some end at a block's edge, and one is asked by three.
    "siblings": dict(blocks=110, max_running=8, step_tokens=256, long_prefill=0, requests=SIBLINGS),
    # The same in slices: what several compute side by side lies there more than once.
    "slices": dict(blocks=110, max_running=8, step_tokens=256, long_prefill=64, requests=SIBLINGS),
}
SETTING = SETTINGS[sys.argv[2]]
REQUESTS = SETTING["requests"]


def tokens(r):
    common, own = random.Random(r["stream"]), random.Random(1000 + r["id"])
    return [(common if i < r["shared"] else own).randrange(100, 150_000) for i in range(r["prompt"])]


def tell(line):
    out.write(json.dumps(line, separators=(",", ":")) + "\n")


out = open(sys.argv[3], "w")
engine = LLMEngine.from_engine_args(EngineArgs(
    model=sys.argv[1], dtype="float32", enforce_eager=True, max_model_len=SETTING["blocks"] * BLOCK_TOKENS, max_num_seqs=SETTING["max_running"],
    max_num_batched_tokens=SETTING["step_tokens"], long_prefill_token_threshold=SETTING["long_prefill"],
    block_size=BLOCK_TOKENS, num_gpu_blocks_override=SETTING["blocks"] + 1, enable_prefix_caching=True, disable_log_stats=False,
), enable_multiprocessing=False)
scheduler = engine.engine_core.engine_core.scheduler
pool = scheduler.kv_cache_manager.block_pool
pool.enable_kv_cache_events = True
step, line, told = 0, None, None
totals = dict(preemptions=0, queries=0, hits=0, preempted_queries=0, preempted_hits=0)


def name(internal):
    return int(internal.split("-")[0])


def watch_schedule(schedule, preempt, make_stats):
    def preempted(request, *args, **kwargs):
        totals["preemptions"] += 1
        line["preempted"].append(name(request.request_id))
        return preempt(request, *args, **kwargs)

    def scheduled(*args, **kwargs):
        decided = schedule(*args, **kwargs)
        line["computed"] = [[name(i), n] for i, n in decided.num_scheduled_tokens.items()]
        line["blocks"] = SETTING["blocks"] - pool.get_num_free_blocks()
        line["running"], line["waiting"] = len(scheduler.running), len(scheduler.waiting)
        for event in pool.take_events():
            kind = "removed" if isinstance(event, BlockRemoved) else "stored"
            line[kind] += [numbers.setdefault(h, len(numbers)) for h in event.block_hashes]
        return decided

    def stats():
        s = make_stats()
        if s is not None:
            totals["queries"] += s.queries
            totals["hits"] += s.hits
            totals["preempted_queries"] += s.preempted_queries
            totals["preempted_hits"] += s.preempted_hits
        return s

    scheduler.schedule, scheduler._preempt_request, scheduler.kv_cache_manager.make_prefix_cache_stats = scheduled, preempted, stats


watch_schedule(scheduler.schedule, scheduler._preempt_request, scheduler.kv_cache_manager.make_prefix_cache_stats)
tell(dict(engine="vLLM 0.32.0", block_tokens=BLOCK_TOKENS, **SETTING))
lengths, cached, numbers = {}, {}, {}
while True:
    for r in REQUESTS:
        if r["step"] == step:
            engine.add_request(str(r["id"]), TokensPrompt(prompt_token_ids=tokens(r)), SamplingParams(max_tokens=r["output"], ignore_eos=True, temperature=0))
        if r.get("cancel") == step:
            engine.abort_request([str(r["id"])])
    if not engine.has_unfinished_requests():
        assert step > max(r["step"] for r in REQUESTS), f"idle at step {step}"
        break
    line = dict(computed=[], preempted=[], stored=[], removed=[])
    got = []
    for o in engine.step():
        i, n = int(o.request_id), len(o.outputs[0].token_ids)
        if n > lengths.get(i, 0):
            got.append(i)
        lengths[i] = n
        cached.setdefault(i, o.num_cached_tokens)
    line["got"] = sorted(got)
    for kind in ("preempted", "stored", "removed"):
        if not line[kind]:
            del line[kind]
    if line != told:
        tell(dict(step=step, **line))
    told = line
    step += 1
tell(dict(steps=step, **totals, cached=cached))
out.close()
