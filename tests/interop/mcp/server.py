"""A server made with the official Python SDK. `server.py TRANSPORT`"""

import asyncio
import base64
import os
import socket
import sys

import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

server = MCPServer("interop", log_level="ERROR")


def note(what: str) -> None:
    """Tells the test what happened here."""
    if path := os.environ.get("NOTES"):
        with open(path, "a", encoding="utf-8") as notes:
            notes.write(f"{what}\n")


@server.tool()
def echo(text: str) -> str:
    return f"echo: {text}"


@server.tool(name="odd name!")
def odd() -> str:
    return "odd indeed"


@server.tool()
def speaks(ctx: Context) -> str:
    return f"speaks {ctx.protocol_version}"


@server.tool()
def picture() -> Image:
    return Image(data=base64.b64decode(PIXEL), format="png")


@server.tool()
def refuse() -> str:
    raise ToolError("no such row")


@server.tool()
async def count(to: int, everyMs: int, ctx: Context) -> str:
    for done in range(1, to + 1):
        await asyncio.sleep(everyMs / 1000)
        await ctx.report_progress(done, to)
    return f"counted to {to}"


@server.tool()
def crash() -> str:
    os._exit(3)


@server.tool()
async def hang() -> str:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        note("cancelled")
        raise
    return "never"


def late() -> str:
    return "late, but here"


@server.tool()
async def grow(ctx: Context) -> str:
    server.add_tool(late)
    await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return "grown"


@server.resource("note://one", name="one", mime_type="text/plain")
def one() -> str:
    return "written down"


for n in range(int(os.environ.get("MANY", "0"))):
    server.add_tool(odd, name=f"tool_{n}", description=f"Does tool_{n}.")


def listen(app) -> None:
    """Serves on a free port, and says which."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print(f"listening {listener.getsockname()[1]}", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


note("started")
match sys.argv[1]:
    case "stdio":
        server.run("stdio")
    case "http":
        listen(server.streamable_http_app(streamable_http_path="/"))
    case "sse":
        listen(server.sse_app(sse_path="/"))
