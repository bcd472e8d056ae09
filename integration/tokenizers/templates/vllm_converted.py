"""Prompts that vLLM itself makes of Anthropic and Responses requests.

Usage: vllm_converted.py --packs DIR --count N > converted.jsonl   (needs vLLM 0.32, see reference.py for the rest)

tokenizer/chat/testdata/converted.jsonl was made by it, so that the rules can be
tested without vLLM.
"""
import argparse
import json
import os
import sys

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1")

import engines
import reference
from conversations import converted

FAMILIES = {"qwen2.5": "qwen2_5", "qwen3": "qwen3", "llama3.2": "llama3_2", "mistral-nemo": "mistral_nemo", "deepseek-v3": "deepseek_v3"}


def chat_prompt(request, tokenizer, config):
    from vllm.renderers.chat_utils import parse_chat_messages
    from vllm.renderers.hf import safe_apply_chat_template

    tools = [t.model_dump() for t in request.tools] if request.tools is not None else None
    params = request.build_chat_params(tokenizer.chat_template, "auto").with_defaults({"tools": tools} if tools is not None else {})
    conversation, _, _ = parse_chat_messages(request.messages, config, "string")
    kwargs = params.get_apply_chat_template_kwargs()
    kwargs["tokenize"] = False
    return safe_apply_chat_template(config, tokenizer, conversation, **kwargs)


def anthropic(raw, tokenizer, config, effort, harmony=None):
    from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
    from vllm.entrypoints.anthropic.serving import AnthropicServingMessages as Serving

    merge = Serving._detect_merge_inline_system(tokenizer.chat_template if tokenizer else None)
    request = Serving.to_chat_completion_request(AnthropicMessagesRequest(**json.loads(raw)), merge_inline_system=merge, disabled_thinking_effort=effort)
    return harmony(request) if harmony else chat_prompt(request, tokenizer, config)


def responses(raw, tokenizer, config):
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
    from vllm.entrypoints.openai.responses.utils import construct_input_messages, construct_tool_dicts
    from vllm.renderers.chat_utils import parse_chat_messages
    from vllm.renderers.hf import safe_apply_chat_template

    request = ResponsesRequest(**json.loads(raw))
    if request.previous_response_id is not None:
        raise engines.Refused("state")
    tools = construct_tool_dicts(request.tools, request.tool_choice)
    messages = construct_input_messages(request_instructions=request.instructions, request_input=request.input)
    params = request.build_chat_params(tokenizer.chat_template, "auto").with_defaults({"tools": tools} if tools is not None else {})
    conversation, _, _ = parse_chat_messages(messages, config, "string")
    kwargs = params.get_apply_chat_template_kwargs()
    kwargs["tokenize"] = False
    return safe_apply_chat_template(config, tokenizer, conversation, **kwargs)


def main():
    sys.stdout.reconfigure(encoding="utf-8")
    ap = argparse.ArgumentParser()
    ap.add_argument("--packs", required=True)
    ap.add_argument("--count", type=int, default=300)
    args = ap.parse_args()
    from types import SimpleNamespace
    config = SimpleNamespace(tokenizer_revision=None, code_revision=None, tokenizer="x", model="y", trust_remote_code=False,
                             multimodal_config=None, enable_prompt_embeds=False, is_multimodal_model=False,
                             allowed_local_media_path="", allowed_media_domains=None)
    day = (reference.DAY - reference.datetime.date(1970, 1, 1)).days

    def emit(family, endpoint, raw, make):
        out = {"family": family, "engine": "vllm", "endpoint": endpoint, "day": day, "body": raw}
        try:
            out["text"] = make()
            out["text"].encode()
        except Exception as e:
            out.pop("text", None)
            out["refused"] = repr(e)[:200]
        print(json.dumps(out, ensure_ascii=False))

    for family, pack in FAMILIES.items():
        tokenizer = reference.real_tokenizer(args.packs, pack)
        for raw in converted(family, "messages", args.count):
            emit(family, "messages", raw, lambda: anthropic(raw, tokenizer, config, "none" if family == "qwen3" else "low"))
        for raw in converted(family, "responses", args.count):
            emit(family, "responses", raw, lambda: responses(raw, tokenizer, config))
    import openai_harmony
    os.environ["VLLM_SYSTEM_START_DATE"] = reference.DAY.isoformat()
    encoding = openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)
    from vllm.renderers.online_renderer import OnlineRenderer
    fake = SimpleNamespace(renderer=None, supports_browsing=False, supports_code_interpreter=False)

    def harmony(request):
        _, (engine_input,) = OnlineRenderer._make_request_with_harmony(fake, request, request.tools is not None)
        return encoding.decode(engine_input["prompt_token_ids"])

    for raw in converted("gpt-oss", "messages", args.count):
        emit("gpt-oss", "messages", raw, lambda: anthropic(raw, None, config, "low", harmony))


if __name__ == "__main__":
    main()
