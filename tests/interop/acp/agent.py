"""The Python SDK as an editor of `convoke acp`: a child on two pipes, whose model is a file."""

import asyncio
import json
import os
import tempfile
from pathlib import Path

import acp
from acp import schema

PATIENCE = 60


def call(name, **args):
    return [{"functionCall": {"name": name, "args": args}}]


def say(text):
    return [{"text": text}]


class Editor(acp.Client):
    """Keeps what it is told; answers what it is asked with the option `choice`, or never."""

    def __init__(self, choice="proceed_once"):
        self.choice = choice
        self.updates = []
        self.asked = asyncio.Event()
        self.files = {}

    async def request_permission(self, session_id, tool_call, options, **_):
        self.asked.set()
        if self.choice is None:
            await asyncio.Event().wait()
        assert any(option.option_id == self.choice for option in options), options
        outcome = schema.AllowedOutcome(outcome="selected", option_id=self.choice)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def session_update(self, session_id, update, **_):
        self.updates.append(update)

    async def read_text_file(self, session_id, path, line=None, limit=None, **_):
        return schema.ReadTextFileResponse(content=self.files[path])

    async def write_text_file(self, session_id, path, content, **_):
        self.files[path] = content
        return schema.WriteTextFileResponse()

    def of(self, kind):
        return [update for update in self.updates if update.session_update == kind]

    def said(self, kind):
        return "".join(update.content.text for update in self.of(kind))


class Agent:
    """The real binary, with these answers of its model."""

    def __init__(self, home, editor, answers, capabilities=None):
        self.home, self.editor, self.answers = home, editor, answers
        self.capabilities = capabilities or schema.ClientCapabilities()

    async def __aenter__(self):
        candidate = lambda parts: {"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}
        line = lambda parts: {"method": "generateContentStream", "response": [{"candidates": [candidate(parts)]}]}
        responses = self.home / "responses.jsonl"
        responses.write_text("".join(json.dumps(line(parts)) + "\n" for parts in self.answers))
        self.child = await asyncio.create_subprocess_exec(
            os.environ["CONVOKE_PROGRAM"],
            *("acp", "--model", "gemini-2.5-flash", "--fake-responses", str(responses)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=self.home / "workspace",
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                "CONVOKE_HOME": str(self.home),
                "GEMINI_CLI_HOME": str(self.home),
                "GEMINI_API_KEY": "not-a-key",
            },
        )
        self.connection = acp.connect_to_agent(self.editor, self.child.stdin, self.child.stdout)
        self.about = await self.connection.initialize(protocol_version=1, client_capabilities=self.capabilities)
        return self

    async def __aexit__(self, *_):
        self.child.stdin.close()
        code = await asyncio.wait_for(self.child.wait(), PATIENCE)
        assert code == 0, code
        await self.connection.close()

    async def new(self):
        return await self.connection.new_session(cwd=str(self.home / "workspace"), mcp_servers=[])

    async def prompt(self, session, text):
        return await self.connection.prompt(session_id=session, prompt=[acp.text_block(text)])


async def refused(asking, code):
    try:
        await asking
    except acp.RequestError as error:
        assert error.code == code, error
        return
    raise AssertionError("it was not refused")


async def a_turn_and_its_settings(home):
    editor = Editor()
    todos = [{"description": "write", "status": "completed"}]
    answers = [call("write_todos", todos=todos), call("write_file", file_path="a.txt", content="one\n"), say("Written.")]
    async with Agent(home, editor, answers) as agent:
        assert agent.about.protocol_version == 1
        assert agent.about.agent_capabilities.load_session is True
        session = await agent.new()
        assert session.modes.current_mode_id == "default"
        end = await agent.prompt(session.session_id, "write a.txt")
        assert end.stop_reason == "end_turn", end
        assert (home / "workspace/a.txt").read_text() == "one\n"
        assert editor.said("agent_message_chunk") == "Written."
        assert editor.of("plan")[0].entries[0].status == "completed"
        assert editor.asked.is_set()
        await agent.connection.set_session_mode(session_id=session.session_id, mode_id="autoEdit")
        nonsense = agent.connection.set_session_mode(session_id=session.session_id, mode_id="nonsense")
        await refused(nonsense, -32602)
        mode = next(option for option in session.config_options if option.category == "mode")
        told = await agent.connection.set_config_option(
            config_id=mode.id, session_id=session.session_id, value="default"
        )
        assert next(option for option in told.config_options if option.id == mode.id).current_value == "default"
    return session.session_id


async def a_cancelled_turn(home):
    editor = Editor(choice=None)
    async with Agent(home, editor, [call("run_shell_command", command="sleep 1000"), say("Again.")]) as agent:
        session = (await agent.new()).session_id
        turn = asyncio.create_task(agent.prompt(session, "sleep"))
        await asyncio.wait_for(editor.asked.wait(), PATIENCE)
        await agent.connection.cancel(session_id=session)
        assert (await turn).stop_reason == "cancelled"
        assert (await agent.prompt(session, "and now")).stop_reason == "end_turn"


async def a_recorded_session(home, recorded):
    editor, cwd = Editor(), str(home / "workspace")
    async with Agent(home, editor, [say("I know.")]) as agent:
        listed = (await agent.connection.list_sessions(cwd=cwd)).sessions
        assert recorded in [session.session_id for session in listed]
        await refused(agent.connection.list_sessions(cursor="of another agent"), -32602)
        loaded = await agent.connection.load_session(cwd=cwd, session_id=recorded, mcp_servers=[])
        assert loaded.modes.current_mode_id == "default"
        assert editor.said("user_message_chunk") == "write a.txt"
        assert editor.said("agent_message_chunk") == "Written."
        assert [end.status for end in editor.of("tool_call_update")] == ["completed", "completed"]
        assert len(editor.of("plan")) == 1
        await agent.connection.close_session(session_id=recorded)
        editor.updates.clear()
        await agent.connection.resume_session(session_id=recorded, cwd=cwd, mcp_servers=[])
        assert (await agent.prompt(recorded, "what did you do?")).stop_reason == "end_turn"
        assert (editor.said("user_message_chunk"), editor.said("agent_message_chunk")) == ("", "I know.")
        await agent.connection.close_session(session_id=recorded)
        # The SDK has no name for it yet.
        await agent.connection._conn.send_request("session/delete", {"sessionId": recorded})
        left = (await agent.connection.list_sessions(cwd=cwd)).sessions
        assert recorded not in [session.session_id for session in left]
        await refused(agent.connection.load_session(cwd=cwd, session_id=recorded, mcp_servers=[]), -32002)


async def files_of_the_editor(home):
    editor = Editor()
    path = home / "workspace/open.txt"
    path.write_text("on the disk\n")
    editor.files[str(path)] = "not saved\n"
    files = schema.FileSystemCapabilities(read_text_file=True, write_text_file=True)
    change = call("replace", file_path="open.txt", instruction="x", old_string="not saved", new_string="changed")
    async with Agent(home, editor, [change, say("Done.")], schema.ClientCapabilities(fs=files)) as agent:
        session = (await agent.new()).session_id
        assert (await agent.prompt(session, "change it")).stop_reason == "end_turn"
        assert editor.files[str(path)] == "changed\n", editor.files


async def main():
    with tempfile.TemporaryDirectory(prefix="convoke-acp-") as folder:
        home = Path(folder).resolve()
        (home / "workspace").mkdir()
        recorded = await a_turn_and_its_settings(home)
        await a_cancelled_turn(home)
        await a_recorded_session(home, recorded)
        await files_of_the_editor(home)


asyncio.run(main())
print("the Python SDK as an editor: passed")
