"""An agent made with the official Python SDK. `server.py stream|poll 1.0|0.3`

What it does depends on the first word that it is told.
"""

import asyncio
import os
import socket
import sys

import uvicorn
from a2a.helpers.proto_helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Part
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import JSONResponse


def note(what: str) -> None:
    """Tells the test what happened here."""
    if path := os.environ.get("NOTES"):
        with open(path, "a", encoding="utf-8") as notes:
            notes.write(f"{what}\n")


class Executor(AgentExecutor):
    async def execute(self, context, event_queue) -> None:
        told = context.get_user_input()
        note(f"told {told}")
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)

        def says(text: str):
            return updater.new_agent_message([Part(text=text)])

        await updater.start_work(says("on it"))
        match told.split()[0]:
            case "count":
                for n in range(1, 4):
                    await asyncio.sleep(0.3)
                    await updater.add_artifact([Part(text=f"{n} ")], artifact_id="count", append=n > 1, last_chunk=n == 3)
                await updater.complete(says("counted"))
            case "ask":
                await updater.requires_input(says("Which colour?"))
            case "blue":
                await updater.add_artifact([Part(text="painted blue")])
                await updater.complete()
            case "where":
                await updater.complete(says(f"in {task.context_id}"))
            case "fail":
                await updater.failed(says("no such row"))
            case "refuse":
                await updater.reject(says("not my business"))
            case "raise":
                raise RuntimeError("out of order")
            case "hang":
                note("hanging")
                await asyncio.Event().wait()
            case _:
                await updater.complete(says(f"echo: {told}"))

    async def cancel(self, context, event_queue) -> None:
        note("cancelled")
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


streams, version = sys.argv[1] == "stream", sys.argv[2]
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
port = listener.getsockname()[1]
card = AgentCard(
    name="Interop",
    description="An agent for tests",
    version="1.2.3",
    capabilities=AgentCapabilities(streaming=streams),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="echo", name="echo", description="echoes", tags=["test"])],
    supported_interfaces=[
        AgentInterface(url=f"http://127.0.0.1:{port}/a2a", protocol_binding="JSONRPC", protocol_version=version)
    ],
)
handler = DefaultRequestHandler(agent_executor=Executor(), task_store=InMemoryTaskStore(), agent_card=card)


async def guarded(request, call_next):
    wanted = os.environ.get("BEARER")
    if wanted and request.headers.get("authorization") != f"Bearer {wanted}":
        note("a stranger")
        return JSONResponse({"error": "who are you?"}, status_code=401)
    return await call_next(request)


app = Starlette(
    routes=[
        *create_agent_card_routes(card),
        *create_jsonrpc_routes(handler, "/a2a", enable_v0_3_compat=version.startswith("0")),
    ],
    middleware=[Middleware(BaseHTTPMiddleware, dispatch=guarded)],
)
print(f"listening {port}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])
