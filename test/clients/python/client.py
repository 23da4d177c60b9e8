"""Drives navra before two upstreams, old and new, with the official Python SDK, for navra's end-to-end tests.

    client.py legacy|modern|resume (URL TOKEN | -- COMMAND ARG...)

'resume' makes a long call over connections that break off. Prints a line for each check, and ends with 'N passed, N failed'.
"""

import asyncio
import os
import sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

passed = failed = 0


async def check(name, f):
    global passed, failed
    try:
        await asyncio.wait_for(f(), 30)
        passed += 1
        print("ok   " + name)
    except Exception as e:
        failed += 1
        print(f"FAIL {name}: {type(e).__name__} {e}")


def must(ok, what):
    if not ok:
        raise AssertionError(repr(what))


async def checks(c, era):
    async def version():
        must((c.protocol_version == "2026-07-28") == (era == "modern"), c.protocol_version)

    async def tools():
        names = [t.name for t in (await c.list_tools()).tools]
        must({"old__echo", "old__get-sum", "new__test_simple_text"} <= set(names), names)

    async def old():
        r = await c.call_tool("old__echo", {"message": 'hé "x"\n'})
        must(not r.is_error and 'hé "x"\n' in r.content[0].text, r)

    async def new():
        r = await c.call_tool("new__test_simple_text", {})
        must(not r.is_error and "simple text response" in r.content[0].text, r)

    async def resources():
        uris = [str(r.uri) for r in (await c.list_resources()).resources]
        first = next(u for u in uris if u.startswith("demo://"))
        must("test://static-text" in uris, uris)
        for uri in first, "test://static-text":
            r = await c.read_resource(uri)
            must(str(r.contents[0].uri) == uri and r.contents[0].text, r)

    async def prompts():
        names = [p.name for p in (await c.list_prompts()).prompts]
        for name in "old__simple-prompt", "new__test_simple_prompt":
            must(name in names, names)
            r = await c.get_prompt(name)
            must("simple prompt" in r.messages[0].content.text, r)

    async def progress():
        for name, args in ("old__trigger-long-running-operation", {"duration": 1, "steps": 4}), ("new__test_tool_with_progress", {}):
            got = []

            async def note(value, total, message):
                got.append(value)

            await c.call_tool(name, args, progress_callback=note)
            must(len(got) >= 2, (name, got))

    async def unknown():
        for name in "old__no-such-tool", "new__no-such-tool", "no-such-tool":
            try:
                r = await c.call_tool(name, {})
            except MCPError as e:
                must(e.error.code == -32602, (name, e.error))
            else:
                must(False, (name, r))

    for f in version, tools, old, new, resources, prompts, progress, unknown:
        await check(f.__name__, f)


async def resume(c):
    got = []

    async def note(value, total, message):
        got.append(value)

    async def call():
        r = await c.call_tool("odd__work", {"steps": 40, "ms": 100}, progress_callback=note)
        must(not r.is_error and r.content[0].text == "done", r)
        must(got == list(range(1, 41)), got)

    await check("resume", call)


async def main(era, *target):
    http = httpx2.AsyncClient(headers={"Authorization": "Bearer " + target[1]}, timeout=60)
    server = streamable_http_client(target[0], http_client=http)
    if target[0] == "--":
        server = StdioServerParameters(command=target[1], args=list(target[2:]), env=dict(os.environ))
    async with Client(server, mode="2026-07-28" if era == "modern" else "legacy") as c:
        await (resume(c) if era == "resume" else checks(c, era))
    await http.aclose()


asyncio.run(main(*sys.argv[1:]))
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
