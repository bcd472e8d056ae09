"""Makes request bodies of all kinds: what clients send, and what they should not.

Bodies are texts, not objects: how JSON is spelled (escapes, spaces, numbers,
repeated names) is part of what is tried. Everything comes from one seed.
"""
import json
import random

WORDS = ("tide harbour barge pier pilot ledger café naïve Straße façade 港 船 潮 наводнение μέτρο שלום مرحبا "
         "🚢 👩‍🚀 🇫🇷 e\u0301 \u00a0 \u2009 \u200b <b> &amp; \"quoted\" back\\slash it's {curly} [square] 3.14 1e5 -0 "
         "NULL None true\tfalse \r\n").split(" ")
SPECIALS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_response>", "</tool_response>",
            "<|eot_id|>", "<|begin_of_text|>", "[INST]", "[/INST]", "<s>", "</s>", "<｜User｜>", "<|start|>", "<|end|>",
            "<tool_call>", "{{ x }}", "{% if %}"]


class Maker:
    def __init__(self, seed, family):
        self.r = random.Random(f"{family}/{seed}")
        self.family = family
        # Mistral's template takes strictly alternating turns and ids of nine letters;
        # most of its conversations are made so that it takes them.
        self.orderly = family == "mistral-nemo" and self.chance(0.85)
        # Harmony tokenises contents apart from its marks, so ours stops at contents that
        # spell them.
        self.specials = 0.03 if family != "gpt-oss" else 0.001
        self.single = family.startswith("llama3.") and self.chance(0.8)  # one call at a time

    def chance(self, p):
        return self.r.random() < p

    def text(self, most=30):
        r = self.r
        if self.chance(0.04):
            return ""
        if self.chance(0.03):
            return r.choice([" ", "\n", "\n\n", " \n x \n", "\u3000x\u3000", "\x1cx\x1d", "\x85y\xa0", "\x7f\x00\x1f"])
        n = r.randint(1, most)
        s = ""
        for _ in range(n):
            s += r.choice(SPECIALS) if self.chance(self.specials) else r.choice(WORDS)
            s += r.choice([" ", " ", " ", "", "\n", "\n\n", ", "])
        if self.chance(0.5):
            s = s.strip()
        return s

    def number(self):
        r = self.r
        return Raw(r.choice(["0", "-0", "-0.0", "1", "-17", "1.0", "1.50", "1e5", "1E+2", "1e-5", "0.0001", "0.00001", "1e16", "1e15",
                             "123456789012345678", "12345678901234567890", "123456789012345678901234567890", "0.1", "1e400", "-1e400",
                             "2.2250738585072014e-308", "5e-324", "1.7976931348623157e308", "9007199254740993", "9007199254740993.0",
                             "100000000000000000000.0", "1234567.875", str(r.randint(-999, 99999)), repr(r.random()), repr(r.uniform(-1e9, 1e9))]))

    def value(self, depth=0):
        r = self.r
        k = r.randint(0, 9 if depth < 4 else 6)
        if k <= 2:
            return self.text(6)
        if k <= 4:
            return self.number()
        if k == 5:
            return r.choice([True, False, None])
        if k == 6:
            return r.choice([{}, [], "", 0])
        if k == 7:
            return [self.value(depth + 1) for _ in range(r.randint(0, 4))]
        return self.object(depth + 1)

    def object(self, depth=0):
        r = self.r
        names = [r.choice(["city", "unit", "días", "a b", "q\"uote", "path\\x", "n\n", "\u00e9", "type", "items", "x" * 40, "k%d" % i])
                 for i in range(r.randint(0, 5))]
        pairs = [(n, self.value(depth)) for n in names]
        if not self.chance(0.15):  # mostly without repeated names
            pairs = list(dict(pairs).items())
        return Pairs(pairs)

    def schema(self, depth=0):
        r = self.r
        kind = r.choice(["string", "number", "integer", "boolean", "array", "object"])
        if depth > 2 and kind in ("array", "object"):
            kind = "string"
        s = {"type": kind if not self.chance(0.1) else [kind, "null"]}
        if self.chance(0.5):
            s["description"] = self.text(8)
        if kind == "string" and self.chance(0.3):
            s["enum"] = [self.text(2) for _ in range(r.randint(1, 3))]
        if kind in ("number", "integer") and self.chance(0.4):
            s["minimum"] = Raw(r.choice(["0", "-1", "1.5", "1e3", "0.1"]))
        if self.family == "gpt-oss":
            self.decorate(s, kind, depth)
        if kind == "array" and not self.chance(0.1):
            s["items"] = self.schema(depth + 1)
        if kind == "object":
            s["properties"] = {r.choice(["city", "unit", "when", "wo", "größe", "n%d" % i]): self.schema(depth + 1) for i in range(r.randint(0, 4))}
            if self.chance(0.5):
                s["required"] = list(s["properties"])[:2]
            if self.chance(0.2):
                s["additionalProperties"] = False
        items = list(s.items())
        if self.chance(0.2):
            r.shuffle(items)
        return dict(items)

    def decorate(self, s, kind, depth):
        """Adds what Harmony shows of a schema and templates just dump."""
        r = self.r
        if self.chance(0.2):
            s["title"] = self.text(3)
        if self.chance(0.2):
            s["examples"] = [self.text(2), self.number(), self.text(2)][: r.randint(0, 3)]
        if self.chance(0.3):
            s["default"] = self.value(3)
        if self.chance(0.1):
            s["nullable"] = r.choice([True, False])
        if self.chance(0.1):
            s[r.choice(["type", "description", "enum", "default"])] = self.value(3)
        if depth < 2 and self.chance(0.15):
            s["oneOf"] = [self.schema(depth + 1) for _ in range(r.randint(0, 3))]
            if s["oneOf"] and self.chance(0.4):
                s["description"] = s["oneOf"][0].get("description", "same")
            if self.chance(0.3):
                s.pop("type", None)

    def tool(self, i):
        f = {"name": self.r.choice(["get_weather", "search", "run_code", "größe"]) + str(i)}
        if not self.chance(0.1):
            f["description"] = self.text(12) if not self.chance(0.05) else None
        if not self.chance(0.15):
            f["parameters"] = {"type": "object", "properties": {n: self.schema() for n in ("city", "unit")[: self.r.randint(0, 2)]}}
        elif self.chance(0.5):
            f["parameters"] = self.r.choice([None, {}])
        if self.chance(0.1):
            f["strict"] = self.r.choice([True, False, None])
        if self.chance(0.05):
            f["x-unknown"] = 1
        items = list(f.items())
        if self.chance(0.3):
            self.r.shuffle(items)
        t = {"type": "function", "function": dict(items)}
        if self.chance(0.1):
            t = {"function": t["function"]}
        return t

    def content(self, role, system=False):
        r = self.r
        if self.chance(0.12):
            parts = [{"type": "text", "text": self.text(8)} for _ in range(r.randint(0, 4))]
            if self.chance(0.05):
                parts.append({"type": r.choice(["image_url"]), "image_url": {"url": "data:image/png;base64,aaaa"}})
            if self.chance(0.1) and role == "assistant":
                parts.append({"type": "refusal", "refusal": self.text(3)})
            return parts
        t = self.text()
        if role == "system" and self.chance(0.05):
            t = "x-anthropic-billing-header: cch=123;" + r.choice(["", "\n"]) + t
        if role == "assistant" and self.chance(0.2):
            t = r.choice(["<think>\n", "", "\n<think>"]) + self.text(5) + r.choice(["\n</think>\n\n", "</think>"]) + t
        if role == "user" and self.chance(0.04):
            t = "<tool_response>" + t + "</tool_response>"
        return t

    def arguments(self):
        r = self.r
        if self.chance(0.06):
            return r.choice(["", "{}", " {} ", "[]", "5", "null", "{", "{\"a\":}", "{\"a\":1,}", "{\"a\":1}x", "nonsense", "\"s\"", "{\"a\": NaN, \"b\": [Infinity, -Infinity]}",
                             "{\"a\":01}", "{\"a\":1.}", "{\"a\":\"\t\"}", "{\"a\":\"\\x\"}", "{'a':1}", "{\"a\":\"\\ud83d\\udea2\\u00e9\\n\\/\\u001f\"}", "\ufeff{}"])
        return spell(self.object(), r)

    def call(self, i):
        c = {"id": self.r.choice(["call_%06d" % i if not self.orderly else "ABCDEFGH9", "abcdefgh%d" % (i % 10)]), "type": "function",
             "function": {"name": self.r.choice(["get_weather", "search"]), "arguments": self.arguments()}}
        if self.chance(0.2):
            c["function"] = dict(reversed(list(c["function"].items())))
        return c

    def messages(self):
        r = self.r
        out = []
        if self.chance(0.6):
            out.append({"role": "system", "content": self.content("system")})
        if self.chance(0.05) and not self.orderly:
            out.append({"role": "developer", "content": self.content("developer")})
        calls = 0
        for turn in range(r.randint(1, 5)):
            out.append({"role": "user", "content": self.content("user")})
            if self.chance(0.03) and not self.orderly:
                out.append({"role": r.choice(["system", "developer", "user", "function", "critic"]), "content": self.text(5)})
            while self.chance(0.3):
                m = {"role": "assistant", "content": r.choice([None, "", self.text(6)])}
                if self.chance(0.1):
                    del m["content"]
                if self.chance(0.4):
                    m[r.choice(["reasoning_content", "reasoning"])] = r.choice([self.text(8), "\n" + self.text(4) + "\n", "", None])
                m["tool_calls"] = [self.call(calls + j) for j in range(1 if self.single or self.chance(0.7) else r.randint(0, 3))]
                out.append(m)
                for c in m["tool_calls"]:
                    calls += 1
                    if not self.chance(0.05):
                        out.append({"role": "tool", "tool_call_id": c["id"], "content": self.content("tool") if self.chance(0.5) else spell(self.object(), r)})
            if turn < 4 and not self.chance(0.2) or self.chance(0.1) or self.orderly:
                m = {"role": "assistant", "content": self.content("assistant")}
                if self.chance(0.2):
                    m[r.choice(["reasoning_content", "reasoning"])] = self.text(8)
                if self.chance(0.1):
                    m["tool_calls"] = r.choice([[], None])
                if self.chance(0.1):
                    m["name"] = "bot"
                out.append(m)
        if self.chance(0.7) or self.orderly:
            while len(out) > 1 and out[-1]["role"] == "assistant":
                out.pop()
        return out

    def body(self):
        r = self.r
        b = {"model": "m", "messages": self.messages()}
        if self.chance(0.35):
            b["tools"] = [self.tool(i) for i in range(r.randint(1, 3))]
            if self.chance(0.15):
                b["tool_choice"] = r.choice(["none", "auto", "required", {"type": "function", "function": {"name": b["tools"][0]["function"]["name"]}}])
        if self.chance(0.12):
            b["chat_template_kwargs"] = r.choice([{}, {"enable_thinking": False}, {"enable_thinking": True}, {"enable_thinking": None}, {"thinking": True},
                                                  {"add_generation_prompt": False}, {"date_string": "24 Dec 2026"}, {"tools_in_user_message": False}])
        if self.chance(0.08):
            b["reasoning_effort"] = r.choice(["none", "low", "medium", "high", "xhigh", None])
        if self.chance(0.05):
            b["add_generation_prompt"] = False
        if self.chance(0.08):
            b["continue_final_message"] = True
            b["add_generation_prompt"] = False
        if self.chance(0.03):
            b["documents"] = [{"title": "a", "text": "b"}]
        return spell(b, r)


