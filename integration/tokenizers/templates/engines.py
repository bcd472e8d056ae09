"""What two engines make of a chat request before its template sees it.

Written from their sources: vLLM 0.32 (renderers/chat_utils.py, renderers/hf.py,
entrypoints/openai/chat_completion/protocol.py) and SGLang 0.5.23
(srt/entrypoints/openai/serving_chat.py, protocol.py). vllm_real uses vLLM itself
where it is installed; `reference.py --real` compares the two.
"""
import copy
import json

try:
    import orjson
except ImportError:  # only SGLang's rules need it
    orjson = None


class Refused(Exception):
    """The engine answers with an error."""


# ---- vLLM

BILLING = "x-anthropic-billing-header"


def _without_billing(text):
    return text if not text.startswith(BILLING) else text.partition("\n")[2]


def _vllm_content(role, content):
    if content is None:
        return ""
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    texts = []
    for part in content:
        if isinstance(part, dict):
            kind = part.get("type")
            if kind not in ("text", "input_text", "output_text", "refusal", "thinking"):
                raise Refused("a text model takes no media")
            part = part.get({"refusal": "refusal", "thinking": "thinking"}.get(kind, "text"))
            if part is None:
                continue
        if role == "system" and part.startswith(BILLING):
            part = _without_billing(part)
        if part:
            texts.append(part)
    return "\n".join(texts)


def _vllm_message(m):
    role = m["role"]
    if not isinstance(role, str):
        raise Refused("role")
    out = {"role": role, "content": _vllm_content(role, m.get("content"))}
    if role == "assistant":
        if m.get("tool_calls") is not None:
            out["tool_calls"] = copy.deepcopy(m["tool_calls"])
        reasoning = m.get("reasoning")
        if reasoning is None:
            reasoning = m.get("reasoning_content")
        if reasoning is not None:
            out["reasoning"] = out["reasoning_content"] = reasoning
    elif role == "tool" and "tool_call_id" in m:
        out["tool_call_id"] = m["tool_call_id"]
    calls = out.get("tool_calls")
    if calls is not None and not calls:
        del out["tool_calls"]
    for call in calls or ():
        f = call["function"]
        call["function"] = f = {"arguments": f.get("arguments"), "name": f["name"]}  # the order of the request's schema
        arguments = f["arguments"]
        if isinstance(arguments, str) and arguments:
            try:
                arguments = json.loads(arguments)
            except json.JSONDecodeError:
                arguments = {}
        f["arguments"] = arguments if isinstance(arguments, dict) else {}
    return out


def _vllm_tool(t):
    f = t["function"]
    out = {"name": f["name"], "description": f.get("description"), "parameters": f.get("parameters")}
    if f.get("strict") is not None:
        out["strict"] = f["strict"]
    return {"type": "function", "function": out}


def vllm(raw, template):
    """Returns the conversation, the tools and the template's arguments."""
    body = json.loads(raw)
    if not body["messages"]:
        raise Refused("no messages")
    tools = body.get("tools")
    if tools == [] or tools is None and body.get("tool_choice", "none") not in ("none", None):
        raise Refused("tools")
    if body.get("continue_final_message") and body.get("add_generation_prompt", True):
        raise Refused("both")
    if body.get("reasoning_effort") not in (None, "none", "minimal", "low", "medium", "high", "xhigh", "max"):
        raise Refused("reasoning_effort")
    conversation = [_vllm_message(m) for m in body["messages"]]
    if any(m["role"] == "developer" for m in conversation) and "'developer'" not in template and '"developer"' not in template:
        conversation = [dict(m, role="system") if m["role"] == "developer" else m for m in conversation]
        if any(m["role"] == "system" for m in conversation[1:]):
            texts = [m["content"] for m in conversation if m["role"] == "system" and m["content"]]
            conversation = [{"role": "system", "content": "\n\n".join(texts)}] + [m for m in conversation if m["role"] != "system"]
    kwargs = dict(body.get("chat_template_kwargs") or {})
    if body.get("reasoning_effort") is not None:
        kwargs.setdefault("enable_thinking", body["reasoning_effort"] != "none")
    kwargs["add_generation_prompt"] = body.get("add_generation_prompt", True)
    kwargs["continue_final_message"] = body.get("continue_final_message", False)
    return conversation, [_vllm_tool(t) for t in tools] if tools else None, kwargs


# ---- vLLM with Harmony (gpt-oss)

def _flat(content):
    if content is None or isinstance(content, str):
        return content
    texts = [p if isinstance(p, str) else p["text"] for p in content if isinstance(p, str) or p.get("text") is not None]
    return "".join(texts) if texts else None