class Raw(str):
    """A number as it is spelled."""


class Pairs(list):
    """An object whose names may repeat."""


def spell(v, r):
    """JSON text of v, spelled in one of many ways."""
    ascii_only = r.random() < 0.4
    comma, colon = r.choice([(",", ":"), (", ", ": "), (" , ", " : "), (",\n  ", ": ")])

    def go(v):
        if isinstance(v, Raw):
            return str(v)
        if isinstance(v, str):
            s = json.dumps(v, ensure_ascii=ascii_only)
            return s.replace("/", "\\/") if r.random() < 0.1 else s
        if isinstance(v, Pairs):
            return "{" + comma.join(go(k) + colon + go(x) for k, x in v) + "}"
        if isinstance(v, dict):
            return "{" + comma.join(go(k) + colon + go(x) for k, x in v.items()) + "}"
        if isinstance(v, list):
            return "[" + comma.join(go(x) for x in v) + "]"
        return json.dumps(v)

    return go(v)


def bodies(family, count):
    """Request bodies for a family, always the same."""
    return [Maker(i, family).body() for i in range(count)]


class Converted(Maker):
    """Bodies of the other two dialects."""

    def anthropic(self):
        r = self.r
        messages, n = [], 0
        for turn in range(r.randint(1, 4)):
            messages.append({"role": "user", "content": self.blocks("user", [])})
            if self.chance(0.04):
                messages.append({"role": "system", "content": self.text(5) if self.chance(0.5) else self.blocks("system", [])})
            while self.chance(0.35):
                uses = [{"type": "tool_use", "id": "toolu_%03d" % (n + j) if not self.orderly else "abcdefgh%d" % j, "name": "search", "input": self.object()}
                        for j in range(1 if self.single else r.randint(1, 2))]
                n += 2
                messages.append({"role": "assistant", "content": self.blocks("assistant", uses)})
                results = []
                for u in uses:
                    res = {"type": "tool_result", "tool_use_id": u["id"], "content": self.text(6) if self.chance(0.5) else
                           [{"type": "text", "text": self.text(3)} for _ in range(r.randint(0, 3))]}
                    if self.chance(0.1):
                        del res["content"]
                    if self.chance(0.04) and isinstance(res.get("content"), list):
                        res["content"].append({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}})
                    results.append(res)
                more = self.blocks("user", []) if self.chance(0.2) else []
                messages.append({"role": "user", "content": results + ([{"type": "text", "text": more}] if isinstance(more, str) else more)})
            if self.orderly or turn < 3 and not self.chance(0.2):
                messages.append({"role": "assistant", "content": self.blocks("assistant", [])})
        while len(messages) > 1 and messages[-1]["role"] == "assistant" and self.chance(0.8):
            messages.pop()
        b = {"model": "m", "max_tokens": 4096, "messages": messages}
        if self.chance(0.6):
            b["system"] = self.text(12) if self.chance(0.5) else [
                {"type": "text", "text": ("x-anthropic-billing-header: a=b\n" if self.chance(0.2) else "") + self.text(5), "cache_control": {"type": "ephemeral"}}
                for _ in range(r.randint(0, 3))]
        if self.chance(0.4):
            b["tools"] = []
            for i in range(r.randint(1, 3)):
                t = {"name": "search%d" % i, "description": self.text(6), "input_schema": {"type": "object", "properties": {"city": self.schema()}}}
                if self.chance(0.2):
                    del t["input_schema"]["type"]
                if self.chance(0.1):
                    t["input_schema"] = {}
                if self.chance(0.1):
                    del t["description"]
                b["tools"].append(t)
        if self.chance(0.15):
            b["thinking"] = r.choice([{"type": "disabled"}, {"type": "enabled", "budget_tokens": 2048}, {"type": "adaptive"}])
        if self.chance(0.1):
            b["output_config"] = {"effort": r.choice(["low", "high"])}
        return spell(b, r)

    def blocks(self, role, extra):
        r = self.r
        if not extra and self.chance(0.4):
            return self.text()
        out = [{"type": "text", "text": self.text(6)} for _ in range(r.randint(0, 3))]
        if role == "assistant" and self.chance(0.3):
            out.insert(0, {"type": "thinking", "thinking": self.text(6), "signature": "s"})
        if role == "assistant" and self.chance(0.1):
            out.insert(0, {"type": "redacted_thinking", "data": "xx"})
        if role == "user" and self.chance(0.03):
            out.append({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}})
        return out + extra

    def responses(self):
        r = self.r
        items, n = [], 0
        for turn in range(r.randint(1, 4)):
            role = "user" if not self.chance(0.05) or self.orderly else r.choice(["system", "developer"])
            text = self.text()
            item = {"role": role, "content": text if self.chance(0.5) else [{"type": "input_text", "text": self.text(5)} for _ in range(r.randint(1, 3))]}
            if self.chance(0.5):
                item["type"] = "message"
            items.append(item)
            while self.chance(0.35):
                if self.chance(0.5):
                    items.append(self.reasoning())
                calls = range(1 if self.single else r.randint(1, 2))
                ids = []
                for _ in calls:
                    ids.append("call_%d" % n if not self.orderly else "abcdefgh%d" % (n % 10))
                    n += 1
                    items.append({"type": "function_call", "call_id": ids[-1], "name": "search", "arguments": self.arguments()})
                    if self.chance(0.5):
                        items[-1].update(id="fc_1", status="completed")
                for i in ids:
                    items.append({"type": "function_call_output", "call_id": i, "output": self.text(6)})
            if self.orderly or turn < 3 and not self.chance(0.2):
                if self.chance(0.3):
                    items.append(self.reasoning())
                items.append({"type": "message", "role": "assistant", "content": self.text() if self.chance(0.4) else
                              [{"type": "output_text", "text": self.text(), "annotations": []} for _ in range(r.randint(1, 2))]})
                if self.chance(0.3):
                    items[-1].update(id="msg_1", status="completed")
        while len(items) > 1 and (items[-1].get("role") == "assistant" or items[-1].get("type") == "reasoning"):
            items.pop()
        b = {"model": "m", "input": self.text() if self.chance(0.1) else items}
        if self.chance(0.5):
            b["instructions"] = self.text()
        if self.chance(0.35):
            b["tools"] = []
            for i in range(r.randint(1, 3)):
                t = {"type": "function", "name": "search%d" % i, "description": self.text(5), "parameters": self.schema(), "strict": r.choice([True, False, None])}
                if self.chance(0.1):
                    del t["description"]
                b["tools"].append(t)
        if self.chance(0.15):
            b["reasoning"] = {"effort": r.choice(["none", "low", "high"])}
        if self.chance(0.05):
            b["previous_response_id"] = "resp_1"
        return spell(b, r)

    def reasoning(self):
        r = self.r
        item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": self.text(4)} for _ in range(r.randint(0, 1))]}
        if self.chance(0.7):
            item["content"] = [{"type": "reasoning_text", "text": self.text(5)}]
        if self.chance(0.5):
            item["id"] = "rs_1"
        return item


def converted(family, endpoint, count):
    """Request bodies of /v1/messages ("messages") or /v1/responses ("responses")."""
    return [getattr(Converted(endpoint + str(i), family), "anthropic" if endpoint == "messages" else "responses")() for i in range(count)]