def harmony(raw, day, encoding):
    """The prompt's token ids by OpenAI's library."""
    import openai_harmony as h

    body = json.loads(raw)
    if body.get("reasoning_effort") not in (None, "low", "medium", "high"):
        raise Refused("reasoning_effort")
    if body.get("continue_final_message") and body.get("add_generation_prompt"):
        raise Refused("both")
    tools = body.get("tools")
    if tools == [] or tools is None and body.get("tool_choice", "none") not in ("none", None) or not body["messages"]:
        raise Refused("tools")
    messages = [dict(m) for m in body["messages"]]
    system = h.SystemContent.new().with_conversation_start_date(day)
    if body.get("reasoning_effort"):
        system = system.with_reasoning_effort({"low": h.ReasoningEffort.LOW, "medium": h.ReasoningEffort.MEDIUM, "high": h.ReasoningEffort.HIGH}[body["reasoning_effort"]])
    out = [h.Message.from_role_and_content(h.Role.SYSTEM, system)]

    def developer(instructions, tools=None):
        content = h.DeveloperContent.new()
        if instructions is not None:
            content = content.with_instructions(instructions)
        if tools:
            content = content.with_function_tools([h.ToolDescription.new(
                name=t["function"]["name"], description=t["function"].get("description") or "", parameters=t["function"].get("parameters")) for t in tools])
        return h.Message.from_role_and_content(h.Role.DEVELOPER, content)

    def assistant(text, channel):
        return h.Message.from_role_and_content(h.Role.ASSISTANT, text).with_channel(channel)

    instructions = None
    if messages[0]["role"] in ("system", "developer"):
        instructions = _flat(messages.pop(0).get("content"))
    if instructions or tools:
        out.append(developer(instructions, tools))
    names = {}
    for m in messages:
        if m["role"] == "assistant":
            for c in m.get("tool_calls") or ():
                names[c["id"]] = c["function"]["name"]
    for m in messages:
        role, content = m["role"], m.get("content")
        reasoning = m.get("reasoning") if m.get("reasoning") is not None else m.get("reasoning_content")
        if role == "user" and content is None:
            raise Refused("content")
        if role == "assistant" and m.get("tool_calls"):
            if _flat(content):
                out.append(assistant(_flat(content), "commentary"))
            if reasoning:
                out.append(assistant(reasoning, "analysis"))
            for c in m["tool_calls"]:
                out.append(assistant(c["function"].get("arguments") or "", "commentary")
                           .with_recipient("functions." + c["function"]["name"]).with_content_type("json"))
        elif role == "tool":
            author = h.Author.new(h.Role.TOOL, "functions." + names.get(m.get("tool_call_id", ""), ""))
            out.append(h.Message.from_author_and_content(author, _flat(content) or "").with_channel("commentary").with_recipient("assistant"))
        else:
            if role == "assistant" and reasoning:
                out.append(assistant(reasoning, "analysis"))
            parts = [content or ""] if not isinstance(content, list) or not content else [p.get("text", "") for p in content]
            if role == "assistant":
                if parts[0]:
                    out.append(h.Message.from_role_and_contents(h.Role.ASSISTANT, [h.TextContent(text=t) for t in parts]).with_channel("final"))
            elif role in ("system", "developer"):
                if _flat(content) is not None:
                    out.append(developer(_flat(content)))
            else:
                out.append(h.Message.from_role_and_contents(h.Role(role), [h.TextContent(text=t) for t in parts]))
    final = max((i for i, m in enumerate(out) if m.author.role == h.Role.ASSISTANT and m.channel == "final"), default=-1)
    out = [m for i, m in enumerate(out) if not (i < final and m.channel == "analysis")]
    ids = encoding.render_conversation_for_completion(h.Conversation.from_messages(out), h.Role.ASSISTANT,
                                                      config=h.RenderConversationConfig(auto_drop_analysis=False))
    return _trained_headers(ids, encoding)


def _trained_headers(ids, encoding):
    """vLLM writes the headers of calls as the models have learned them, not as newer
    versions of the library do: the recipient stands before the channel, and the type
    without a mark."""
    start, channel, constrain, message = (encoding.encode(t, allowed_special="all")[0] for t in ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"))
    out, i = [], 0
    while i < len(ids):
        if ids[i] == start and message in ids[i:]:
            end = ids.index(message, i)
            header = ids[i + 1:end]
            if constrain in header:
                c, k = header.index(channel), header.index(constrain)
                name, recipient = encoding.decode(header[c + 1:k]).rstrip(" ").split(" to=")
                out += [start, *encoding.encode(encoding.decode(header[:c]) + " to=" + recipient), channel,
                        *encoding.encode(name + " " + encoding.decode(header[k + 1:])), message]
                i = end + 1
                continue
        out.append(ids[i])
        i += 1
    return out


def harmony_real(raw):
    """The prompt's token ids by vLLM's own code (VLLM_SYSTEM_START_DATE gives the date)."""
    from types import SimpleNamespace

    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.renderers.online_renderer import OnlineRenderer

    try:
        request = ChatCompletionRequest(**json.loads(raw))
        fake = SimpleNamespace(renderer=None, supports_browsing=False, supports_code_interpreter=False)
        _, (engine_input,) = OnlineRenderer._make_request_with_harmony(fake, request, request.tools is not None)
        return engine_input["prompt_token_ids"]
    except Exception as e:
        raise Refused(repr(e)[:300])


# ---- SGLang

STANDARD_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")


def _sglang_message(m):
    role = m["role"].lower()
    if role == "user":
        if m.get("content") is None:
            raise Refused("content")
        out = {"role": role, "content": m["content"]}
    else:
        if role not in ("system", "assistant", "tool", "function", "developer", "latest_reminder", "root"):
            raise Refused("role")
        out = {"role": role, "content": m.get("content"), "tool_call_id": m.get("tool_call_id"), "name": m.get("name"),
               "reasoning_content": m.get("reasoning_content")}
        if m.get("tool_calls") is not None:
            out["tool_calls"] = [{"id": c.get("id"), "index": c.get("index"), "type": c.get("type", "function"),
                                  "function": {"name": c["function"].get("name"), "arguments": c["function"].get("arguments")}}
                                 for c in m["tool_calls"]]
    if role == "assistant":
        for c in out.get("tool_calls") or ():
            f = c["function"]
            if isinstance(f["arguments"], str):
                try:
                    f["arguments"] = orjson.loads(f["arguments"])
                except orjson.JSONDecodeError:
                    raise Refused("arguments")
                if not isinstance(f["arguments"], dict):
                    raise Refused("arguments")
    if out["content"] is None:
        out["content"] = ""
    if isinstance(out["content"], list):
        texts = []
        for part in out["content"]:
            if part["type"] != "text":
                raise Refused("a text model takes no media")
            texts.append(part["text"])
        out["content"] = " ".join(texts)
    return {k: v for k, v in out.items() if v is not None}


def _sglang_tool(t):
    f = t["function"]
    data = {"description": f.get("description"), "name": f["name"], "parameters": f.get("parameters")}
    if f.get("strict") is not None:
        data["strict"] = f["strict"]
    given = [k for k in f if k in data]
    return {"type": "function", "function": {k: data[k] for k in given + [k for k in data if k not in given]}, "defer_loading": None}


def sglang(raw, template):
    """Returns the conversation, the tools, the template's arguments and the prefill."""
    body = json.loads(raw)
    if not body["messages"]:
        raise Refused("no messages")
    conversation = [_sglang_message(m) for m in body["messages"]]
    tools, choice = body.get("tools"), body.get("tool_choice")
    if choice is None:
        choice = "auto" if tools is not None else "none"
    if choice == "none" or not tools:
        tools = None
    else:
        tools = [_sglang_tool(t) for t in tools if isinstance(choice, str) or t["function"]["name"] == choice["function"]["name"]] or None
    prefill = None
    if conversation[-1]["role"] == "assistant":
        if body.get("continue_final_message"):
            prefill = conversation.pop()["content"]
        else:
            conversation[-1] = {"role": "user", "content": conversation[-1]["content"]}
    kwargs = dict(body.get("chat_template_kwargs") or {})
    effort = body.get("reasoning_effort")
    if effort is not None:
        kwargs.setdefault("thinking", effort != "none")
        kwargs.setdefault("enable_thinking", effort != "none")
        kwargs.setdefault("reasoning_effort", effort)
    if "add_generation_prompt" in kwargs or "continue_final_message" in kwargs:
        raise Refused("given twice")
    kwargs["add_generation_prompt"] = True
    return conversation, tools, kwargs, prefill


# ---- vLLM itself

def vllm_real(raw, tokenizer):
    """The prompt by vLLM's own code."""
    from types import SimpleNamespace

    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.renderers.chat_utils import parse_chat_messages
    from vllm.renderers.hf import safe_apply_chat_template

    config = SimpleNamespace(tokenizer_revision=None, code_revision=None, tokenizer="x", model="y", trust_remote_code=False,
                             multimodal_config=None, enable_prompt_embeds=False, is_multimodal_model=False,
                             allowed_local_media_path="", allowed_media_domains=None)
    try:
        request = ChatCompletionRequest(**json.loads(raw))
        tools = [t.model_dump() for t in request.tools] if request.tools is not None else None
        params = request.build_chat_params(tokenizer.chat_template, "auto").with_defaults({"tools": tools, "tokenize": False} if tools is not None else {"tokenize": False})
        conversation, media, _ = parse_chat_messages(request.messages, config, "string")
        kwargs = params.get_apply_chat_template_kwargs()
        kwargs["tokenize"] = False
        text = safe_apply_chat_template(config, tokenizer, conversation, **kwargs)
        text.encode()
        return text
    except Exception as e:
        raise Refused(repr(e)[:300])
